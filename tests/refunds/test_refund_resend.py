"""Two operators can resend a refund that was handed over, but only if it was not executed."""

from uuid import uuid4

import pytest

from payintent.approvals.operations import Approve, ShowApproval
from payintent.chains.operations import AddContract
from payintent.core import ids
from payintent.core.access import Role
from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateways.port import RefundReport
from payintent.operators.operation import Actor
from payintent.operators.proposals_store import Proposal
from payintent.payments.model import Payment
from payintent.refunds.model import Refund, RefundStatus
from payintent.refunds.operations import ResendRefund
from payintent.refunds.send import HAND_OVER_AFTER_S
from tests.refunds.refund_gateway import NOT_CONTACTED, TIMED_OUT, RefundGateway, set_capabilities
from tests.refunds.refund_setup import (
    ABSENT,
    DONE,
    PENDING,
    create_paid_payment,
    process_due_refunds,
    read_refund,
    request_refund,
    seconds_until_due,
    send_refund_callback,
)
from tests.support.contracts import CONTRACT, RECEIVER
from tests.support.fakes import FakeGateway
from tests.support.operation_examples import ADA, ALAN
from tests.support.world import World


@pytest.fixture
def gateway() -> FakeGateway:
    return RefundGateway()


@pytest.fixture
async def handed_over(world: World) -> tuple[Payment, Refund]:
    """A refund that was handed over, because its gateway did not respond for a week."""
    for name in ("Ada", "Alan"):
        await world.operator_token(name)
    payment = await create_paid_payment(world)
    world.gateway.answer_refund = world.gateway.answer_inquire_refund = TIMED_OUT
    refund = await request_refund(world, payment)
    await process_due_refunds(world)
    await wait_for_handover(world, refund)
    return payment, refund


async def wait_for_handover(world: World, refund: Refund, weeks: int = 1) -> None:
    await world.move_clock(weeks * (HAND_OVER_AFTER_S + 60))
    await process_due_refunds(world)
    assert await seconds_until_due(world, refund) is None


def make_resend(refund: Refund) -> ResendRefund:
    return ResendRefund(refund_id=ids.format_id(ids.REFUND, refund.id), note="the gateway is back")


async def propose(world: World, refund: Refund) -> str:
    proposal = await world.service.submit(make_resend(refund), ADA)
    assert isinstance(proposal, Proposal)
    return ids.format_id(ids.APPROVAL, proposal.id)


async def resend_with_approval(world: World, refund: Refund) -> None:
    approval = Approve(approval_id=await propose(world, refund))
    await world.service.run_operation(approval, ALAN)


async def submit_refused(world: World, refund: Refund) -> tuple[ErrorCode, str]:
    with pytest.raises(RefusedError) as error:
        await world.service.submit(make_resend(refund), ADA)
    return error.value.code, error.value.message


async def read_case(world: World) -> tuple[str, str]:
    [row] = await world.rows("SELECT status, note FROM money_case WHERE kind = 'RECONCILIATION'")
    return row["status"], row["note"]


async def test_two_people_can_resend_a_refund_that_the_gateway_does_not_know(
    world: World, handed_over: tuple[Payment, Refund]
) -> None:
    payment, refund = handed_over
    world.gateway.answer_inquire_refund = ABSENT
    world.gateway.answer_refund = DONE
    approval_id = await propose(world, refund)
    assert await process_due_refunds(world) == 0
    with pytest.raises(RefusedError, match="an operator other than 'Ada'"):
        await world.service.run_operation(Approve(approval_id=approval_id), ADA)
    approval = await world.service.run_operation(ShowApproval(approval_id=approval_id), ALAN)
    assert "is retried" in approval.changes[0]
    await world.service.run_operation(Approve(approval_id=approval_id), ALAN)
    assert len(world.gateway.refunds) == 1
    await process_due_refunds(world)
    await world.move_clock(HAND_OVER_AFTER_S + 120)
    await process_due_refunds(world)
    assert [item.refund_id for item in world.gateway.refunds] == [refund.id] * 2
    assert await world.status(payment) == "REFUNDED"
    assert await read_case(world) == ("OPEN", "resent by Ada: the gateway is back")


async def test_a_refund_that_the_gateway_has_executed_is_not_sent_again(
    world: World, handed_over: tuple[Payment, Refund]
) -> None:
    payment, refund = handed_over
    world.gateway.answer_inquire_refund = DONE
    await resend_with_approval(world, refund)
    await process_due_refunds(world)
    assert len(world.gateway.refunds) == 1
    assert await world.status(payment) == "REFUNDED"


async def test_a_resent_refund_without_a_response_reopens_its_case_after_another_week(
    world: World, handed_over: tuple[Payment, Refund]
) -> None:
    _, refund = handed_over
    await resend_with_approval(world, refund)
    await process_due_refunds(world)
    await world.rows(
        "UPDATE money_case SET status = 'DISMISSED', closed_at = clock(), closed_by = 'Ada'"
    )
    assert await seconds_until_due(world, refund) is not None
    await wait_for_handover(world, refund, weeks=2)
    assert len(world.gateway.refunds) == 1
    assert await read_case(world) == (
        *("OPEN", "resent by Ada: the gateway is back; handed over to an operator again"),
    )


@pytest.mark.parametrize(
    ("report", "status", "payment_status"),
    [(DONE, "SUCCEEDED", "REFUNDED"), (ABSENT, "FAILED", "PAID")],
)
async def test_a_refund_that_could_be_executed_twice_is_queried_but_never_sent_again(
    world: World,
    handed_over: tuple[Payment, Refund],
    report: RefundReport,
    status: str,
    payment_status: str,
) -> None:
    payment, refund = handed_over
    set_capabilities(world, refund_is_idempotent=False)
    world.gateway.answer_inquire_refund = report
    await resend_with_approval(world, refund)
    await process_due_refunds(world)
    assert len(world.gateway.refunds) == 1
    assert (await read_refund(world, refund)).status == status
    assert await world.status(payment) == payment_status


async def test_a_refund_that_never_reached_a_non_idempotent_gateway_can_be_resent(
    world: World,
) -> None:
    for name in ("Ada", "Alan"):
        await world.operator_token(name)
    set_capabilities(world, refund_is_idempotent=False)
    payment = await create_paid_payment(world)
    world.gateway.answer_refund = NOT_CONTACTED
    refund = await request_refund(world, payment)
    await process_due_refunds(world)
    await wait_for_handover(world, refund)
    world.gateway.answer_refund = DONE
    await resend_with_approval(world, refund)
    await process_due_refunds(world)
    assert await world.status(payment) == "REFUNDED"


async def test_only_a_refund_that_was_handed_over_can_be_resent(world: World) -> None:
    payment = await create_paid_payment(world)
    world.gateway.answer_refund = PENDING
    refund = await request_refund(world, payment)
    for step in ("queued", "sent"):
        assert await submit_refused(world, refund) == (
            *(ErrorCode.CONFLICT, f"the refund was not handed over to an operator: it is {step}"),
        )
        await process_due_refunds(world)
    await send_refund_callback(world, refund.id, DONE)
    code, message = await submit_refused(world, refund)
    assert (code, message.split()[-1]) == (ErrorCode.CONFLICT, "SUCCEEDED")


async def test_approval_of_a_resend_is_refused_if_the_refund_has_ended(
    world: World, handed_over: tuple[Payment, Refund]
) -> None:
    _, refund = handed_over
    approval_id = await propose(world, refund)
    await send_refund_callback(world, refund.id, DONE)
    with pytest.raises(RefusedError, match="it is SUCCEEDED"):
        await world.service.run_operation(Approve(approval_id=approval_id), ALAN)
    assert (await read_refund(world, refund)).status is RefundStatus.SUCCEEDED


async def test_a_refund_of_disputed_money_cannot_be_resent(
    world: World, handed_over: tuple[Payment, Refund]
) -> None:
    """If the bank also refunds the buyer, a resend would pay the buyer twice."""
    _, refund = handed_over
    await world.rows("UPDATE capture SET disputed_minor = 1")
    assert await submit_refused(world, refund) == (
        *(ErrorCode.CONFLICT, "this refund's money is held for a dispute"),
    )


async def test_a_refund_with_a_transfer_on_the_chain_cannot_be_resent(
    world: World, handed_over: tuple[Payment, Refund]
) -> None:
    """An operator must first examine the transfer that contains the refund's id."""
    _, refund = handed_over
    contract = AddContract(chain="native", address=CONTRACT, receiver=RECEIVER, deployed_block=1)
    account_id = (await world.perform(contract)).account_id
    await world.rows(
        """
        INSERT INTO chain_refund (id, chain, account_id, block, tx_hash, log_index, uuid,
            refund_ref, token, amount, destination, sender, final_at, disposition)
        VALUES ($1, 'native', $2, 7, $3, 0, $4, $5, $6, 1, $6, $6, clock(), 'mismatched')
        """,
        *(uuid4(), account_id, bytes(32), bytes(16), refund.id, bytes(20)),
    )
    code, message = await submit_refused(world, refund)
    assert code is ErrorCode.CONFLICT
    assert "the chain already contains a transfer" in message


async def test_a_resend_requires_the_finance_role_and_a_note(
    world: World, handed_over: tuple[Payment, Refund]
) -> None:
    _, refund = handed_over
    with pytest.raises(RefusedError, match="requires the finance role"):
        await world.service.submit(make_resend(refund), Actor("Ada", "ticket 7", Role.SUPPORT))
    resend_without_note = ResendRefund(refund_id=ids.format_id(ids.REFUND, refund.id), note="")
    with pytest.raises(RefusedError, match="note must have 1 to 500 characters"):
        await world.service.submit(resend_without_note, ADA)
