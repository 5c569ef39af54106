"""The shop's command: `python -m payintent_sandbox.shop --port 8082`."""

import argparse
import os

from starlette.applications import Starlette

from payintent_sandbox.emulators import runner

from .app import Config, make_app
from .webhook import read_secret


def main() -> None:
    """Serve until a signal arrives."""
    parser = runner.make_parser(
        "payintent_sandbox.shop",
        "A demo shop. The environment contains the URLs of the payment service and the shop "
        "(SHOP_API_URL, SHOP_PUBLIC_URL) and the shop's secrets (SHOP_API_KEY, "
        "SHOP_CALLBACK_SECRET).",
        port=8082,
    )
    runner.run_asgi(parser, _build)


def _build(arguments: argparse.Namespace) -> Starlette:
    """Read the environment. Arguments would expose the secrets to every process."""
    return make_app(
        Config(
            api_url=os.environ.get("SHOP_API_URL", "http://127.0.0.1:8080/v1"),
            public_url=os.environ.get(
                "SHOP_PUBLIC_URL", f"http://127.0.0.1:{arguments.port}"
            ).rstrip("/"),
            api_key=_required("SHOP_API_KEY"),
            callback_key=read_secret(_required("SHOP_CALLBACK_SECRET")),
        )
    )


def _required(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise ValueError(f"{name} must be set in the environment")
    return value


if __name__ == "__main__":
    main()
