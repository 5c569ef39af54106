from collections.abc import AsyncIterator

import pytest

from tests.operations.stage import Stage, make_stage, out_of_the_sandbox
from tests.support.world import World


@pytest.fixture
async def stage(world: World) -> AsyncIterator[Stage]:
    """What the examples of all operations name, in an installation that is no sandbox."""
    async with out_of_the_sandbox(world) as service:
        yield await make_stage(world, service)
