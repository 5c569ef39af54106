"""Restrictions and fraud rules as this process knows them: a second old at most."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from payintent.domain.fraud import RuleBook
from payintent.domain.restriction import Restrictions
from payintent.storage import policies
from payintent.storage.database import Database

T = TypeVar("T")


class Policies:
    """Reads them when they are asked for and what is known has become old."""

    def __init__(
        self,
        database: Database,
        kept_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._rules = _Kept(self._read_rules, RuleBook(), kept_s, monotonic)
        self._restrictions = _Kept(self._read_restrictions, Restrictions(), kept_s, monotonic)

    async def rules(self) -> RuleBook:
        """Give the fraud rules in force."""
        return await self._rules.get()

    async def restrictions(self) -> Restrictions:
        """Give the restrictions in force."""
        return await self._restrictions.get()

    async def _read_rules(self, known: RuleBook) -> RuleBook:
        """Read the rules where they are others than those that are known: they may be many."""
        mark = await policies.rules_mark(self._database)
        if mark == known.mark:
            return known
        return RuleBook(await policies.rules(self._database), mark)

    async def _read_restrictions(self, known: Restrictions) -> Restrictions:
        del known
        return policies.effective(await policies.restricted(self._database))


class _Kept(Generic[T]):
    """What is read anew when it has become old; all who wait for that share one reading."""

    def __init__(
        self,
        read: Callable[[T], Awaitable[T]],
        known: T,
        kept_s: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._read = read
        self._known = known
        self._kept_s = kept_s
        self._monotonic = monotonic
        self._old_at: float | None = None  # None: nothing was read yet
        self._reading: asyncio.Task[T] | None = None

    async def get(self) -> T:
        if self._old_at is not None and self._monotonic() < self._old_at:
            return self._known
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_anew())
        return await asyncio.shield(self._reading)

    async def _read_anew(self) -> T:
        asked_at = self._monotonic()
        try:
            self._known = await self._read(self._known)
            self._old_at = asked_at + self._kept_s
        finally:
            self._reading = None
        return self._known
