"""An on-chain refund on hold with a case is resent only after the chain was queried."""

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
from tests.support.refunding import RefundWorld
from tests.support.stage import ADA, ALAN

pytestmark = pytest.mark.full

REVERTS_MAX = 3
UNSEEN_S = 600
WAITS = ("PENDING", "queued")
SENT = ("PENDING", "sent")
DONE = ("SUCCEEDED", "ended")


@pytest.fixture(autouse=True)
async def operators(refunding: RefundWorld) -> None:
    for name in ("Ada", "Alan"):
        await refunding.ground.world.operator_token(name)


async def rests(refunding: RefundWorld, refund: Refund) -> bool:
    [row] = await refunding.ground.world.rows(
        "SELECT next_at IS NULL AS rests FROM refund WHERE id = $1", refund.id
    )
    return row["rests"]


async def resting(refunding: RefundWorld) -> tuple[Session, Refund]:
    """A refund that was reverted three times."""
    payment, session = await refunding.paid()
    refund = await refunding.ask(payment)
    for _ in range(REVERTS_MAX):
        await refunding.revert(session)
    assert await rests(refunding, refund)
    return session, refund


async def resend_by_two(refunding: RefundWorld, refund: Refund) -> None:
    resend = ResendRefund(refund_id=ids.format_id(ids.REFUND, refund.id), note="it has gas again")
    service = refunding.ground.world.service
    proposal = await service.submit(resend, ADA)
    assert isinstance(proposal, Proposal)
    await service.run_operation(Approve(approval_id=ids.format_id(ids.APPROVAL, proposal.id)), ALAN)


async def test_a_refund_that_is_sent_again_has_three_more_reverts(refunding: RefundWorld) -> None:
    session, refund = await resting(refunding)
    await resend_by_two(refunding, refund)
    await refunding.ground.move_clock(UNSEEN_S)
    await refunding.turn()
    assert await refunding.stands(refund) == WAITS, "the contract says that it was not done"
    for again in range(1, REVERTS_MAX + 1):
        await refunding.revert(session)
        assert await rests(refunding, refund) is (again == REVERTS_MAX)
    assert refunding.signer.sent == []


async def test_a_refund_that_was_mined_while_it_rested_is_not_sent_again(
    refunding: RefundWorld,
) -> None:
    """Its log is not final when two people resend it, so only the contract knows it."""
    _, refund = await resting(refunding)
    before = await refunding.balance("NATIVED", refunding.ground.payer)
    await refunding.by_hand(refund.id, refund.amount_minor)
    await resend_by_two(refunding, refund)
    for _ in range(3):
        await refunding.ground.move_clock(UNSEEN_S)
        await refunding.turn()
    assert refunding.signer.sent == []
    await refunding.ground.final()
    assert await refunding.stands(refund) == DONE
    after = await refunding.balance("NATIVED", refunding.ground.payer)
    assert after == before + refund.amount_minor


@pytest.mark.parametrize("ours", [True, False], ids=["of ours", "of a stranger"])
async def test_what_the_chain_shows_under_its_id_is_a_persons_to_find_out(
    refunding: RefundWorld, ours: bool
) -> None:
    """Our account refunded a different amount; a stranger's transactions do not count."""
    _, refund = await resting(refunding)
    sender = refunding.refunder if ours else (await refunding.accounts())[8]
    await refunding.by_hand(refund.id, refund.amount_minor - 1, sender=sender)
    await refunding.ground.final()
    assert await refunding.logs() == ["mismatched" if ours else "foreign"]
    if not ours:
        await resend_by_two(refunding, refund)
        assert not await rests(refunding, refund)
        return
    message = "the chain already contains a transfer with this refund's id"
    with pytest.raises(RefusedError, match=message) as refused:
        await resend_by_two(refunding, refund)
    assert refused.value.code is ErrorCode.CONFLICT
    assert await rests(refunding, refund)
    assert refunding.signer.sent == []


async def test_a_refund_that_is_sent_again_takes_nothing_of_the_new_days_threshold(
    refunding: RefundWorld,
) -> None:
    """Two people must have checked it; a single person cannot resend it."""
    world = refunding.ground.world
    others = [(await refunding.paid())[0] for _ in range(2)]
    _, refund = await resting(refunding)
    amount = Decimal("25.50")
    await world.perform(SetChain(chain="native", refund_approval_above=str(amount)))
    assert await refunding.stands(await refunding.ask(others[0])) == ("PENDING", "approval")
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
    assert await refunding.stands(await refunding.ask(others[1])) == WAITS
