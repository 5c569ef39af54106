"""The counterpart's command: `python -m payintent_sandbox.emulators.twoc2p --port 8083`."""

import argparse
import math
import os
import sys
from pathlib import Path

import msgspec
import uvicorn

from payintent_sandbox.emulators.twoc2p.app import make_app
from payintent_sandbox.emulators.twoc2p.keys import make_pair, read_private, read_public
from payintent_sandbox.emulators.twoc2p.model import Account

SHUTDOWN_S = 2  # how long a hanging answer may delay the end
KEEP_ALIVE_S = 30  # longer than clients keep a connection, so that they close it, not we


def main() -> None:
    """Serve until a signal."""
    arguments = _arguments()
    try:
        accounts = _accounts(arguments.accounts)
        key = read_private(os.environ.get("TWOC2P_PRIVATE_KEY") or make_pair()[0])
        time_scale = _time_scale(os.environ.get("SIM_TIME_SCALE", "1"))
    except ValueError as error:
        sys.exit(str(error).splitlines()[0])
    uvicorn.run(
        make_app(accounts, key, time_scale=time_scale, public_url=arguments.public_url),
        host=arguments.host,
        port=arguments.port,
        ws="none",
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=SHUTDOWN_S,
        timeout_keep_alive=KEEP_ALIVE_S,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m payintent_sandbox.emulators.twoc2p",
        description="A counterpart of 2C2P for tests. TWOC2P_ACCOUNTS holds its merchants as JSON, "
        '[{"merchant_id": "…", "secret_key": "…", "merchant_public_key": "PEM"}]; '
        "TWOC2P_PRIVATE_KEY its own key (PEM), else one is made and its public half shown at "
        "/_twoc2p/public-key; SIM_TIME_SCALE=100 makes delays 100 times shorter.",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8083)
    parser.add_argument("--accounts", type=Path, help="a file instead of TWOC2P_ACCOUNTS")
    parser.add_argument("--public-url", help="where buyers reach the page, if elsewhere")
    return parser.parse_args()


def _accounts(path: Path | None) -> list[Account]:
    """Read the merchants; never from the command line, which every process can see."""
    try:
        text = path.read_text() if path else os.environ.get("TWOC2P_ACCOUNTS", "")
        accounts = msgspec.json.decode(text, type=list[Account])
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"the accounts cannot be read: {error}") from None
    if not accounts or len({account.merchant_id for account in accounts}) < len(accounts):
        raise ValueError("the accounts must be one or more, each with a merchant id of its own")
    for account in accounts:
        if account.merchant_public_key:
            read_public(account.merchant_public_key)
    return accounts


def _time_scale(text: str) -> float:
    try:
        scale = float(text)
    except ValueError:
        scale = 0.0
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError("SIM_TIME_SCALE must be a number greater than zero")
    return scale


if __name__ == "__main__":
    main()
