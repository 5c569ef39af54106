"""A process without a supervisor: nothing can replace it while it serves."""

import asyncio
import signal

from payintent.log import get_logger

_log = get_logger("process")


def refuse_roll(loop: asyncio.AbstractEventLoop) -> None:
    """Let SIGHUP, which has a supervisor replace its processes, end nothing; the log says why.

    By default it would end the process without a drain, and systemd takes that for a good end,
    after which it starts nothing again.
    """
    loop.add_signal_handler(signal.SIGHUP, _refuse)


def _refuse() -> None:
    _log.error("roll_failed", why="there is no supervisor with --processes 1: restart the process")
