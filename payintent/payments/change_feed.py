"""Notify subscribers of changes, by a single query at a time for all subscribers of this process.

Commits that record an event trigger the query at once; other changes are found within a second.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Hashable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from payintent.domain.errors import (
    ErrorCode,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.log import get_logger
from payintent.storage.event_notify import EventNotifier

_log = get_logger("lookout")
_SUBSCRIBERS_MAX = 10_000
_POLL_EVERY_S = 1.0
_POLL_PAUSE_S = 0.05  # notifications within this time share a query

K = TypeVar("K", bound=Hashable)


@dataclass(eq=False, slots=True)
class ChangeSubscriber:
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class ChangeFeed(Generic[K]):
    """The subscribers of this process; no task runs while there are none.

    `change_markers` returns a marker for each key, which differs after every change.
    """

    def __init__(
        self,
        change_markers: Callable[[Sequence[K]], Awaitable[dict[K, str]]],
        wake: EventNotifier,
        *,
        per_key_max: int,
    ) -> None:
        self._change_markers = change_markers
        self._wake = wake
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
        self._markers.pop(key, None)  # notifies the new subscriber of the present state
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
        """Wake all subscribers, so that their streams end because `closing` is True."""
        self.closing = True
        for subscribers in self._subscribers.values():
            for subscriber in subscribers:
                subscriber.changed.set()

    def _start(self) -> None:
        if not self._tasks:
            listen = self._wake.listen(self._notified.set)
            self._tasks = [asyncio.create_task(listen), asyncio.create_task(self._run())]

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_EVERY_S):
                    await self._notified.wait()
            self._notified.clear()
            try:
                await self._poll()
            except (StorageUnavailableError, LockTimeoutError) as error:
                _log.warning("look_deferred", why=type(error).__name__)
            except Exception as error:  # noqa: BLE001 - a failed query must not end all streams
                _log.error("look_failed", exc_info=error)
                await asyncio.sleep(_POLL_EVERY_S)
            await asyncio.sleep(_POLL_PAUSE_S)

    async def _poll(self) -> None:
        markers = await self._change_markers(list(self._subscribers))
        for key, marker in markers.items():
            if key in self._subscribers and self._markers.get(key) != marker:
                self._markers[key] = marker
                for subscriber in self._subscribers[key]:
                    subscriber.changed.set()
