"""A process without a supervisor, which cannot be replaced without an interruption."""

import asyncio
import signal

from payintent.log import get_logger

_log = get_logger("process")


def refuse_roll(loop: asyncio.AbstractEventLoop) -> None:
    """Log an error on SIGHUP, which only a supervisor supports.

    By default SIGHUP would end the process without a drain, and systemd would not restart it,
    because it considers this a clean exit.
    """
    loop.add_signal_handler(signal.SIGHUP, _refuse)


def _refuse() -> None:
    _log.error("roll_failed", why="there is no supervisor with --processes 1: restart the process")
