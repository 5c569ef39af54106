"""Wake dispatchers by a NOTIFY after a commit, at most every 20 ms, on a separate connection.

A NOTIFY inside a transaction would take a cluster-wide lock at commit. A lost notification is
harmless, because dispatchers also poll.
"""

import asyncio
from collections.abc import Callable

from payintent.log import get_logger
from payintent.storage.driver import GONE, Connection, connect
from payintent.waiting import wait_until_stopped

CHANNEL = "payintent_event"
_PAUSE_S = 0.02
_RETRY_S = 1.0
_ANSWER_S = 5.0  # how long the server may take
_PROBE_EVERY_S = 10.0  # an idle listener checks its connection

_log = get_logger("wake")


class EventNotifier:
    """Notifies dispatchers in all processes of recorded events, or listens for notifications."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []

    def notify(self) -> None:
        """Wake the listeners of this process at once, and of all processes soon."""
        for listener in self._listeners:
            listener()
        self._is_due.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._notify())

    async def listen(self, callback: Callable[[], None]) -> None:
        """Call `callback` for each notification of any process, until cancelled."""
        self._listeners.append(callback)
        try:
            while True:
                try:
                    await self._listen_once(callback)
                except GONE as error:
                    _log.warning("listener_lost", why=type(error).__name__)
                await asyncio.sleep(_RETRY_S)
        finally:
            self._listeners.remove(callback)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _listen_once(self, callback: Callable[[], None]) -> None:
        lost = asyncio.Event()
        connection = await connect(self._url, "payintent-listen", _ANSWER_S)
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, lambda *_: callback())
            while not lost.is_set():
                await connection.fetchval("SELECT 1")
                await wait_until_stopped(lost, _PROBE_EVERY_S)
        finally:
            await connection.close()

    async def _notify(self) -> None:
        connection: Connection | None = None
        try:
            connection = await connect(self._url, "payintent-notify", _ANSWER_S)
            while True:
                await self._is_due.wait()
                self._is_due.clear()
                await connection.execute(f"NOTIFY {CHANNEL}")
                await asyncio.sleep(_PAUSE_S)
        except GONE as error:
            _log.warning("notifier_lost", why=type(error).__name__)
        finally:
            if connection is not None:
                await connection.close()
