"""The arguments of the programs that use generated clients."""

import pytest

from payintent.fraud.model import FraudRuleKind
from payintent.fraud.operations import AddFraudRule
from tests.clients.expected_results import DENIED
from tests.refunds.requests import create_paid
from tests.support.world import Api


@pytest.fixture
async def uses(api: Api) -> list[str]:
    """A program's input: the service, a key, a payment to refund and a buyer to deny."""
    payment = await create_paid(api)
    await api.world.perform(AddFraudRule(kind=FraudRuleKind.PAYER, value=DENIED))
    return [api.base, api.world.api_key, payment.json["id"], DENIED]
