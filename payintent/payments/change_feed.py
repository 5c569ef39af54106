"""Notifies open checkout streams of changes: one query at a time for all of them.

Commits that record an event wake it; other changes are found within a second.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from uuid import UUID

from payintent.domain.errors import (
    ErrorCode,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.log import get_logger
from payintent.storage import payment_changes
from payintent.storage.database import Database
from payintent.storage.event_notify import EventNotifier

_log = get_logger("lookout")
OF_ONE_MAX = 5  # of one checkout
_ALL_MAX = 10_000  # of this process
_LOOK_EVERY_S = 1.0
_LOOK_PAUSE_S = 0.05  # wake-ups within this time are one


@dataclass(eq=False, slots=True)
class ChangeSubscriber:
    """A subscriber to the changes of one payment."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)


class ChangeFeed:
    """The subscribers of this process; nothing runs while there are none."""

    def __init__(self, database: Database, wake: EventNotifier) -> None:
        self._database = database
        self._wake = wake
        self._watches: dict[UUID, set[ChangeSubscriber]] = {}
        self._known: dict[UUID, str] = {}
        self._woken = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.closing = False

    @property
    def count(self) -> int:
        """Return the number of subscribers in this process."""
        return sum(len(watches) for watches in self._watches.values())

    def require_capacity(self, payment_id: UUID) -> None:
        """Raise `RATE_LIMITED` where a payment, or the process, has enough subscribers."""
        watches = self._watches.get(payment_id, ())
        if len(watches) >= OF_ONE_MAX or self.count >= _ALL_MAX:
            raise RefusedError(ErrorCode.RATE_LIMITED, "too many streams are open", retry_after_s=5)

    @contextmanager
    def subscribe(self, payment_id: UUID, subscriber: ChangeSubscriber) -> Generator[None]:
        """Subscribe to a payment's changes while the context is open."""
        watches = self._watches.setdefault(payment_id, set())
        watches.add(subscriber)
        self._known.pop(payment_id, None)  # a new subscriber must get a present change
        self._start()
        try:
            yield
        finally:
            watches.discard(subscriber)
            if not watches:
                self._watches.pop(payment_id, None)
                self._known.pop(payment_id, None)
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
            await asyncio.sleep(_LOOK_PAUSE_S)

    async def _look(self) -> None:
        """Notify the subscribers whose payment has changed since the last look, and new ones."""
        marks = await payment_changes.change_markers(self._database, list(self._watches))
        for payment_id, mark in marks.items():
            if payment_id in self._watches and self._known.get(payment_id) != mark:
                self._known[payment_id] = mark
                for subscriber in self._watches[payment_id]:
                    subscriber.changed.set()
