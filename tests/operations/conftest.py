from collections.abc import AsyncIterator

import pytest

from tests.operations.stage import Stage, out_of_the_sandbox
from tests.operations.staging import StageTemplate, stage_of
from tests.support.world import World


@pytest.fixture
async def stage(world: World, staged: StageTemplate | None) -> AsyncIterator[Stage]:
    """What the examples of all operations name, in an installation that is no sandbox."""
    async with out_of_the_sandbox(world) as service:
        yield await stage_of(staged, world, service)
