"""What is done to cells under load, for how long, and how it is mended."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from drills.cells.scene import Scene

Step = Callable[[Scene], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something done to one cell; it is mended after `hold_s`."""

    name: str
    title: str
    cell: int  # whose merchant feels it
    begin: Step
    hold_s: float
    end: Step


async def _nothing(_: Scene) -> None:
    await asyncio.sleep(0)


def _kill(cell: int) -> Step:
    return lambda scene: scene.servers[cell].kill()


def _start(cell: int) -> Step:
    return lambda scene: scene.servers[cell].start()


def _freeze(cell: int) -> Step:
    return lambda scene: scene.servers[cell].freeze()


def _wake(cell: int) -> Step:
    return lambda scene: scene.servers[cell].wake()


async def _move_there_and_back(scene: Scene) -> None:
    """Move the merchant of cell 1 to cell 0, and back."""
    merchant = str(scene.shops[1].merchant_id)
    await scene.command("merchant", "move", merchant, "--to", "0")
    await asyncio.sleep(_BETWEEN_S)
    await scene.command("merchant", "move", merchant, "--to", "1")


_BETWEEN_S = 5.0
_HOLD_S = 15.0

FAULTS = (
    Fault("kill-1", "cell 1 killed", 1, _kill(1), _HOLD_S, _start(1)),
    Fault("freeze-1", "cell 1 frozen", 1, _freeze(1), _HOLD_S, _wake(1)),
    Fault("kill-0", "cell 0, control, killed", 0, _kill(0), _HOLD_S, _start(0)),
    Fault("freeze-0", "cell 0, control, frozen", 0, _freeze(0), _HOLD_S, _wake(0)),
    Fault("move", "merchant moved to cell 0 and back", 1, _move_there_and_back, 0.0, _nothing),
)
