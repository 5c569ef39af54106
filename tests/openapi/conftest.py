from collections.abc import AsyncIterator

import pytest

from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.contracts import contract_service
from tests.support.fakes import FakeGateway


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    """The usual service, with the adapter for on-chain payments."""
    async with contract_service(settings, gateway) as service:
        yield service
