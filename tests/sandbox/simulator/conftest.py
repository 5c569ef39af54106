from collections.abc import AsyncGenerator, Generator

import aiohttp
import pytest

from tests.sandbox.simulator.simulator_setup import (
    Merchant,
    Shop,
    receiving_merchant,
    running_simulator,
)


@pytest.fixture(scope="session")
def simulator_url() -> Generator[str]:
    with running_simulator() as url:
        yield url


@pytest.fixture(scope="session")
def slow_simulator_url() -> Generator[str]:
    """A simulator with such long delays that tests must trigger delayed events."""
    with running_simulator(scale=0.01) as url:
        yield url


@pytest.fixture
async def merchant() -> AsyncGenerator[Merchant]:
    async with receiving_merchant() as merchant:
        yield merchant


@pytest.fixture
async def shop(simulator_url: str, merchant: Merchant) -> AsyncGenerator[Shop]:
    async with aiohttp.ClientSession() as http:
        shop = Shop(http, simulator_url, merchant.url)
        yield shop
        await shop.set_rules()


@pytest.fixture
async def slow_shop(slow_simulator_url: str, merchant: Merchant) -> AsyncGenerator[Shop]:
    async with aiohttp.ClientSession() as http:
        yield Shop(http, slow_simulator_url, merchant.url)
