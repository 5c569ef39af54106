"""An on-chain refund on hold is resent only after the chain has been queried."""

from decimal import Decimal

import pytest

from payintent.approvals.operations import Approve
from payintent.core import ids
from payintent.core.errors import ErrorCode, RefusedError
from payintent.onchain.operations import SetChain
from payintent.operators.proposals_store import Proposal
from payintent.payments.model import Session
from payintent.refunds.model import Refund
from payintent.refunds.operations import ResendRefund
from payintent.refunds.send import HAND_OVER_AFTER_S
from tests.support.chain_refunds import RefundWorld
from tests.support.operation_examples import ADA, ALAN

pytestmark = pytest.mark.full

REVERTS_MAX = 3
UNSEEN_S = 600
QUEUED = ("PENDING", "queued")
SENT = ("PENDING", "sent")
DONE = ("SUCCEEDED", "ended")


@pytest.fixture(autouse=True)
async def operators(refunding: RefundWorld) -> None:
    for name in ("Ada", "Alan"):
        await refunding.ground.world.operator_token(name)


async def is_on_hold(refunding: RefundWorld, refund: Refund) -> bool:
    [row] = await refunding.ground.world.rows(
        "SELECT next_at IS NULL AS is_on_hold FROM refund WHERE id = $1", refund.id
    )
    return row["is_on_hold"]


async def hold_refund(refunding: RefundWorld) -> tuple[Session, Refund]:
    """Request a refund that is reverted three times."""
    payment, session = await refunding.paid()
    refund = await refunding.ask(payment)
    for _ in range(REVERTS_MAX):
        await refunding.revert(session)
    assert await is_on_hold(refunding, refund)
    return session, refund


async def resend_with_approval(refunding: RefundWorld, refund: Refund) -> None:
    resend = ResendRefund(refund_id=ids.format_id(ids.REFUND, refund.id), note="it has gas again")
    service = refunding.ground.world.service
    proposal = await service.submit(resend, ADA)
    assert isinstance(proposal, Proposal)
    await service.run_operation(Approve(approval_id=ids.format_id(ids.APPROVAL, proposal.id)), ALAN)


async def test_a_resent_refund_can_be_reverted_three_more_times(refunding: RefundWorld) -> None:
    session, refund = await hold_refund(refunding)
    await resend_with_approval(refunding, refund)
    await refunding.ground.move_clock(UNSEEN_S)
    await refunding.turn()
    assert await refunding.read_state(refund) == QUEUED, "the contract does not know the refund"
    for reverts in range(1, REVERTS_MAX + 1):
        await refunding.revert(session)
        assert await is_on_hold(refunding, refund) is (reverts == REVERTS_MAX)
    assert refunding.signer.sent == []


async def test_a_refund_that_was_mined_while_on_hold_is_not_resent(
    refunding: RefundWorld,
) -> None:
    """The log is not final when the refund is resent, so only the contract knows it."""
    _, refund = await hold_refund(refunding)
    before = await refunding.balance("NATIVED", refunding.ground.payer)
    await refunding.by_hand(refund.id, refund.amount_minor)
    await resend_with_approval(refunding, refund)
    for _ in range(3):
        await refunding.ground.move_clock(UNSEEN_S)
        await refunding.turn()
    assert refunding.signer.sent == []
    await refunding.ground.final()
    assert await refunding.read_state(refund) == DONE
    after = await refunding.balance("NATIVED", refunding.ground.payer)
    assert after == before + refund.amount_minor


@pytest.mark.parametrize("is_ours", [True, False], ids=["our account", "a stranger"])
async def test_only_a_transfer_from_our_account_blocks_a_resend(
    refunding: RefundWorld, is_ours: bool
) -> None:
    """Our account has refunded a different amount; transactions of strangers do not count."""
    _, refund = await hold_refund(refunding)
    sender = refunding.refunder if is_ours else (await refunding.accounts())[8]
    await refunding.by_hand(refund.id, refund.amount_minor - 1, sender=sender)
    await refunding.ground.final()
    assert await refunding.logs() == ["mismatched" if is_ours else "foreign"]
    if not is_ours:
        await resend_with_approval(refunding, refund)
        assert not await is_on_hold(refunding, refund)
        return
    message = "the chain already contains a transfer with this refund's id"
    with pytest.raises(RefusedError, match=message) as refused:
        await resend_with_approval(refunding, refund)
    assert refused.value.code is ErrorCode.CONFLICT
    assert await is_on_hold(refunding, refund)
    assert refunding.signer.sent == []


async def test_a_resent_refund_does_not_count_towards_the_daily_threshold(
    refunding: RefundWorld,
) -> None:
    """The resend was approved by a second operator; a single operator cannot resend it."""
    world = refunding.ground.world
    payments = [(await refunding.paid())[0] for _ in range(2)]
    _, refund = await hold_refund(refunding)
    amount = Decimal("25.50")
    await world.perform(SetChain(chain="native", refund_approval_above=str(amount)))
    assert await refunding.read_state(await refunding.ask(payments[0])) == ("PENDING", "approval")
    await refunding.ground.move_clock(HAND_OVER_AFTER_S)
    resend = ResendRefund(refund_id=ids.format_id(ids.REFUND, refund.id), note="it has gas again")
    proposal = await world.service.submit(resend, ADA)
    assert isinstance(proposal, Proposal)
    approval = Approve(approval_id=ids.format_id(ids.APPROVAL, proposal.id))
    with pytest.raises(RefusedError, match="an operator other than 'Ada'"):
        await world.service.run_operation(approval, ADA)
    await refunding.turn()
    assert refunding.signer.sent == []
    await world.service.run_operation(approval, ALAN)
    assert await refunding.read_state(await refunding.ask(payments[1])) == QUEUED
