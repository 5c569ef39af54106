"""The sandbox's Stripe as a command: `python -m payintent_sandbox.emulators.stripe --port 8420`."""

import argparse
import ipaddress
import os
import sys

from aiohttp import web

from payintent_sandbox.emulators.stripe.app import Sandbox, make_app
from payintent_sandbox.emulators.stripe.events import Endpoint
from payintent_sandbox.emulators.stripe.model import Keys

SHUTDOWN_S = 1.0
KEEP_ALIVE_S = 30.0  # longer than clients keep a connection, so that they close it, not we


def main() -> None:
    """Serve until a signal."""
    arguments = _arguments()
    try:
        host = _host(arguments.host)
        accounts, endpoint = _accounts(), _endpoint()
    except ValueError as error:
        sys.exit(str(error))
    web.run_app(
        make_app(Sandbox(accounts, f"http://{host}:{arguments.port}", endpoint)),
        host=arguments.host,
        port=arguments.port,
        access_log=None,
        print=None,
        shutdown_timeout=SHUTDOWN_S,
        keepalive_timeout=KEEP_ALIVE_S,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m payintent_sandbox.emulators.stripe",
        description="A Stripe for tests, on this machine alone. STRIPE_KEYS holds its accounts, "
        "'secret:publishable,secret:publishable'; without it any key will do. STRIPE_WEBHOOK_URL "
        "and STRIPE_WEBHOOK_SECRET say where events go.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="an address of the loopback interface")
    parser.add_argument("--port", type=int, default=8420)
    return parser.parse_args()


def _host(address: str) -> str:
    """Give it as it stands in an address; whoever is not of this machine is not to be served."""
    if not ipaddress.ip_address(address).is_loopback:
        raise ValueError("--host must be of the loopback interface: there is no security here")
    return f"[{address}]" if ":" in address else address


def _accounts() -> tuple[Keys, ...]:
    """Read the keys; never from the command line, which every process can see."""
    listed = [one for one in os.environ.get("STRIPE_KEYS", "").split(",") if one.strip()]
    pairs = [one.strip().partition(":") for one in listed]
    if any(not (a.startswith("sk_") and b.startswith("pk_")) for a, _, b in pairs):
        raise ValueError("STRIPE_KEYS must hold pairs of sk_… and pk_…")
    return tuple(Keys(secret, publishable) for secret, _, publishable in pairs)


def _endpoint() -> Endpoint | None:
    url = os.environ.get("STRIPE_WEBHOOK_URL", "")
    secret = os.environ.get("STRIPE_WEBHOOK_SECRET", "")
    if bool(url) != bool(secret):
        raise ValueError("STRIPE_WEBHOOK_URL and STRIPE_WEBHOOK_SECRET come together")
    return Endpoint(url, secret) if url else None


if __name__ == "__main__":
    main()
