"""Fixtures for the tests of the SDKs."""

from collections.abc import AsyncIterator

import pytest

from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.operations import SetCallbackUrl
from tests.support.ports import free_port
from tests.support.workers import working
from tests.support.world import Api

Side = dict[str, str]


@pytest.fixture
async def side(api: Api) -> AsyncIterator[Side]:
    """Start a worker for a test merchant; yield the environment for a shop's tests."""
    issued = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    port = free_port()
    url = f"http://127.0.0.1:{port}/hooks"
    await api.world.perform(SetCallbackUrl(merchant_id=issued.merchant_id, callback_url=url))
    async with working(api.world.service):
        yield {
            "PAYINTENT_URL": api.base,
            "PAYINTENT_API_KEY": issued.api_key,
            "PAYINTENT_WEBHOOK_SECRET": issued.callback_secret,
            "PAYINTENT_WEBHOOK_PORT": str(port),
        }
