"""Concurrency helpers: interruptible waits, request slots, garbage collection and open files."""

import asyncio
import gc
import resource
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Hashable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


async def wait_for_event(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, but not longer than `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


async def finish_unless_stopped(work: Awaitable[T], stop: asyncio.Event) -> T | None:
    """Return the result of `work`, or cancel it and return None if `stop` is set first."""
    work_task = asyncio.ensure_future(work)
    stop_task = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({work_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
        return await work_task if work_task.done() else None
    finally:
        for task in (work_task, stop_task):
            task.cancel()
        await asyncio.gather(work_task, stop_task, return_exceptions=True)


# Requests and logs leave few reference cycles. The default, 700 objects, costs 10 % of CPU time.
_COLLECT_AFTER_OBJECTS = 50_000


def tune_garbage_collector() -> None:
    """Collect garbage once per 50,000 new objects, and never scan the objects that exist now."""
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER_OBJECTS)


_SPARE_FILES = 256  # file descriptors for the database, gateways and files


def raise_file_limit(connection_count: int) -> int:
    """Raise the open file limit if necessary, and return how many connections it allows."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    new_limit = connection_count + _SPARE_FILES
    if hard_limit != resource.RLIM_INFINITY:
        new_limit = min(new_limit, hard_limit)
    if soft_limit != resource.RLIM_INFINITY and soft_limit < new_limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard_limit))
    return max(1, new_limit - _SPARE_FILES)


#: Releases the slot of the current request; None outside a request.
current_slot_release: ContextVar[Callable[[], None] | None] = ContextVar(
    "current_slot_release", default=None
)


def release_slot() -> None:
    """Release the current request's slot; the request itself continues.

    Clients of external servers call this before they send a request. Requests that wait for a
    shared task also call it, because the task releases only the slot of the request that started
    it.
    """
    if (release := current_slot_release.get()) is not None:
        release()


class Waiters:
    """Counts the calls that wait for an external server, by key."""

    def __init__(self) -> None:
        self._counts: Counter[Hashable] = Counter()

    def __getitem__(self, key: Hashable) -> int:
        return self._counts[key]

    @contextmanager
    def count(self, *keys: Hashable) -> Generator[int]:
        """Count a waiter while the block runs. Yields the previous count of the first key."""
        previous = self._counts[keys[0]]
        self._counts.update(keys)
        try:
            yield previous
        finally:
            for key in keys:
                self._counts[key] -= 1
                if not self._counts[key]:
                    del self._counts[key]
