"""What ends a command early, and what ends it because a person wants it to."""

from __future__ import annotations

import signal
from typing import NoReturn


class UsageError(Exception):
    """The command cannot run like this; the message says why."""


def stop_at_signals() -> None:
    """Let SIGTERM end a command as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _stop)


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt
