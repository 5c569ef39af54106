"""The statements that pgbench runs in place of the service are accepted by the schema."""

import asyncio

import pytest

from bench import raw
from payintent_sandbox.postgres import find_binaries
from tests.support.world import World

pytestmark = pytest.mark.full


async def test_pgbench_creates_payments_and_reads_them(world: World) -> None:
    create = await raw.create_script(world.request(), series=1)
    read = await raw.read_script(count=1)
    url = world.service.settings.database_url
    for script in (create, read):
        rate = await asyncio.to_thread(raw.rate, find_binaries(), url, script, 1, 0.01)
        assert rate > 0
    assert len(await world.rows("SELECT FROM payment")) == 1
