from collections.abc import AsyncIterator

import pytest

from tests.operations.stage import Stage, out_of_the_sandbox
from tests.operations.staging import StageTemplate, stage_of
from tests.support.copying import Pair, make_pair
from tests.support.databases import Databases
from tests.support.world import World


@pytest.fixture
async def stage(world: World, staged: StageTemplate | None) -> AsyncIterator[Stage]:
    """What the examples of all operations name, in an installation that is no sandbox."""
    async with out_of_the_sandbox(world) as service:
        yield await stage_of(staged, world, service)


@pytest.fixture
async def pair(world: World, databases: Databases) -> AsyncIterator[Pair]:
    """Control with a merchant, and a cell into which nothing was copied yet."""
    url = databases.take()
    made = await make_pair(world.service.settings, world.service.database, url)
    yield made
    await made.close()
    databases.give_back(url)
