"""The command: `payintent-mcp`, or `payintent mcp` if the service is installed.

The key comes from the environment (`PAYINTENT_API_KEY`) or from a file that only its owner may
read (`PAYINTENT_API_KEY_FILE`), never from the command line, which is visible to all users.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

_TEST_KEY = "sk_test_"
_BASE_URL = "http://127.0.0.1:8080"


class UsageError(Exception):
    """The command cannot run. The message contains the reason."""


def main(words: Sequence[str] | None = None) -> None:
    """Serve a client on standard input and output until it disconnects."""
    for stream in (
        sys.stdout,
        sys.stderr,
    ):  # only --help and errors use these streams; the protocol does not
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    parser = _arguments()
    wanted = parser.parse_args(words)
    try:
        key = read_key(os.environ, live=wanted.live)
        base_url = _read_base_url(wanted.base_url)
    except UsageError as error:
        parser.error(str(error))
    from payintent_mcp.server import serve  # imported late, because the import is slow

    asyncio.run(serve(key, base_url, write=wanted.write))


def read_key(environment: os._Environ[str], *, live: bool) -> str:
    """Return the API key. Raises `UsageError` if it is missing, or if a live key is not allowed."""
    key = _first(environment, "PAYINTENT_API_KEY", "PAYINTENT_KEY")
    if not key and (name := environment.get("PAYINTENT_API_KEY_FILE")):
        key = _from_file(Path(name))
    if not key:
        raise UsageError("set PAYINTENT_API_KEY or PAYINTENT_API_KEY_FILE to a test key")
    from payintent_sdk.credentials import read_api_key

    try:
        key = read_api_key(key)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if not key.startswith(_TEST_KEY) and not live:
        raise UsageError("this is not a test key (sk_test_); --live allows live keys")
    return key


def _read_base_url(text: str) -> str:
    from payintent_sdk.credentials import read_base_url

    try:
        return read_base_url(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _first(environment: os._Environ[str], *names: str) -> str:
    """Return the first variable that is set. Later names are older."""
    values = (environment.get(name, "").strip() for name in names)
    return next(filter(None, values), "")


def _from_file(path: Path) -> str:
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UsageError(f"{path} is accessible to other users; run chmod 600 on it")
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} cannot be read: it is not UTF-8") from error


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="payintent-mcp",
        description="Provide the merchant API as tools for agents (Model Context Protocol).",
    )
    parser.add_argument("--write", action="store_true", help="also enable tools that change data")
    parser.add_argument("--live", action="store_true", help="allow a live key (real money)")
    parser.add_argument(
        "--base-url",
        default=_first(os.environ, "PAYINTENT_URL", "PAYINTENT_API_BASE_URL") or _BASE_URL,
        help="URL of the service, without /v1 (PAYINTENT_URL)",
    )
    return parser


def add_to(app: typer.Typer) -> None:
    """Add `mcp` to the service's `payintent` command."""
    import typer

    def mcp(context: typer.Context) -> None:
        """Provide the merchant API as tools for agents, over the Model Context Protocol."""
        main(context.args)

    mcp.__annotations__["context"] = typer.Context
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(context_settings=settings, add_help_option=False)(mcp)
