"""Things that happen after a while, in a time that may run faster than the real one."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any


class Later:
    """Scaled waiting, and the tasks that wait."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._tasks: set[asyncio.Task[Any]] = set()

    async def wait(self, delay_s: float) -> None:
        """Wait for a delay divided by the scale; an event loop may wake too early."""
        due = time.monotonic() + delay_s / self._scale
        while (left := due - time.monotonic()) > 0:  # noqa: ASYNC110 - a clock sets no event
            await asyncio.sleep(left)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something in the background; its failure ends up in the event loop's log."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Drop whatever still waits."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
