"""What is done to cells under load, for how long, and how it is mended."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from drills.cells.scene import Scene
from payintent.storage import migrations_runner

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
    pooled: bool = False  # the cell is behind a pooler
    #: How long its creates may stop, where nothing is away. Then others are not judged: what is
    #: copied uses the same cores, and a merchant that comes to their cell uses their database.
    outage_max_s: float | None = None


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


async def _move_cell(scene: Scene) -> None:
    """Move cell 1 to the spare server, as docs/move-a-cell.md says."""
    assert scene.route is not None  # noqa: S101 - the fault says that it wants one
    route, old = scene.route, scene.servers[1]
    new = route.spare
    await new.start()
    await migrations_runner.migrate(new.url)
    urls = {"PAYINTENT_MOVE_FROM_URL": old.url, "PAYINTENT_MOVE_TO_URL": new.url}
    await scene.command("cell-move", "start", "1", **urls)
    async with asyncio.timeout(_FOLLOWS_S):
        await _following(scene, urls)
    pooler = route.pooler
    said = await scene.command(
        *("cell-move", "finish", "1", "--why", "the drill"),
        *("--pause", pooler.pause, "--resume", pooler.resume),
        *("--switch", pooler.switch_to(new.url)),
        **urls,
        **pooler.environment,
    )
    print(said.strip())
    scene.servers[1], route.spare = new, old


async def _following(scene: Scene, urls: Mapping[str, str]) -> None:
    """Ask until every table follows."""
    while True:
        said = json.loads(await scene.command("cell-move", "status", "1", "--json", **urls))
        if said["follows"]:
            return
        await asyncio.sleep(_BETWEEN_S)


async def _empty_spare(scene: Scene) -> None:
    """Let the server that the cell came from begin anew: it is the next one's target."""
    assert scene.route is not None  # noqa: S101
    await scene.route.spare.forget()


_FOLLOWS_S = 120.0
_BETWEEN_S = 5.0
_HOLD_S = 15.0

FAULTS = (
    Fault("kill-1", "cell 1 killed", 1, _kill(1), _HOLD_S, _start(1)),
    Fault("freeze-1", "cell 1 frozen", 1, _freeze(1), _HOLD_S, _wake(1)),
    Fault("kill-0", "cell 0, control, killed", 0, _kill(0), _HOLD_S, _start(0)),
    Fault("freeze-0", "cell 0, control, frozen", 0, _freeze(0), _HOLD_S, _wake(0)),
    Fault(
        *("move", "merchant moved to cell 0 and back", 1, _move_there_and_back, 0.0, _nothing),
        outage_max_s=2.0,
    ),
    Fault(
        *("move-cell", "cell 1 moved to another server", 1, _move_cell, 10.0, _empty_spare),
        pooled=True,
        outage_max_s=2.0,
    ),
)
