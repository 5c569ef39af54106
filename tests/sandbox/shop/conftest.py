from collections.abc import AsyncGenerator

import aiohttp
import pytest

from tests.sandbox.shop.shop_setup import Api, Visitor, running_api, running_shop
from tests.support.ports import free_port as find_free_port


@pytest.fixture
async def api() -> AsyncGenerator[Api]:
    async with running_api() as api:
        yield api


@pytest.fixture
async def visitor(api: Api) -> AsyncGenerator[Visitor]:
    async with running_shop(api.url) as url, aiohttp.ClientSession() as http:
        yield Visitor(http, url)


@pytest.fixture
def free_port() -> int:
    return find_free_port()
