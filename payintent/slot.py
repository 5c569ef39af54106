"""Admission slots, which a request releases before it waits for an external server.

Slots limit the concurrent work of a process. A request that waits for a gateway, an image host, a
name server or a chain endpoint does no work, so it must not occupy a slot.
"""

from collections import Counter
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from contextvars import ContextVar

#: Releases the slot of the current request; None outside a request.
release_of_request: ContextVar[Callable[[], None] | None] = ContextVar(
    "release_of_request", default=None
)


def release_slot() -> None:
    """Release the slot of the current request, which continues without a slot.

    Clients of external servers call this before they send. Requests that share a task call it
    before they wait, because the task only releases the slot of the request that started it.
    """
    if (release := release_of_request.get()) is not None:
        release()


class Waiters:
    """Counts the requests or calls that wait for an external server, by key."""

    def __init__(self) -> None:
        self._counts: Counter[Hashable] = Counter()

    def __getitem__(self, key: Hashable) -> int:
        return self._counts[key]

    @contextmanager
    def count(self, *keys: Hashable) -> Generator[int]:
        """Count a waiter inside the block; yields the previous number for the first key."""
        previous = self._counts[keys[0]]
        self._counts.update(keys)
        try:
            yield previous
        finally:
            for key in keys:
                self._counts[key] -= 1
                if not self._counts[key]:
                    del self._counts[key]
