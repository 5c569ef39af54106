from collections.abc import AsyncIterator

import pytest

from payintent.service import Service
from tests.support.operation_examples import Stage, open_outside_sandbox
from tests.support.operation_staging import StageTemplate, stage_of
from tests.support.world import World


@pytest.fixture
async def production(world: World) -> AsyncIterator[Service]:
    """A service outside the sandbox: changes need a reason, and some changes need approval."""
    async with open_outside_sandbox(world) as service:
        yield service


@pytest.fixture
async def stage(world: World, production: Service, staged: StageTemplate | None) -> Stage:
    return await stage_of(staged, world, production)
