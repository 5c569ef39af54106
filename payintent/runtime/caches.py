"""In-memory caches whose values expire."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class TtlCache(Generic[T]):
    """A cached value; concurrent callers share a refresh, and wait for it inside `waiting()`."""

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
        self._expires_at: float | None = None  # None: not read yet, or invalidated
        self._refresh: asyncio.Task[T] | None = None

    def invalidate(self) -> None:
        self._expires_at = None

    async def get(self) -> T:
        """Return the value, at most `ttl_s` old; exceptions of `read` propagate."""
        if self._expires_at is not None and self._monotonic() < self._expires_at:
            return self._value
        with self._waiting() if self._waiting else nullcontext():
            if self._refresh is None:
                self._refresh = asyncio.create_task(self._read_value())
            return await asyncio.shield(self._refresh)

    async def _read_value(self) -> T:
        started_at = self._monotonic()
        try:
            self._value = await self._read(self._value)
            self._expires_at = started_at + self._ttl_s
        finally:
            self._refresh = None
        return self._value


class TtlMap(Generic[K, T]):
    """Cached values by key; a full map is cleared."""

    def __init__(self, ttl_s: float, entries_max: int, monotonic: Callable[[], float]) -> None:
        self._ttl_s = ttl_s
        self._entries_max = entries_max
        self._monotonic = monotonic
        self._entries: dict[K, tuple[float, T]] = {}

    def get(self, key: K) -> T | None:
        entry = self._entries.get(key)
        return entry[1] if entry is not None and self._monotonic() < entry[0] else None

    def set(self, key: K, value: T) -> None:
        if len(self._entries) >= self._entries_max:
            self._entries.clear()
        self._entries[key] = (self._monotonic() + self._ttl_s, value)

    def remove(self, key: K) -> None:
        self._entries.pop(key, None)
