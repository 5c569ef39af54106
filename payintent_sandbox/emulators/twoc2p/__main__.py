"""The emulator's command: `python -m payintent_sandbox.emulators.twoc2p --port 8083`."""

import argparse
import os
from pathlib import Path

from starlette.applications import Starlette

from payintent_sandbox.emulators import runner
from payintent_sandbox.emulators.twoc2p.app import make_app
from payintent_sandbox.emulators.twoc2p.keys import make_pair, read_private, read_public
from payintent_sandbox.emulators.twoc2p.model import Account


def main() -> None:
    """Serve until a signal arrives."""
    parser = runner.make_parser(
        "payintent_sandbox.emulators.twoc2p",
        "An emulator of 2C2P for tests. TWOC2P_ACCOUNTS contains its merchants as JSON, "
        '[{"merchant_id": "…", "secret_key": "…", "merchant_public_key": "PEM"}]. '
        "TWOC2P_PRIVATE_KEY is the emulator's private key (PEM). By default, the emulator "
        "generates a key and serves the public key at /_twoc2p/public-key. "
        "SIM_TIME_SCALE=100 makes delays 100 times "
        "shorter.",
        port=8083,
    )
    parser.add_argument(
        "--accounts", type=Path, help="file with the accounts, instead of TWOC2P_ACCOUNTS"
    )
    parser.add_argument("--public-url", help="base URL for buyers, if different from the API's")
    runner.run_asgi(parser, _build)


def _build(arguments: argparse.Namespace) -> Starlette:
    accounts = runner.read_accounts(
        Account, "merchant_id", variable="TWOC2P_ACCOUNTS", path=arguments.accounts
    )
    for account in accounts:
        if account.merchant_public_key:
            read_public(account.merchant_public_key)
    key = read_private(os.environ.get("TWOC2P_PRIVATE_KEY") or make_pair()[0])
    time_scale = runner.read_time_scale()
    return make_app(accounts, key, time_scale=time_scale, public_url=arguments.public_url)


if __name__ == "__main__":
    main()
