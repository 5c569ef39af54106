from collections.abc import AsyncGenerator, Generator

import aiohttp
import pytest

from tests.sandbox.simulator.conftest import merchant
from tests.sandbox.simulator.simulator_setup import Merchant
from tests.sandbox.twoc2p.emulator_setup import Shop, running_twoc2p

__all__ = ["merchant", "shop", "twoc2p_url"]


@pytest.fixture(scope="session")
def twoc2p_url() -> Generator[str]:
    with running_twoc2p() as url:
        yield url


@pytest.fixture
async def shop(twoc2p_url: str, merchant: Merchant) -> AsyncGenerator[Shop]:
    async with aiohttp.ClientSession() as http:
        yield Shop(http, twoc2p_url, merchant.url)
