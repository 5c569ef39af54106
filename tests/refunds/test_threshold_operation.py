"""An operator's on-chain refund needs approval if the merchant's refund would."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from payintent.approvals.operations import Approve
from payintent.core import ids
from payintent.core.errors import RefusedError
from payintent.payments.model import Payment
from payintent.refunds.operations import RefundPayment
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.contracts import (
    RECEIVER,
    bill,
    contract_service,
    log_of,
    offer_tokens,
    record_final_logs,
)
from tests.support.fakes import FakeGateway
from tests.support.stage import ADA, ALAN
from tests.support.world import World


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


@pytest.fixture
async def paid(world: World) -> Payment:
    methods = await offer_tokens(world)
    payment, session = await bill(world, methods["NATIVED"])
    await record_final_logs(world, log_of(session))
    assert await world.status(payment) == "PAID"
    return payment


async def refund(world: World, payment: Payment, **more: Any) -> Any:
    asked = RefundPayment(payment_id=ids.format_id(ids.PAYMENT, payment.id), **more)
    return await world.service.submit(asked, ADA)


async def test_a_refund_below_the_threshold_goes_to_the_payer_immediately(
    world: World, paid: Payment
) -> None:
    made = await refund(world, paid)
    assert (made.step, made.destination) == ("queued", made.payer)


@pytest.mark.parametrize("why", ["above the threshold", "to another address"])
async def test_a_refund_above_the_threshold_or_to_another_address_needs_approval(
    world: World, paid: Payment, why: str
) -> None:
    more: dict[str, Any] = {"destination": RECEIVER}
    if why == "above the threshold":
        await world.rows("UPDATE chain SET refund_approval_above = 0")
        more = {}
    made = await refund(world, paid, **more)
    assert (made.step, made.requested_by) == ("approval", "Ada")
    agree = Approve(approval_id=made.id, note="as agreed on the phone")
    with pytest.raises(RefusedError, match="an operator other than 'Ada'"):
        await world.service.run_operation(agree, ADA)
    approved = await world.service.run_operation(agree, ALAN)
    assert (approved.result["step"], approved.result["approved_by"]) == ("queued", "Alan")
