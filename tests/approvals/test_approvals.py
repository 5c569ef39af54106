"""A refund that needs approval is listed, and approved or rejected once by a second person."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from payintent.core import ids
from payintent.core.access import Role
from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateways.port import GatewayRefundState, NotContacted, OutcomeUnknown, RefundReport
from payintent.operators.operation import Actor
from payintent.refunds.approval_operations import ApproveRefund, RejectRefund
from payintent.refunds.model import RefundStatus, RefundStep
from payintent.refunds.operations import ListRefunds, ShowRefund
from payintent.runtime.settings import Settings
from tests.refunds.refund_setup import process_due_refunds
from tests.support.operation_examples import Stage, add_refunds_for_approval
from tests.support.timeouts import PATIENCE_S
from tests.support.world import World, patient

_ADA = Actor("Ada", "ticket 7", Role.FINANCE)
_TERMINAL = Actor("cli:ada", "ticket 7")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return patient(settings)


async def _waiting(world: World) -> list[str]:
    _, *refund_ids = await add_refunds_for_approval(world)
    return [ids.format_id(ids.REFUND, item) for item in refund_ids]


async def _reserved(world: World) -> tuple[Any, Any]:
    [row] = await world.rows(
        "SELECT c.reserved_minor, p.reserved_amount FROM capture c JOIN payment p "
        "ON p.id = c.payment_id"
    )
    return int(row["reserved_minor"]), int(row["reserved_amount"])


async def test_refunds_that_need_approval_are_listed_newest_first(world: World) -> None:
    payment, *refund_ids = await add_refunds_for_approval(world)
    first, second = (ids.format_id(ids.REFUND, item) for item in refund_ids)

    async def listed(**filters: Any) -> list[str]:
        return [item.id for item in await world.perform(ListRefunds(**filters))]

    newest_first = sorted(
        [first, second], key=lambda refund_id: ids.parse_id(ids.REFUND, refund_id), reverse=True
    )  # type: ignore[arg-type,return-value]
    assert await listed() == await listed(step=RefundStep.APPROVAL) == newest_first
    assert await listed(payment_id=ids.format_id(ids.PAYMENT, payment)) == newest_first
    assert await listed(merchant_id=world.merchant_id, limit=1) == newest_first[:1]
    other = (await world.add_merchant()).merchant.id
    assert await listed(merchant_id=other) == []
    assert await listed(status=RefundStatus.FAILED) == await listed(step=RefundStep.QUEUED) == []
    await world.perform(RejectRefund(refund_id=first, note="no"))
    assert await listed(step=RefundStep.APPROVAL) == [second]
    assert await listed(status=RefundStatus.FAILED) == [first]
    assert (await world.perform(ShowRefund(refund_id=first))).failure_reason == "REJECTED"


async def test_an_approved_refund_is_due_immediately_and_names_its_approver(world: World) -> None:
    first, _ = await _waiting(world)
    approved = await world.service.run_operation(ApproveRefund(refund_id=first), _ADA)
    assert (approved.step, approved.approved_by, approved.status) == ("queued", "Ada", "PENDING")
    assert approved.requested_by == f"merchant:{world.merchant_id}"
    [row] = await world.rows("SELECT count(*) AS n FROM refund WHERE next_at <= clock()")
    assert row["n"] == 1
    assert await _reserved(world) == (18_000, 180)


async def test_a_rejected_refund_fails_and_releases_its_reservation(world: World) -> None:
    first, second = await _waiting(world)
    rejected = await world.perform(RejectRefund(refund_id=first, note="not theirs"))
    assert (rejected.status, rejected.step, rejected.note) == ("FAILED", "ended", "not theirs")
    assert await _reserved(world) == (9_000, 90)
    for change in (ApproveRefund(refund_id=first), RejectRefund(refund_id=first, note="again")):
        with pytest.raises(RefusedError, match="it is REJECTED") as refused:
            await world.perform(change)
        assert refused.value.code is ErrorCode.CONFLICT
    await world.perform(ApproveRefund(refund_id=second))
    with pytest.raises(RefusedError, match="does not need approval: it is queued"):
        await world.perform(ApproveRefund(refund_id=second))
    assert await _reserved(world) == (9_000, 90)


async def test_a_queued_refund_can_be_rejected_unless_it_may_have_been_sent(world: World) -> None:
    world.gateway.answer_refund = NotContacted(detail="no connection")
    for refund_id in await _waiting(world):
        await world.perform(ApproveRefund(refund_id=refund_id))
    assert await process_due_refunds(world) == 2  # attempted, but not sent
    first, second = [refund.id for refund in await world.perform(ListRefunds())]
    assert (await world.perform(RejectRefund(refund_id=first, note="a thief's"))).status == "FAILED"
    assert await _reserved(world) == (9_000, 90)

    world.gateway.answer_refund = OutcomeUnknown(detail="no answer")
    await world.move_clock(60)
    assert await process_due_refunds(world) == 1
    with pytest.raises(RefusedError, match="cannot be rejected: it is sent"):
        await world.perform(RejectRefund(refund_id=second, note="too late"))

    world.gateway.answer_inquire_refund = RefundReport(state=GatewayRefundState.ABSENT)
    await world.move_clock(3600)
    assert (
        await process_due_refunds(world) == 1
    )  # the gateway does not have it, but it may be in flight
    with pytest.raises(RefusedError, match="queued, and may have been sent before"):
        await world.perform(RejectRefund(refund_id=second, note="too late"))
    assert await _reserved(world) == (9_000, 90)


async def test_a_refund_that_is_rejected_while_being_sent_is_either_rejected_or_sent(
    world: World,
) -> None:
    for refund_id in await _waiting(world):
        await world.perform(ApproveRefund(refund_id=refund_id))
        rejection = world.perform(RejectRefund(refund_id=refund_id, note="a thief's"))
        rejected, _ = await asyncio.gather(
            rejection, process_due_refunds(world), return_exceptions=True
        )
        sent_refunds = [
            ids.format_id(ids.REFUND, refund.refund_id) for refund in world.gateway.refunds
        ]
        result = await world.perform(ShowRefund(refund_id=refund_id))
        assert (refund_id in sent_refunds) == isinstance(rejected, RefusedError)
        assert result.status == ("SUCCEEDED" if refund_id in sent_refunds else "FAILED")


async def test_a_refund_that_is_approved_and_rejected_concurrently_is_rejected(
    world: World,
) -> None:
    for refund_id in await _waiting(world):
        approved, rejected = await asyncio.gather(
            world.service.run_operation(ApproveRefund(refund_id=refund_id), _ADA),
            world.service.run_operation(RejectRefund(refund_id=refund_id, note="no"), _TERMINAL),
            return_exceptions=True,
        )
        assert not isinstance(rejected, BaseException)
        if isinstance(approved, BaseException):
            assert isinstance(approved, RefusedError)
            assert approved.code is ErrorCode.CONFLICT
        assert (await world.perform(ShowRefund(refund_id=refund_id))).failure_reason == "REJECTED"
    assert await _reserved(world) == (0, 0)


async def test_an_approval_waits_for_a_transaction_that_locks_the_capture(world: World) -> None:
    """Staged: the refund ends in a transaction that is uncommitted when the approval starts."""
    refund_id, _ = await _waiting(world)
    connection = await world.open_connection()
    try:
        async with connection.transaction():
            await connection.execute("SELECT FROM capture FOR UPDATE")
            approving = asyncio.create_task(world.perform(ApproveRefund(refund_id=refund_id)))
            async with asyncio.timeout(PATIENCE_S):
                while not await world.rows(_WAITS):
                    await asyncio.sleep(0.01)
            await connection.execute(
                "UPDATE refund SET status = 'FAILED', failure_reason = 'REJECTED', step = 'ended' "
                "WHERE id = $1",
                ids.parse_id(ids.REFUND, refund_id),
            )
        with pytest.raises(RefusedError, match="does not need approval: it is REJECTED"):
            await approving
    finally:
        await connection.close()


_WAITS = """
SELECT FROM pg_locks l
JOIN pg_stat_activity a USING (pid)
WHERE NOT l.granted AND a.datname = current_database()
"""


async def _asked_by(world: World, who: str) -> str:
    """Create a refund that needs approval, and change its requester, which is immutable."""
    first, _ = await _waiting(world)
    await world.rows("ALTER TABLE refund DISABLE TRIGGER refund_frozen")
    await world.rows(
        "UPDATE refund SET requested_by = $2 WHERE id = $1", ids.parse_id(ids.REFUND, first), who
    )
    await world.rows("ALTER TABLE refund ENABLE TRIGGER refund_frozen")
    return first


@pytest.mark.parametrize(
    ("requester", "approver", "refused"),
    [
        ("merchant:1", _ADA, None),
        ("policy:auto_refund", _ADA, None),
        ("Grace", _ADA, None),
        ("Ada", _ADA, ErrorCode.CONFLICT),
        ("merchant:1", _TERMINAL, ErrorCode.FORBIDDEN),  # a terminal does not prove who uses it
        ("cli:ada", _TERMINAL, ErrorCode.FORBIDDEN),
        ("Grace", replace(_ADA, role=Role.SUPPORT), ErrorCode.FORBIDDEN),
    ],
)
async def test_neither_the_requester_nor_a_terminal_can_approve_a_refund(
    stage: Stage, requester: str, approver: Actor, refused: ErrorCode | None
) -> None:
    refund_id = await _asked_by(stage.world, requester)
    approval = ApproveRefund(refund_id=refund_id)
    if refused is None:
        assert (await stage.perform(approval, approver)).step == "queued"
        return
    with pytest.raises(RefusedError, match=r"must approve|requires|OPERATOR_TOKEN") as error:
        await stage.perform(approval, approver)
    assert error.value.code is refused
    assert (await stage.perform(ShowRefund(refund_id=refund_id))).step == "approval"


async def test_in_the_sandbox_an_operator_with_a_token_cannot_approve_their_own_refund(
    world: World,
) -> None:
    refund_id = await _asked_by(world, "Ada")
    with pytest.raises(RefusedError, match="an operator other than 'Ada'"):
        await world.service.run_operation(ApproveRefund(refund_id=refund_id), _ADA)
