"""The emulator's command: `python -m payintent_sandbox.emulators.ecpay --port 8083`."""

import argparse

from starlette.applications import Starlette

from payintent_sandbox.emulators import runner
from payintent_sandbox.emulators.ecpay.app import make_app
from payintent_sandbox.emulators.ecpay.model import Account


def main() -> None:
    """Serve until a signal arrives."""
    parser = runner.make_parser(
        "payintent_sandbox.emulators.ecpay",
        "An emulator of ECPay for tests. ECPAY_ACCOUNTS contains its merchants as JSON, "
        '[{"merchant_id": "…", "hash_key": "…", "hash_iv": "…", "credit_check_code": "…"}]; '
        "SIM_TIME_SCALE=100 makes delays 100 times shorter.",
        port=8083,
    )
    runner.run_asgi(parser, _build)


def _build(_: argparse.Namespace) -> Starlette:
    accounts = runner.read_accounts(Account, "merchant_id", variable="ECPAY_ACCOUNTS")
    return make_app(accounts, time_scale=runner.read_time_scale())


if __name__ == "__main__":
    main()
