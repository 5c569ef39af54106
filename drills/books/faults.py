"""Kill processes and the feed reader, and stop merchants' servers, during the drill."""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from drills.books.receiver import Receivers
from drills.processes import Program
from tests.e2e.sandbox import Sandbox

_LOOK_S = 0.1
_BETWEEN_S = (3.0, 12.0)  # between two kills of the same process
_READER_BETWEEN_S = (1.0, 6.0)
_DOWN_S = 20.0


@dataclass(slots=True)
class Faults:
    """Injects faults until it is cancelled, and counts the kills."""

    sandbox: Sandbox
    folder: Path
    receivers: Receivers
    shops: int
    kills: Counter[str] = field(default_factory=Counter[str])
    reader: Program = field(init=False)

    def __post_init__(self) -> None:
        command = [sys.executable, "-m", "drills.books.reader", str(self.folder)]
        self.reader = Program("reader", command, {}, self.folder)

    async def run(self) -> None:
        await self.reader.start()
        async with asyncio.TaskGroup() as work:
            for name in ("api", "worker"):
                work.create_task(self._kill_service(name))
            work.create_task(self._kill_reader())
            work.create_task(self._take_receivers_down())

    async def _kill_service(self, name: str) -> None:
        """Kill a sandbox process repeatedly. Its supervisor restarts it."""
        killed, wait_s = 0, random.uniform(*_BETWEEN_S)
        while True:
            await asyncio.sleep(wait_s)
            pid = self.sandbox.child(name)
            wait_s = _LOOK_S
            if pid not in (0, killed):
                os.kill(pid, signal.SIGKILL)
                killed, wait_s = pid, random.uniform(*_BETWEEN_S)
                self.kills[name] += 1

    async def _kill_reader(self) -> None:
        while True:
            await asyncio.sleep(random.uniform(*_READER_BETWEEN_S))
            await self.reader.kill()
            self.kills["reader"] += 1
            await self.reader.start()

    async def _take_receivers_down(self) -> None:
        """Repeatedly take down a random fifth of the merchants' servers."""
        while True:
            shop_numbers = random.sample(range(self.shops), max(1, self.shops // 5))
            self.receivers.down = set(shop_numbers)
            await asyncio.sleep(_DOWN_S)
