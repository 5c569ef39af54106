"""Whoever looks at a checkout is told when it changes: one question a moment for all who look.

Commits wake it where they record an event; whatever else changes is seen a second later.
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
_LOOK_PAUSE_S = 0.05  # wake-ups in between are one


@dataclass(eq=False, slots=True)
class ChangeSubscriber:
    """One who looks at one payment."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)


class ChangeFeed:
    """Who looks at what in this process; nothing runs while nobody does."""

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
        """Count who looks."""
        return sum(len(watches) for watches in self._watches.values())

    def require_capacity(self, payment_id: UUID) -> None:
        """Refuse (`RATE_LIMITED`) one more who looks where enough others do."""
        watches = self._watches.get(payment_id, ())
        if len(watches) >= OF_ONE_MAX or self.count >= _ALL_MAX:
            raise RefusedError(ErrorCode.RATE_LIMITED, "too many streams are open", retry_after_s=5)

    @contextmanager
    def subscribe(self, payment_id: UUID, subscriber: ChangeSubscriber) -> Generator[None]:
        """Look at a payment."""
        watches = self._watches.setdefault(payment_id, set())
        watches.add(subscriber)
        self._known.pop(payment_id, None)  # whoever is new must hear of what is changing now
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
        """Let all streams end, for this process does."""
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
        """Tell those whose payment is not as it was at the last look; a first look tells too."""
        marks = await payment_changes.change_markers(self._database, list(self._watches))
        for payment_id, mark in marks.items():
            if payment_id in self._watches and self._known.get(payment_id) != mark:
                self._known[payment_id] = mark
                for subscriber in self._watches[payment_id]:
                    subscriber.changed.set()
