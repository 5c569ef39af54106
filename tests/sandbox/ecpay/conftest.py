from collections.abc import AsyncGenerator, Generator

import aiohttp
import pytest

from tests.sandbox.ecpay.emulator_setup import Buyer, Ear, Shop, listening, running_ecpay


@pytest.fixture(scope="session")
def ecpay_url() -> Generator[str]:
    with running_ecpay() as url:
        yield url


@pytest.fixture
async def ear() -> AsyncGenerator[Ear]:
    async with listening() as ear:
        yield ear


@pytest.fixture
async def shop(ecpay_url: str, ear: Ear) -> AsyncGenerator[Shop]:
    async with aiohttp.ClientSession() as http:
        yield Shop(Buyer(http, ecpay_url), ear)
