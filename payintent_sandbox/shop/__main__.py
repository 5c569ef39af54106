"""The shop's command: `python -m payintent_sandbox.shop --port 8082`."""

import argparse
import os
import sys

import uvicorn

from .app import Config, make_app
from .webhook import read_secret

SHUTDOWN_S = 2  # how long an unfinished answer may delay the end
KEEP_ALIVE_S = 30  # longer than senders keep a connection, so that they close it, not we


def main() -> None:
    """Serve until a signal."""
    arguments = _arguments()
    try:
        config = _config(arguments.port)
    except ValueError as error:
        sys.exit(str(error))
    uvicorn.run(
        make_app(config),
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
        prog="python -m payintent_sandbox.shop",
        description="A tiny merchant. SHOP_API_URL, SHOP_API_KEY, SHOP_CALLBACK_SECRET and "
        "SHOP_PUBLIC_URL in the environment say where the payment service and the shop are, and "
        "hold the shop's secrets.",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8082)
    return parser.parse_args()


def _config(port: int) -> Config:
    """Read the environment; secrets never come from the command line, which everybody sees."""
    return Config(
        api_url=os.environ.get("SHOP_API_URL", "http://127.0.0.1:8080/v1"),
        public_url=os.environ.get("SHOP_PUBLIC_URL", f"http://127.0.0.1:{port}").rstrip("/"),
        api_key=_required("SHOP_API_KEY"),
        callback_key=read_secret(_required("SHOP_CALLBACK_SECRET")),
    )


def _required(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise ValueError(f"{name} must be set in the environment")
    return value


if __name__ == "__main__":
    main()
