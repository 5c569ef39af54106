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
    """Serve until a signal arrives."""
    arguments = runner.make_parser(
        "payintent_sandbox.emulators.stripe",
        "An emulator of Stripe for tests. Only this machine can reach it: --host must be a "
        "loopback address. STRIPE_KEYS contains its accounts as "
        "'secret:publishable,secret:publishable'; by default, any key is accepted. Events are sent "
        "to STRIPE_WEBHOOK_URL and signed with STRIPE_WEBHOOK_SECRET.",
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
        raise ValueError("--host must be a loopback address: the emulator is not secured")
    return f"[{address}]" if ":" in address else address


def _accounts() -> tuple[Keys, ...]:
    """Read the keys. They are not arguments, because every process can see arguments."""
    listed = os.environ.get("STRIPE_KEYS", "").split(",")
    pairs = [pair.strip().partition(":") for pair in listed if pair.strip()]
    if any(not (a.startswith("sk_") and b.startswith("pk_")) for a, _, b in pairs):
        raise ValueError("STRIPE_KEYS must contain pairs of sk_… and pk_… keys")
    return tuple(Keys(secret, publishable) for secret, _, publishable in pairs)


def _endpoint() -> Endpoint | None:
    url = os.environ.get("STRIPE_WEBHOOK_URL", "")
    secret = os.environ.get("STRIPE_WEBHOOK_SECRET", "")
    if bool(url) != bool(secret):
        raise ValueError("STRIPE_WEBHOOK_URL and STRIPE_WEBHOOK_SECRET must be set together")
    return Endpoint(url, secret) if url else None


if __name__ == "__main__":
    main()
