"""Wake dispatchers and streams with NOTIFY after a commit, at most once every 20 ms.

NOTIFY runs on its own connection, because inside a transaction it would acquire a cluster-wide lock
at commit. Lost notifications are harmless, because all listeners also poll.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from payintent.core.errors import ErrorCode, LockTimeoutError, RefusedError, StorageUnavailableError
from payintent.db.driver import UNAVAILABLE, Connection, connect
from payintent.runtime.log import get_logger
from payintent.runtime.waiting import wait_for_event

CHANNEL = "payintent_event"
_PAUSE_S = 0.02
_RETRY_S = 1.0
_STATEMENT_TIMEOUT_S = 5.0
_PROBE_EVERY_S = 10.0  # how often an idle listener checks its connection
_SUBSCRIBERS_MAX = 10_000
_POLL_EVERY_S = 1.0
_POLL_PAUSE_S = 0.05  # notifications during the pause share a query

_notifier_log = get_logger("wake")
_feed_log = get_logger("lookout")


class EventNotifier:
    """Notifies all processes of recorded events, and listens for notifications."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._notify_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []

    def notify(self) -> None:
        """Wake this process's listeners immediately and other processes' listeners soon after."""
        for listener in self._listeners:
            listener()
        self._notify_due.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._notify())

    async def listen(self, callback: Callable[[], None]) -> None:
        """Call `callback` for each notification from any process, until cancelled."""
        self._listeners.append(callback)
        try:
            while True:
                try:
                    await self._listen_once(callback)
                except UNAVAILABLE as error:
                    _notifier_log.warning("listener_lost", why=type(error).__name__)
                await asyncio.sleep(_RETRY_S)
        finally:
            self._listeners.remove(callback)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _listen_once(self, callback: Callable[[], None]) -> None:
        connection_lost = asyncio.Event()
        connection = await connect(self._url, "payintent-listen", _STATEMENT_TIMEOUT_S)
        try:
            connection.add_termination_listener(lambda _: connection_lost.set())
            await connection.add_listener(CHANNEL, lambda *_: callback())
            while not connection_lost.is_set():
                await connection.fetchval("SELECT 1")
                await wait_for_event(connection_lost, _PROBE_EVERY_S)
        finally:
            await connection.close()

    async def _notify(self) -> None:
        connection: Connection | None = None
        try:
            connection = await connect(self._url, "payintent-notify", _STATEMENT_TIMEOUT_S)
            while True:
                await self._notify_due.wait()
                self._notify_due.clear()
                await connection.execute(f"NOTIFY {CHANNEL}")
                await asyncio.sleep(_PAUSE_S)
        except UNAVAILABLE as error:
            _notifier_log.warning("notifier_lost", why=type(error).__name__)
        finally:
            if connection is not None:
                await connection.close()


K = TypeVar("K", bound=Hashable)


@dataclass(eq=False, slots=True)
class ChangeSubscriber:
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class ChangeFeed(Generic[K]):
    """Notifies this process's subscribers of changes. No task runs while there are no subscribers.

    `change_markers` must return a marker for each key, which must be different after every change.
    """

    def __init__(
        self,
        change_markers: Callable[[Sequence[K]], Awaitable[dict[K, str]]],
        notifier: EventNotifier,
        *,
        per_key_max: int,
    ) -> None:
        self._change_markers = change_markers
        self._notifier = notifier
        self._per_key_max = per_key_max
        self._subscribers: dict[K, set[ChangeSubscriber]] = {}
        self._markers: dict[K, str] = {}
        self._notified = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.closing = False

    @property
    def count(self) -> int:
        return sum(map(len, self._subscribers.values()))

    def require_capacity(self, key: K) -> None:
        """Raise `RATE_LIMITED` if the key or the process has too many subscribers."""
        subscribers = self._subscribers.get(key, ())
        if len(subscribers) >= self._per_key_max or self.count >= _SUBSCRIBERS_MAX:
            raise RefusedError(ErrorCode.RATE_LIMITED, "too many streams are open", retry_after_s=5)

    @contextmanager
    def subscribe(self, key: K, subscriber: ChangeSubscriber) -> Generator[None]:
        subscribers = self._subscribers.setdefault(key, set())
        subscribers.add(subscriber)
        self._markers.pop(key, None)  # so that the new subscriber receives the current state
        self._start()
        try:
            yield
        finally:
            subscribers.discard(subscriber)
            if not subscribers:
                self._subscribers.pop(key, None)
                self._markers.pop(key, None)
            if not self._subscribers:
                self._stop()

    def close(self) -> None:
        """Set `closing` and wake all subscribers so that they end their streams."""
        self.closing = True
        for subscribers in self._subscribers.values():
            for subscriber in subscribers:
                subscriber.changed.set()

    def _start(self) -> None:
        if not self._tasks:
            listen = self._notifier.listen(self._notified.set)
            self._tasks = [asyncio.create_task(listen), asyncio.create_task(self._run())]

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    async def _run(self) -> None:
        while True:
            await wait_for_event(self._notified, _POLL_EVERY_S)
            self._notified.clear()
            try:
                await self._poll()
            except (StorageUnavailableError, LockTimeoutError) as error:
                _feed_log.warning("look_deferred", why=type(error).__name__)
            except Exception as error:  # noqa: BLE001 - a failed query must not end all streams
                _feed_log.error("look_failed", exc_info=error)
                await asyncio.sleep(_POLL_EVERY_S)
            await asyncio.sleep(_POLL_PAUSE_S)

    async def _poll(self) -> None:
        markers = await self._change_markers(list(self._subscribers))
        for key, marker in markers.items():
            if key in self._subscribers and self._markers.get(key) != marker:
                self._markers[key] = marker
                for subscriber in self._subscribers[key]:
                    subscriber.changed.set()
