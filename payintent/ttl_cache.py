"""A value that is read from the database now and then, and shared meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class TtlCache(Generic[T]):
    """What is read anew when it has become old; all who wait for that share one reading."""

    def __init__(
        self,
        read: Callable[[T], Awaitable[T]],
        value: T,
        kept_s: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._read = read
        self._value = value
        self._kept_s = kept_s
        self._monotonic = monotonic
        self._old_at: float | None = None  # None: nothing was read yet
        self._reading: asyncio.Task[T] | None = None

    def invalidate(self) -> None:
        """Read anew at the next question."""
        self._old_at = None

    async def get(self) -> T:
        """Give it."""
        if self._old_at is not None and self._monotonic() < self._old_at:
            return self._value
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_anew())
        return await asyncio.shield(self._reading)

    async def _read_anew(self) -> T:
        asked_at = self._monotonic()
        try:
            self._value = await self._read(self._value)
            self._old_at = asked_at + self._kept_s
        finally:
            self._reading = None
        return self._value
