"""Code shared by the emulators' and the shop's commands: arguments, environment and server."""

import argparse
import io
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from starlette.applications import Starlette

SHUTDOWN_S = 2  # how long an unfinished response may delay the shutdown
KEEP_ALIVE_S = 30  # longer than clients keep idle connections, so that clients close them first

App = TypeVar("App")
Account = TypeVar("Account")


def make_parser(module: str, description: str, *, port: int) -> argparse.ArgumentParser:
    """Create the argument parser of `python -m MODULE`, with the listen address."""
    for stream in (sys.stdout, sys.stderr):  # for characters that the terminal's encoding lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=port)
    return parser


def build_or_exit(build: Callable[[argparse.Namespace], App], arguments: argparse.Namespace) -> App:
    """Build the application, or exit with the first line of a ValueError as the reason."""
    try:
        return build(arguments)
    except ValueError as error:
        sys.exit(str(error).partition("\n")[0])


def run_asgi(
    parser: argparse.ArgumentParser, build: Callable[[argparse.Namespace], Starlette]
) -> None:
    """Read the command line, build the application and serve it until a signal arrives."""
    import uvicorn

    arguments = parser.parse_args()
    uvicorn.run(
        build_or_exit(build, arguments),
        host=arguments.host,
        port=arguments.port,
        ws="none",
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=SHUTDOWN_S,
        timeout_keep_alive=KEEP_ALIVE_S,
    )


def read_accounts(
    kind: type[Account], key: str, *, variable: str, path: Path | None = None
) -> list[Account]:
    """Read the accounts from a file or the environment; `key` is the field that identifies them.

    Accounts are not arguments, because other processes can read arguments.
    """
    try:
        text = path.read_text() if path else os.environ.get(variable, "")
        accounts = msgspec.json.decode(text, type=list[kind])
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"the accounts cannot be read: {error}") from None
    if not accounts or len({getattr(account, key) for account in accounts}) < len(accounts):
        raise ValueError(f"there must be at least one account, and each {key} must be unique")
    return accounts


def read_time_scale(default: str = "1") -> float:
    """Read SIM_TIME_SCALE, the emulator's speed relative to real time."""
    try:
        scale = float(os.environ.get("SIM_TIME_SCALE") or default)
    except ValueError:
        scale = 0.0
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError("SIM_TIME_SCALE must be a number greater than zero")
    return scale
