"""The world's test merchant, and the actions of its key at the test gateway."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.methods_operations import ListPaymentMethods
from payintent.payments import sessions_store as session_store
from tests.support.world import Answer, Api, World


@pytest.fixture
async def side(api: Api) -> AsyncIterator[Api]:
    """Yield an API client with a test key of the world's merchant."""
    async with Api(api.base, await _test_world(api.world)) as side:
        yield side


async def _test_world(world: World) -> World:
    issued = await world.perform(IssueApiKey(merchant_id=world.merchant_id, test=True))
    [method, *_] = await world.perform(ListPaymentMethods(merchant_id=issued.merchant_id))
    return replace(
        world,
        merchant_id=issued.merchant_id,
        api_key=issued.api_key,
        account_id=method.account_id,
        card=method.id,
    )


async def act(
    side: Api, created: Answer, action: str, key: str | None = None, **body: Any
) -> Answer:
    headers = side.bearer() | ({"Idempotency-Key": key} if key else {})
    path = f"/v1/test/payments/{created.json['id']}/{action}"
    return await side.send("POST", path, json=body, headers=headers)


async def inquire(side: Api) -> None:
    """Inquire about all sessions, as if they were due."""
    await side.world.rows("UPDATE session SET inquire_at = clock() WHERE life <> 'ended'")
    service = side.world.service
    for due in await session_store.claim_due(side.world.database, 10, 60.0, []):
        await service.session_inquirer.inquire(due)


async def advance(side: Api, seconds: int) -> None:
    path = "/v1/test/clock/advance"
    answer = await side.send("POST", path, json={"seconds": seconds}, headers=side.bearer())
    assert answer.status == 200
