from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from tests.reconciliation.stripe_shop import Shop
from tests.support.stripe import running_stripe
from tests.support.world import World


@pytest.fixture
def stripe_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_stripe(tmp_path_factory.mktemp("stripe") / "log") as url:
        yield url


@pytest.fixture
async def shop(world: World, stripe_url: str) -> AsyncIterator[Shop]:
    async with aiohttp.ClientSession() as http:
        shop = Shop(world, stripe_url, http)
        await shop.open()
        yield shop
