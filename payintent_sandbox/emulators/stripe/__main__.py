"""The Stripe emulator's command: `python -m payintent_sandbox.emulators.stripe --port 8420`."""

import argparse
import ipaddress
import os

from aiohttp import web

from payintent_sandbox.emulators import runner
from payintent_sandbox.emulators.stripe.app import StripeEmulator, make_app
from payintent_sandbox.emulators.stripe.events import Endpoint
from payintent_sandbox.emulators.stripe.model import Keys

SHUTDOWN_S = 1.0


def main() -> None:
    """Serve until a signal."""
    arguments = runner.make_parser(
        "payintent_sandbox.emulators.stripe",
        "A Stripe for tests, on this machine alone: --host takes addresses of the loopback "
        "interface. STRIPE_KEYS holds its accounts, 'secret:publishable,secret:publishable'; "
        "without it any key is accepted. STRIPE_WEBHOOK_URL and STRIPE_WEBHOOK_SECRET say where "
        "events go.",
        port=8420,
    ).parse_args()
    web.run_app(
        runner.build_or_exit(_build, arguments),
        host=arguments.host,
        port=arguments.port,
        access_log=None,
        print=None,
        shutdown_timeout=SHUTDOWN_S,
        keepalive_timeout=runner.KEEP_ALIVE_S,
    )


def _build(arguments: argparse.Namespace) -> web.Application:
    url = f"http://{_url_host(arguments.host)}:{arguments.port}"
    return make_app(StripeEmulator(_accounts(), url, _endpoint()))


def _url_host(address: str) -> str:
    """Format a host for a URL; reject an address that remote machines can reach."""
    if not ipaddress.ip_address(address).is_loopback:
        raise ValueError("--host must be of the loopback interface: there is no security here")
    return f"[{address}]" if ":" in address else address


def _accounts() -> tuple[Keys, ...]:
    """Read the keys, but never from the command line, which every process can see."""
    listed = os.environ.get("STRIPE_KEYS", "").split(",")
    pairs = [pair.strip().partition(":") for pair in listed if pair.strip()]
    if any(not (a.startswith("sk_") and b.startswith("pk_")) for a, _, b in pairs):
        raise ValueError("STRIPE_KEYS must hold pairs of sk_… and pk_…")
    return tuple(Keys(secret, publishable) for secret, _, publishable in pairs)


def _endpoint() -> Endpoint | None:
    url = os.environ.get("STRIPE_WEBHOOK_URL", "")
    secret = os.environ.get("STRIPE_WEBHOOK_SECRET", "")
    if bool(url) != bool(secret):
        raise ValueError("STRIPE_WEBHOOK_URL and STRIPE_WEBHOOK_SECRET must be set together")
    return Endpoint(url, secret) if url else None


if __name__ == "__main__":
    main()
