"""Notifies those who wait for changes: one query at a time for all who wait in this process.

Commits that record an event wake it; other changes are found within a second.
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
_ALL_MAX = 10_000  # of this process
_LOOK_EVERY_S = 1.0
_LOOK_PAUSE_S = 0.05  # wake-ups within this time are one

K = TypeVar("K", bound=Hashable)


@dataclass(eq=False, slots=True)
class ChangeSubscriber:
    """A subscriber to the changes of one payment, or of one merchant's events."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)


class ChangeFeed(Generic[K]):
    """The subscribers of this process; nothing runs while there are none.

    `change_markers` gives for each of their keys a text that is another one after every change.
    """

    def __init__(
        self,
        change_markers: Callable[[Sequence[K]], Awaitable[dict[K, str]]],
        wake: EventNotifier,
        *,
        of_one_max: int,
    ) -> None:
        self._change_markers = change_markers
        self._wake = wake
        self._of_one_max = of_one_max
        self._watches: dict[K, set[ChangeSubscriber]] = {}
        self._known: dict[K, str] = {}
        self._woken = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.closing = False

    @property
    def count(self) -> int:
        return sum(len(watches) for watches in self._watches.values())

    def require_capacity(self, key: K) -> None:
        """Raise `RATE_LIMITED` where a key, or the process, has enough subscribers."""
        watches = self._watches.get(key, ())
        if len(watches) >= self._of_one_max or self.count >= _ALL_MAX:
            raise RefusedError(ErrorCode.RATE_LIMITED, "too many streams are open", retry_after_s=5)

    @contextmanager
    def subscribe(self, key: K, subscriber: ChangeSubscriber) -> Generator[None]:
        watches = self._watches.setdefault(key, set())
        watches.add(subscriber)
        self._known.pop(key, None)  # a new subscriber must get a present change
        self._start()
        try:
            yield
        finally:
            watches.discard(subscriber)
            if not watches:
                self._watches.pop(key, None)
                self._known.pop(key, None)
            if not self._watches:
                self._stop()

    def close(self) -> None:
        """End all streams, because this process stops."""
        self.closing = True
        for watches in self._watches.values():
            for subscriber in watches:
                subscriber.changed.set()

    def _start(self) -> None:
        if not self._tasks:
            listen = self._wake.listen(self._woken.set)
            self._tasks = [asyncio.create_task(listen), asyncio.create_task(self._run())]

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._woken.wait()
            self._woken.clear()
            try:
                await self._look()
            except (StorageUnavailableError, LockTimeoutError) as error:
                _log.warning("look_deferred", why=type(error).__name__)
            except Exception as error:  # noqa: BLE001 - one bad look must not end all streams
                _log.error("look_failed", exc_info=error)
                await asyncio.sleep(_LOOK_EVERY_S)
            await asyncio.sleep(_LOOK_PAUSE_S)

    async def _look(self) -> None:
        marks = await self._change_markers(list(self._watches))
        for key, mark in marks.items():
            if key in self._watches and self._known.get(key) != mark:
                self._known[key] = mark
                for subscriber in self._watches[key]:
                    subscriber.changed.set()
