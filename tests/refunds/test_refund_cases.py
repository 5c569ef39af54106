"""A case's money is refunded once, at a person's request, and the case is then closed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from payintent.cases.list_store import CaseDetails
from payintent.cases.model import CaseKind
from payintent.cases.operations import ListCases, ShowCase
from payintent.cases.store import open_case
from payintent.core import ids
from payintent.core.access import Role
from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateways.port import GatewayRefundState, RefundReport
from payintent.merchants.operations import SetMerchantProfile
from payintent.operators.operation import Actor
from payintent.payments import store as payment_store
from payintent.payments.captures_store import make_session_origin
from payintent.payments.model import Payment
from payintent.refunds.approval_operations import ApproveRefund, RejectRefund
from payintent.refunds.create import CreateRefundRequest, refund_case
from payintent.refunds.operations import ListRefunds
from payintent.refunds.resolve_case import ResolveCase
from payintent.refunds.settle import settle_refund
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.contracts import PAYER, contract_service, log_of, offer_tokens, record_final_logs
from tests.support.fakes import FakeGateway, captured
from tests.support.patience import PATIENCE_S
from tests.support.world import World, patient

_GRACE = Actor("Grace", "ticket 9", Role.FINANCE)
_ALAN = Actor("Alan", "ticket 10", Role.FINANCE)
_ELSEWHERE = f"0x{20 * '7a'}"
_NOTE = "they paid twice"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Allow transactions to wait for locks as long as a slow machine needs."""
    return patient(settings)


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


async def _paid_twice(world: World) -> tuple[Payment, CaseDetails]:
    """Capture 1590.00 THB twice for the same payment."""
    payment = await world.create()
    session = (await world.select(payment)).session
    for number in (1, 2):
        report = captured(159_000, reference=f"{payment.id}-{number}")
        await world.report(payment, session.id, report)
    [case] = await world.perform(ListCases(kind=CaseKind.DOUBLE_PAYMENT))
    return payment, case


def _refund(case: CaseDetails, **more: Any) -> ResolveCase:
    return ResolveCase(**({"case_id": case.id, "resolution": "refund", "note": _NOTE} | more))


async def _settle(world: World, refund_id: str, state: GatewayRefundState) -> None:
    parsed = ids.parse_id(ids.REFUND, refund_id)
    assert parsed is not None
    async with world.database.transaction() as tx:
        await settle_refund(tx, parsed, RefundReport(state=state))


async def _captures(world: World) -> list[tuple[int, int, int]]:
    """Return the captured, reserved and refunded amounts of each capture."""
    rows = await world.rows(
        "SELECT amount_minor, reserved_minor, refunded_minor FROM capture ORDER BY reference"
    )
    return [tuple(int(value) for value in dict(row).values()) for row in rows]


async def test_a_refunded_case_stays_open_until_its_refund_succeeds(world: World) -> None:
    payment, case = await _paid_twice(world)
    shown = await world.service.run_operation(_refund(case), _GRACE)
    assert (shown.status, shown.refund.status, shown.refund.step) == ("OPEN", "PENDING", "queued")
    assert shown.note == _NOTE
    assert await _captures(world) == [(159_000, 0, 0), (159_000, 159_000, 0)]
    [listed] = await world.perform(ListRefunds())
    assert (listed.id, listed.case_id, listed.requested_by) == (shown.refund.id, case.id, "Grace")
    assert (listed.amount, listed.amount_minor, listed.currency) == (None, "159000", "THB")
    await _settle(world, shown.refund.id, GatewayRefundState.DONE)
    closed = await world.perform(ShowCase(case_id=case.id))
    assert (closed.status, closed.closed_by) == ("REFUNDED", "Grace")
    assert closed.note == f"{_NOTE}; {shown.refund.id} succeeded"
    assert closed.refund.status == "SUCCEEDED"
    assert await _captures(world) == [(159_000, 0, 0), (159_000, 0, 159_000)]
    assert await world.status(payment) == "PAID"
    assert await world.events(payment) == ["payment.completed"]


@pytest.mark.parametrize("resolution", ["accept", "dismiss", "refund"])
async def test_a_case_with_a_refund_cannot_be_resolved_again(world: World, resolution: Any) -> None:
    _, case = await _paid_twice(world)
    refund = (await world.perform(_refund(case))).refund
    with pytest.raises(RefusedError, match=f"already being refunded: {refund.id}") as refused:
        await world.perform(_refund(case, resolution=resolution))
    assert refused.value.code is ErrorCode.CONFLICT
    await _settle(world, refund.id, GatewayRefundState.DONE)
    with pytest.raises(RefusedError, match="the case is already REFUNDED") as refused:
        await world.perform(_refund(case, resolution=resolution))
    assert refused.value.code is ErrorCode.CONFLICT


async def test_a_case_can_be_refunded_again_or_accepted_after_its_refund_failed(
    world: World,
) -> None:
    _, case = await _paid_twice(world)
    first = (await world.perform(_refund(case))).refund
    await _settle(world, first.id, GatewayRefundState.DECLINED)
    shown = await world.perform(ShowCase(case_id=case.id))
    assert (shown.status, shown.refund.failure_reason) == ("OPEN", "DECLINED")
    second = (await world.perform(_refund(case, note="once more"))).refund
    assert second.id != first.id
    await _settle(world, second.id, GatewayRefundState.DECLINED)
    closing = _refund(case, resolution="accept", note="sent by bank transfer")
    closed = await world.perform(closing)
    assert (closed.status, closed.refund.id) == ("ACCEPTED", second.id)
    assert closed.note == f"{_NOTE}; once more; sent by bank transfer"


async def _case_without_money(world: World, kind: CaseKind, capture_id: UUID | None) -> str:
    """Open a case about a session, or about a capture that cannot be refunded here."""
    payment = await world.create()
    session = (await world.select(payment)).session
    async with world.database.transaction() as tx:
        case_id = await open_case(
            tx, kind, make_session_origin(payment, session.id), capture_id=capture_id
        )
    assert case_id is not None
    return ids.format_id(ids.CASE, case_id)


@pytest.mark.parametrize(
    ("kind", "of", "words"),
    [
        (CaseKind.UNKNOWN_REFERENCE, None, "no captured money is recorded for this case"),
        (CaseKind.RECONCILIATION, None, "a RECONCILIATION case does not hold funds"),
        (CaseKind.RECONCILIATION, "second", "a RECONCILIATION case does not hold funds"),
        (CaseKind.REFUND_REVERSED, "second", "a REFUND_REVERSED case does not hold funds"),
        (CaseKind.ORPHAN_CAPTURE, "credited", "this case's money was credited to a payment"),
    ],
)
async def test_a_case_that_does_not_hold_funds_cannot_be_refunded(
    world: World, kind: CaseKind, of: str | None, words: str
) -> None:
    await _paid_twice(world)
    rows = await world.rows("SELECT id, credited FROM capture")
    known = {"credited" if row["credited"] else "second": row["id"] for row in rows}
    case_id = await _case_without_money(world, kind, known[of] if of else None)
    with pytest.raises(RefusedError, match=words) as refused:
        await world.perform(ResolveCase(case_id=case_id, resolution="refund", note=_NOTE))
    assert refused.value.code is ErrorCode.UNPROCESSABLE
    assert await world.perform(ListRefunds()) == []


async def _unknown_money(world: World, **changes: Any) -> CaseDetails:
    """Send coins to our contract without a payment."""
    await offer_tokens(world)
    await record_final_logs(world, log_of(None, **({"amount": 10**18} | changes)))
    [case] = await world.perform(ListCases(kind=CaseKind.UNKNOWN_REFERENCE))
    return case


async def test_an_unassigned_transfer_is_refunded_to_its_sender(world: World) -> None:
    case = await _unknown_money(world)
    refund = (await world.service.run_operation(_refund(case), _GRACE)).refund
    [listed] = await world.perform(ListRefunds())
    assert (listed.payer, listed.destination, listed.chain) == (PAYER, PAYER, "native")
    assert (refund.step, listed.payment_id, listed.merchant_id) == ("queued", None, None)


async def test_a_refund_to_another_address_needs_an_approval_with_a_note(world: World) -> None:
    case = await _unknown_money(world)
    elsewhere = _refund(case, destination=_ELSEWHERE)
    refund = (await world.service.run_operation(elsewhere, _GRACE)).refund
    assert refund.step == "approval"
    with pytest.raises(RefusedError, match="an operator other than 'Grace'"):
        await world.service.run_operation(ApproveRefund(refund_id=refund.id, note="yes"), _GRACE)
    for note in ("", "  "):
        with pytest.raises(RefusedError, match="note must have 1 to 500"):
            await world.service.run_operation(ApproveRefund(refund_id=refund.id, note=note), _ALAN)
    approval = ApproveRefund(refund_id=refund.id, note="the payer has proven it is his")
    approved = await world.service.run_operation(approval, _ALAN)
    assert (approved.step, approved.approved_by, approved.destination) == (
        *("queued", "Alan", _ELSEWHERE),
    )


async def test_in_the_sandbox_a_terminal_can_refund_to_another_address_without_approval(
    world: World,
) -> None:
    case = await _unknown_money(world)
    assert (await world.perform(_refund(case, destination=_ELSEWHERE))).refund.step == "queued"


async def test_a_destination_is_refused_for_a_gateway_case(world: World) -> None:
    _, case = await _paid_twice(world)
    with pytest.raises(RefusedError, match="can only be refunded to its payment method"):
        await world.perform(_refund(case, destination=_ELSEWHERE))


async def test_a_rejected_refund_leaves_its_case_open(world: World) -> None:
    case = await _unknown_money(world)
    elsewhere = _refund(case, destination=_ELSEWHERE)
    refund = (await world.service.run_operation(elsewhere, _GRACE)).refund
    await world.service.run_operation(RejectRefund(refund_id=refund.id, note="whose is it?"), _ALAN)
    shown = await world.perform(ShowCase(case_id=case.id))
    assert (shown.status, shown.refund.failure_reason) == ("OPEN", "REJECTED")
    assert await _captures(world) == [(10**18, 0, 0)]
    assert (await world.perform(_refund(case))).refund.step == "queued"


async def test_a_double_payment_is_refunded_immediately_if_the_merchant_has_chosen_that(
    world: World,
) -> None:
    await world.perform(SetMerchantProfile(merchant_id=world.merchant_id, auto_refund=True))
    _, case = await _paid_twice(world)
    assert (case.status, case.refund.status) == ("OPEN", "PENDING")
    [refund] = await world.perform(ListRefunds(merchant_id=world.merchant_id))
    assert refund.requested_by == "policy:auto_refund"
    await _settle(world, refund.id, GatewayRefundState.DONE)
    closed = await world.perform(ShowCase(case_id=case.id))
    assert (closed.status, closed.closed_by) == ("REFUNDED", "policy:auto_refund")


async def _at_once(*works: Any) -> list[Any]:
    return await asyncio.gather(*works, return_exceptions=True)


@pytest.mark.parametrize("second", ["refund", "accept", "dismiss"])
async def test_only_one_of_two_concurrent_resolutions_of_a_case_succeeds(
    world: World, second: Any
) -> None:
    _, case = await _paid_twice(world)
    done = await _at_once(
        world.service.run_operation(_refund(case), _GRACE),
        world.service.run_operation(_refund(case, resolution=second), _ALAN),
    )
    [refused] = [item for item in done if isinstance(item, BaseException)]
    assert isinstance(refused, RefusedError)
    assert refused.code is ErrorCode.CONFLICT
    shown = await world.perform(ShowCase(case_id=case.id))
    promised = sum(reserved for _, reserved, _ in await _captures(world))
    assert (shown.status, promised) in {("OPEN", 159_000), ("ACCEPTED", 0), ("DISMISSED", 0)}


async def test_a_case_cannot_be_accepted_while_another_transaction_refunds_it(
    world: World,
) -> None:
    """Staged: the refund is written but uncommitted when the other one starts."""
    _, case = await _paid_twice(world)
    case_id = ids.parse_id(ids.CASE, case.id)
    connection = await world.open_connection()
    try:
        async with connection.transaction():
            await connection.execute(_LOCK, case_id)
            accepting = asyncio.create_task(world.perform(_refund(case, resolution="accept")))
            await _until_somebody_waits(world)
            await connection.execute(_PROMISE, uuid4(), case_id)
        with pytest.raises(RefusedError, match="already being refunded"):
            await accepting
    finally:
        await connection.close()


# The payment goes first, as all do.
_LOCK = "SELECT FROM payment p JOIN money_case m ON m.payment_id = p.id WHERE m.id = $1 FOR UPDATE"
_PROMISE = """
INSERT INTO refund (id, merchant_id, payment_id, capture_id, case_id, currency, amount_minor, step,
    requested_by)
SELECT $1, m.merchant_id, m.payment_id, m.capture_id, m.id, 'THB', 159000, 'queued', 'Eve'
FROM money_case m
WHERE m.id = $2
"""


async def _until_somebody_waits(world: World) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await world.rows(
            "SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
            "WHERE NOT l.granted AND a.datname = current_database()"
        ):
            await asyncio.sleep(0.01)


async def test_concurrent_refunds_of_a_case_and_a_payment_never_exceed_the_captures(
    world: World,
) -> None:
    payment, case = await _paid_twice(world)
    key, other = uuid4(), uuid4()
    ask = {"merchant_id": world.merchant_id, "payment_id": payment.id, "amount": "1000.00"}
    done = await _at_once(
        world.service.refund_creator.create(CreateRefundRequest(key=key, **ask)),
        world.perform(_refund(case)),
        world.service.refund_creator.create(CreateRefundRequest(key=other, **ask)),
        world.perform(_refund(case)),
    )
    refused = [item.code for item in done if isinstance(item, RefusedError)]
    assert sorted(refused) == [ErrorCode.CONFLICT, ErrorCode.REFUND_EXCEEDS_REMAINING], done
    assert await _captures(world) == [(159_000, 100_000, 0), (159_000, 159_000, 0)]


async def test_a_credited_capture_cannot_be_refunded_through_a_case(world: World) -> None:
    payment, case = await _paid_twice(world)
    [capture] = await world.rows("SELECT id FROM capture WHERE credited")
    case_id = ids.parse_id(ids.CASE, case.id)
    assert case_id is not None
    async with world.database.transaction() as tx:
        await payment_store.lock(tx, [payment.id])
        with pytest.raises(RefusedError, match="refund the payment"):
            await refund_case(tx, case_id, capture["id"], "Grace")
