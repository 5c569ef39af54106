"""The simulator's command: `python -m payintent_sandbox.emulators.simulator --port 8081`."""

import argparse
from pathlib import Path

from starlette.applications import Starlette

from payintent_sandbox.emulators import runner
from payintent_sandbox.emulators.simulator.app import make_app
from payintent_sandbox.emulators.simulator.model import Account


def main() -> None:
    """Serve until a signal arrives."""
    parser = runner.make_parser(
        "payintent_sandbox.emulators.simulator",
        "A payment gateway for tests. SIM_ACCOUNTS contains its accounts as JSON, "
        '[{"api_key": "…", "signing_secret": "…"}]; SIM_TIME_SCALE=100 makes delays 100 times '
        "shorter.",
        port=8081,
    )
    parser.add_argument(
        "--accounts", type=Path, help="file with the accounts, instead of SIM_ACCOUNTS"
    )
    parser.add_argument("--public-url", help="base URL for buyers, if different from the API's")
    runner.run_asgi(parser, _build)


def _build(arguments: argparse.Namespace) -> Starlette:
    accounts = runner.read_accounts(
        Account, "api_key", variable="SIM_ACCOUNTS", path=arguments.accounts
    )
    time_scale = runner.read_time_scale()
    return make_app(accounts, time_scale=time_scale, public_url=arguments.public_url)


if __name__ == "__main__":
    main()
