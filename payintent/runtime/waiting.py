"""Waits that end early when the process stops."""

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Hashable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


async def wait_until_stopped(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass


async def finish_unless_stopped(work: Awaitable[T], stop: asyncio.Event) -> T | None:
    """Return the result of `work`, or cancel it and return None if `stop` is set first."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return await working if working.done() else None
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


# Requests and logs leave few cycles; the default of 700 objects takes a tenth of the CPU.
_OBJECTS = 50_000


def collect_rarely() -> None:
    """Collect once per 50,000 new objects, and never scan the objects that exist now."""
    gc.freeze()
    gc.set_threshold(_OBJECTS)


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
