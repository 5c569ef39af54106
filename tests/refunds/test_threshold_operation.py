"""An on-chain refund by an operator needs approval under the same conditions as a merchant's."""

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
from tests.support.operation_examples import ADA, ALAN
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


async def submit_refund(world: World, payment: Payment, **more: Any) -> Any:
    operation = RefundPayment(payment_id=ids.format_id(ids.PAYMENT, payment.id), **more)
    return await world.service.submit(operation, ADA)


async def test_a_refund_below_the_threshold_goes_to_the_payer_immediately(
    world: World, paid: Payment
) -> None:
    refund_view = await submit_refund(world, paid)
    assert (refund_view.step, refund_view.destination) == ("queued", refund_view.payer)


@pytest.mark.parametrize("reason", ["above the threshold", "to another address"])
async def test_a_refund_above_the_threshold_or_to_another_address_needs_approval(
    world: World, paid: Payment, reason: str
) -> None:
    fields: dict[str, Any] = {"destination": RECEIVER}
    if reason == "above the threshold":
        await world.rows("UPDATE chain SET refund_approval_above = 0")
        fields = {}
    refund_view = await submit_refund(world, paid, **fields)
    assert (refund_view.step, refund_view.requested_by) == ("approval", "Ada")
    approval = Approve(approval_id=refund_view.id, note="as agreed on the phone")
    with pytest.raises(RefusedError, match="an operator other than 'Ada'"):
        await world.service.run_operation(approval, ADA)
    result = await world.service.run_operation(approval, ALAN)
    assert (result.result["step"], result.result["approved_by"]) == ("queued", "Alan")
