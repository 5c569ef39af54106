"""An emulator's clock: delays that can be shortened, and the background tasks that use them."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any


class ScaledClock:
    """Divides delays by a scale, and runs background tasks that stop with the emulator."""

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale
        self._tasks: set[asyncio.Task[Any]] = set()

    async def wait(self, delay_s: float) -> None:
        """Wait for a delay divided by the scale."""
        await _wait_until(time.monotonic, time.monotonic() + delay_s / self._scale)

    async def wait_until(self, moment: datetime) -> None:
        """Wait until a time on the real clock, ignoring the scale."""
        await _wait_until(time.time, moment.timestamp())

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; the event loop logs its failure."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Cancel all background tasks."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _wait_until(clock: Callable[[], float], due: float) -> None:
    # An event loop may round a timer down and wake too early, so the remaining time is read again.
    while (left := due - clock()) > 0:  # noqa: ASYNC110 - a clock does not set an event
        await asyncio.sleep(left)
