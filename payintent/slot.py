"""The admission slot of the request that runs, released before it waits for an outsider.

Slots bound the work that a process does at once. A request that waits for a gateway, an image host,
a name server or a chain's endpoint does no work, so it must not hold a slot that others need.
"""

from collections import Counter
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from contextvars import ContextVar

#: Releases the slot of the request that runs; None outside a request.
release_of_request: ContextVar[Callable[[], None] | None] = ContextVar(
    "release_of_request", default=None
)


def release_slot() -> None:
    """Release the slot of the request that runs; it goes on without one to its end.

    Every client of an outside server calls this before it sends, and whoever shares another
    request's wait before waiting: a task's context has the slot of the request that began it.
    """
    if (release := release_of_request.get()) is not None:
        release()


class Waiters:
    """How many requests or calls wait for an outsider now, by any key."""

    def __init__(self) -> None:
        self._counts: Counter[Hashable] = Counter()

    def __getitem__(self, key: Hashable) -> int:
        return self._counts[key]

    @contextmanager
    def count(self, *keys: Hashable) -> Generator[int]:
        """Count a waiter inside the block; gives how many others had the first key before."""
        others = self._counts[keys[0]]
        self._counts.update(keys)
        try:
            yield others
        finally:
            for key in keys:
                self._counts[key] -= 1
                if not self._counts[key]:
                    del self._counts[key]
