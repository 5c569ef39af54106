"""Usage errors, and interruption by the user."""

from __future__ import annotations

import codecs
import io
import json
import signal
import sys
from typing import NoReturn


class UsageError(Exception):
    """The command cannot run with these arguments or settings. The message contains the reason."""


def write_any_text() -> None:
    r"""Write escapes, such as `\u2713`, for characters that the output encoding lacks.

    The escapes are JSON escapes, so printed JSON keeps its meaning. Bytes of standard input that
    the encoding cannot decode are replaced.
    """
    codecs.register_error("payintent_cli.escape", _escape)
    escape = "payintent_cli.escape"
    for stream, errors in ((sys.stdout, escape), (sys.stderr, escape), (sys.stdin, "replace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def stop_at_signals() -> None:
    """Make SIGTERM stop a command in the same way as Ctrl-C."""
    signal.signal(signal.SIGTERM, _stop)


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt
