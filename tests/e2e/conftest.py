"""Provide each module with a sandbox in separate processes, and with merchants."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import nullcontext

import aiohttp
import asyncpg
import pytest

from payintent.merchants.operations import CreateMerchant
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.e2e.merchant import Merchant, Receiver, move_clock
from tests.e2e.sandbox import Sandbox, running_sandbox
from tests.support.chain_fixtures import anvil as anvil
from tests.support.chain_fixtures import chain_url as chain_url
from tests.support.collector import Collector
from tests.support.world import ACTOR

NewMerchant = Callable[..., Awaitable[Merchant]]


@pytest.fixture(scope="module")
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A sandbox with the module's `SIM_TIME_SCALE`.

    Its traces go to the module's `COLLECTOR`, if any. It has no chains if `CHAINS` is False, and
    warm-started processes if `WARM` is True.
    """
    scale = getattr(request.module, "SIM_TIME_SCALE", 20)
    chains: bool = getattr(request.module, "CHAINS", True)
    warm: bool = getattr(request.module, "WARM", False)
    collector: Collector | None = getattr(request.module, "COLLECTOR", None)
    with (
        collector.collecting() if collector else nullcontext({}) as environment,
        running_sandbox(scale, environment=environment, chains=chains, warm=warm) as running,
    ):
        yield running


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=30)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        yield session


@pytest.fixture
async def database(sandbox: Sandbox) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(
        sandbox.dev_json["database_url"], min_size=1, max_size=4
    ) as pool:
        yield pool
        await move_clock(pool, 0)


@pytest.fixture
async def new_merchant(
    sandbox: Sandbox, http: aiohttp.ClientSession, database: asyncpg.Pool
) -> AsyncIterator[NewMerchant]:
    """Create merchants, each with a running receiver, unless `listening=False`."""
    receivers: list[Receiver] = []
    settings = Settings(_env_file=sandbox.settings_file)  # type: ignore[call-arg]
    service = await open_service(settings)

    async def make(*, listening: bool = True) -> Merchant:
        receiver = Receiver()
        receivers.append(receiver)
        await receiver.start()
        new = await service.run_operation(
            CreateMerchant(
                name="Paper Lantern",
                callback_url=receiver.url if listening else None,
                methods="all",
            ),
            ACTOR,
        )
        return Merchant(
            sandbox=sandbox,
            http=http,
            database=database,
            receiver=receiver,
            id=new.merchant.id,
            api_key=new.api_key,
            secret=new.callback_secret,
            service=service,
        )

    yield make
    await asyncio.gather(*(item.stop() for item in receivers))
    await service.close()


@pytest.fixture
async def merchant(new_merchant: NewMerchant) -> Merchant:
    return await new_merchant()
