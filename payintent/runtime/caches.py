"""In-memory caches whose values expire."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class TtlCache(Generic[T]):
    """A cached value. Concurrent callers share a refresh, and wait for it in `wait_context()`."""

    def __init__(
        self,
        read: Callable[[T], Awaitable[T]],
        value: T,
        ttl_s: float,
        monotonic: Callable[[], float],
        wait_context: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        self._wait_context = wait_context
        self._read = read
        self._value = value
        self._ttl_s = ttl_s
        self._monotonic = monotonic
        self._expires_at: float | None = None  # None if not yet read, or invalidated
        self._refresh_task: asyncio.Task[T] | None = None

    def invalidate(self) -> None:
        """Discard the value, and the result of a refresh that may have read an older value."""
        self._expires_at = None
        self._refresh_task = None

    async def get(self) -> T:
        """Return the value, which is at most `ttl_s` old. Exceptions from `read` are propagated."""
        if self._expires_at is not None and self._monotonic() < self._expires_at:
            return self._value
        with self._wait_context() if self._wait_context else nullcontext():
            if self._refresh_task is None:
                self._refresh_task = asyncio.create_task(self._refresh_value())
            return await asyncio.shield(self._refresh_task)

    async def _refresh_value(self) -> T:
        task, started_at = asyncio.current_task(), self._monotonic()
        try:
            value = await self._read(self._value)
            if self._refresh_task is task:
                self._value, self._expires_at = value, started_at + self._ttl_s
        finally:
            if self._refresh_task is task:
                self._refresh_task = None
        return value


class TtlMap(Generic[K, T]):
    """Cached values by key. The map is cleared when it is full."""

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
