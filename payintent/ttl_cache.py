"""Values that are read from the database now and then, and kept in memory meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class TtlCache(Generic[T]):
    """A cached value with a time to live; concurrent callers share one refresh.

    Whoever waits for it waits inside `waiting()`, if that is given.
    """

    def __init__(
        self,
        read: Callable[[T], Awaitable[T]],
        value: T,
        ttl_s: float,
        monotonic: Callable[[], float],
        waiting: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        self._waiting = waiting
        self._read = read
        self._value = value
        self._ttl_s = ttl_s
        self._monotonic = monotonic
        self._expires_at: float | None = None  # None: nothing was read yet, or it is invalidated
        self._refresh: asyncio.Task[T] | None = None

    def invalidate(self) -> None:
        """Have the next `get` read the value again."""
        self._expires_at = None

    async def get(self) -> T:
        """Give the value, at most `ttl_s` old; raises what reading it raises."""
        if self._expires_at is not None and self._monotonic() < self._expires_at:
            return self._value
        if self._waiting is None:
            return await self._refreshed()
        with self._waiting():
            return await self._refreshed()

    async def _refreshed(self) -> T:
        if self._refresh is None:
            self._refresh = asyncio.create_task(self._read_again())
        return await asyncio.shield(self._refresh)

    async def _read_again(self) -> T:
        started_at = self._monotonic()
        try:
            self._value = await self._read(self._value)
            self._expires_at = started_at + self._ttl_s
        finally:
            self._refresh = None
        return self._value


class TtlMap(Generic[K, T]):
    """Cached values by key, each with the same time to live; a full map is emptied."""

    def __init__(self, ttl_s: float, entries_max: int, monotonic: Callable[[], float]) -> None:
        self._ttl_s = ttl_s
        self._entries_max = entries_max
        self._monotonic = monotonic
        self._entries: dict[K, tuple[float, T]] = {}

    def get(self, key: K) -> T | None:
        """Give the value of a key, None where there is none or it has expired."""
        entry = self._entries.get(key)
        return entry[1] if entry is not None and self._monotonic() < entry[0] else None

    def set(self, key: K, value: T) -> None:
        """Keep a value for `ttl_s` seconds."""
        if len(self._entries) >= self._entries_max:
            self._entries.clear()
        self._entries[key] = (self._monotonic() + self._ttl_s, value)

    def remove(self, key: K) -> None:
        """Forget a key's value, if there is one."""
        self._entries.pop(key, None)
