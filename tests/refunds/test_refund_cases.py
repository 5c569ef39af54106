"""An operator can refund a case's money once; the case closes when the refund succeeds."""

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
from tests.support.timeouts import PATIENCE_S
from tests.support.world import World, patient

_GRACE = Actor("Grace", "ticket 9", Role.FINANCE)
_ALAN = Actor("Alan", "ticket 10", Role.FINANCE)
_ELSEWHERE = f"0x{20 * '7a'}"
_NOTE = "they paid twice"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Increase the lock timeout, because the machine can be slow."""
    return patient(settings)


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


async def _pay_twice(world: World) -> tuple[Payment, CaseDetails]:
    """Capture 1590.00 THB twice for the same payment."""
    payment = await world.create()
    session = (await world.select(payment)).session
    for number in (1, 2):
        report = captured(159_000, reference=f"{payment.id}-{number}")
        await world.report(payment, session.id, report)
    [case] = await world.perform(ListCases(kind=CaseKind.DOUBLE_PAYMENT))
    return payment, case


def _make_resolution(case: CaseDetails, **more: Any) -> ResolveCase:
    return ResolveCase(**({"case_id": case.id, "resolution": "refund", "note": _NOTE} | more))


async def _settle(world: World, refund_id: str, state: GatewayRefundState) -> None:
    parsed_id = ids.parse_id(ids.REFUND, refund_id)
    assert parsed_id is not None
    async with world.database.transaction() as tx:
        await settle_refund(tx, parsed_id, RefundReport(state=state))


async def _read_captures(world: World) -> list[tuple[int, int, int]]:
    """Return the captured, reserved and refunded amounts of each capture."""
    rows = await world.rows(
        "SELECT amount_minor, reserved_minor, refunded_minor FROM capture ORDER BY reference"
    )
    return [tuple(int(value) for value in dict(row).values()) for row in rows]


async def test_a_refunded_case_stays_open_until_its_refund_succeeds(world: World) -> None:
    payment, case = await _pay_twice(world)
    refunding_case = await world.service.run_operation(_make_resolution(case), _GRACE)
    assert (refunding_case.status, refunding_case.refund.status, refunding_case.refund.step) == (
        "OPEN",
        "PENDING",
        "queued",
    )
    assert refunding_case.note == _NOTE
    assert await _read_captures(world) == [(159_000, 0, 0), (159_000, 159_000, 0)]
    [refund] = await world.perform(ListRefunds())
    assert (refund.id, refund.case_id, refund.requested_by) == (
        refunding_case.refund.id,
        case.id,
        "Grace",
    )
    assert (refund.amount, refund.amount_minor, refund.currency) == (None, "159000", "THB")
    await _settle(world, refunding_case.refund.id, GatewayRefundState.DONE)
    closed_case = await world.perform(ShowCase(case_id=case.id))
    assert (closed_case.status, closed_case.closed_by) == ("REFUNDED", "Grace")
    assert closed_case.note == f"{_NOTE}; {refunding_case.refund.id} succeeded"
    assert closed_case.refund.status == "SUCCEEDED"
    assert await _read_captures(world) == [(159_000, 0, 0), (159_000, 0, 159_000)]
    assert await world.status(payment) == "PAID"
    assert await world.events(payment) == ["payment.completed"]


@pytest.mark.parametrize("resolution", ["accept", "dismiss", "refund"])
async def test_a_case_with_a_refund_cannot_be_resolved_again(world: World, resolution: Any) -> None:
    _, case = await _pay_twice(world)
    refund = (await world.perform(_make_resolution(case))).refund
    with pytest.raises(RefusedError, match=f"already being refunded: {refund.id}") as error:
        await world.perform(_make_resolution(case, resolution=resolution))
    assert error.value.code is ErrorCode.CONFLICT
    await _settle(world, refund.id, GatewayRefundState.DONE)
    with pytest.raises(RefusedError, match="the case is already REFUNDED") as error:
        await world.perform(_make_resolution(case, resolution=resolution))
    assert error.value.code is ErrorCode.CONFLICT


async def test_a_case_can_be_refunded_again_or_accepted_after_its_refund_failed(
    world: World,
) -> None:
    _, case = await _pay_twice(world)
    first = (await world.perform(_make_resolution(case))).refund
    await _settle(world, first.id, GatewayRefundState.DECLINED)
    open_case_view = await world.perform(ShowCase(case_id=case.id))
    assert (open_case_view.status, open_case_view.refund.failure_reason) == ("OPEN", "DECLINED")
    second = (await world.perform(_make_resolution(case, note="once more"))).refund
    assert second.id != first.id
    await _settle(world, second.id, GatewayRefundState.DECLINED)
    acceptance = _make_resolution(case, resolution="accept", note="sent by bank transfer")
    closed_case = await world.perform(acceptance)
    assert (closed_case.status, closed_case.refund.id) == ("ACCEPTED", second.id)
    assert closed_case.note == f"{_NOTE}; once more; sent by bank transfer"


async def _case_without_money(world: World, kind: CaseKind, capture_id: UUID | None) -> str:
    """Open a case without a capture, or with a capture that the case cannot refund."""
    payment = await world.create()
    session = (await world.select(payment)).session
    async with world.database.transaction() as tx:
        case_id = await open_case(
            tx, kind, make_session_origin(payment, session.id), capture_id=capture_id
        )
    assert case_id is not None
    return ids.format_id(ids.CASE, case_id)


@pytest.mark.parametrize(
    ("kind", "capture", "message"),
    [
        (CaseKind.UNKNOWN_REFERENCE, None, "no captured money is recorded for this case"),
        (CaseKind.RECONCILIATION, None, "a RECONCILIATION case does not hold funds"),
        (CaseKind.RECONCILIATION, "second", "a RECONCILIATION case does not hold funds"),
        (CaseKind.REFUND_REVERSED, "second", "a REFUND_REVERSED case does not hold funds"),
        (CaseKind.ORPHAN_CAPTURE, "credited", "this case's money was credited to a payment"),
    ],
)
async def test_a_case_that_does_not_hold_funds_cannot_be_refunded(
    world: World, kind: CaseKind, capture: str | None, message: str
) -> None:
    await _pay_twice(world)
    rows = await world.rows("SELECT id, credited FROM capture")
    capture_ids = {"credited" if row["credited"] else "second": row["id"] for row in rows}
    case_id = await _case_without_money(world, kind, capture_ids[capture] if capture else None)
    with pytest.raises(RefusedError, match=message) as error:
        await world.perform(ResolveCase(case_id=case_id, resolution="refund", note=_NOTE))
    assert error.value.code is ErrorCode.UNPROCESSABLE
    assert await world.perform(ListRefunds()) == []


async def _create_unassigned_transfer(world: World, **changes: Any) -> CaseDetails:
    """Record a transfer to our contract without a payment; return its case."""
    await offer_tokens(world)
    await record_final_logs(world, log_of(None, **({"amount": 10**18} | changes)))
    [case] = await world.perform(ListCases(kind=CaseKind.UNKNOWN_REFERENCE))
    return case


async def test_an_unassigned_transfer_is_refunded_to_its_sender(world: World) -> None:
    case = await _create_unassigned_transfer(world)
    refund = (await world.service.run_operation(_make_resolution(case), _GRACE)).refund
    [listed_refund] = await world.perform(ListRefunds())
    assert (listed_refund.payer, listed_refund.destination, listed_refund.chain) == (
        PAYER,
        PAYER,
        "native",
    )
    assert (refund.step, listed_refund.payment_id, listed_refund.merchant_id) == (
        "queued",
        None,
        None,
    )


async def test_a_refund_to_another_address_needs_an_approval_with_a_note(world: World) -> None:
    case = await _create_unassigned_transfer(world)
    operation = _make_resolution(case, destination=_ELSEWHERE)
    refund = (await world.service.run_operation(operation, _GRACE)).refund
    assert refund.step == "approval"
    with pytest.raises(RefusedError, match="an operator other than 'Grace'"):
        await world.service.run_operation(ApproveRefund(refund_id=refund.id, note="yes"), _GRACE)
    for note in ("", "  "):
        with pytest.raises(RefusedError, match="note must have 1 to 500"):
            await world.service.run_operation(ApproveRefund(refund_id=refund.id, note=note), _ALAN)
    approval = ApproveRefund(refund_id=refund.id, note="the payer has proven it is his")
    approved_refund = await world.service.run_operation(approval, _ALAN)
    assert (approved_refund.step, approved_refund.approved_by, approved_refund.destination) == (
        *("queued", "Alan", _ELSEWHERE),
    )


async def test_in_the_sandbox_a_terminal_can_refund_to_another_address_without_approval(
    world: World,
) -> None:
    case = await _create_unassigned_transfer(world)
    assert (
        await world.perform(_make_resolution(case, destination=_ELSEWHERE))
    ).refund.step == "queued"


async def test_a_destination_is_refused_for_a_gateway_case(world: World) -> None:
    _, case = await _pay_twice(world)
    with pytest.raises(RefusedError, match="can only be refunded to its payment method"):
        await world.perform(_make_resolution(case, destination=_ELSEWHERE))


async def test_a_rejected_refund_leaves_its_case_open(world: World) -> None:
    case = await _create_unassigned_transfer(world)
    operation = _make_resolution(case, destination=_ELSEWHERE)
    refund = (await world.service.run_operation(operation, _GRACE)).refund
    await world.service.run_operation(RejectRefund(refund_id=refund.id, note="whose is it?"), _ALAN)
    open_case_view = await world.perform(ShowCase(case_id=case.id))
    assert (open_case_view.status, open_case_view.refund.failure_reason) == ("OPEN", "REJECTED")
    assert await _read_captures(world) == [(10**18, 0, 0)]
    assert (await world.perform(_make_resolution(case))).refund.step == "queued"


async def test_a_double_payment_is_refunded_immediately_if_the_merchant_has_chosen_that(
    world: World,
) -> None:
    await world.perform(SetMerchantProfile(merchant_id=world.merchant_id, auto_refund=True))
    _, case = await _pay_twice(world)
    assert (case.status, case.refund.status) == ("OPEN", "PENDING")
    [refund] = await world.perform(ListRefunds(merchant_id=world.merchant_id))
    assert refund.requested_by == "policy:auto_refund"
    await _settle(world, refund.id, GatewayRefundState.DONE)
    closed_case = await world.perform(ShowCase(case_id=case.id))
    assert (closed_case.status, closed_case.closed_by) == ("REFUNDED", "policy:auto_refund")


async def _run_concurrently(*operations: Any) -> list[Any]:
    return await asyncio.gather(*operations, return_exceptions=True)


@pytest.mark.parametrize("second", ["refund", "accept", "dismiss"])
async def test_only_one_of_two_concurrent_resolutions_of_a_case_succeeds(
    world: World, second: Any
) -> None:
    _, case = await _pay_twice(world)
    results = await _run_concurrently(
        world.service.run_operation(_make_resolution(case), _GRACE),
        world.service.run_operation(_make_resolution(case, resolution=second), _ALAN),
    )
    [error] = [item for item in results if isinstance(item, BaseException)]
    assert isinstance(error, RefusedError)
    assert error.code is ErrorCode.CONFLICT
    case_view = await world.perform(ShowCase(case_id=case.id))
    reserved_minor = sum(reserved for _, reserved, _ in await _read_captures(world))
    assert (case_view.status, reserved_minor) in {
        ("OPEN", 159_000),
        ("ACCEPTED", 0),
        ("DISMISSED", 0),
    }


async def test_a_case_cannot_be_accepted_while_another_transaction_refunds_it(
    world: World,
) -> None:
    """The refund is written but not committed when the acceptance starts."""
    _, case = await _pay_twice(world)
    case_id = ids.parse_id(ids.CASE, case.id)
    connection = await world.open_connection()
    try:
        async with connection.transaction():
            await connection.execute(_LOCK, case_id)
            acceptance = asyncio.create_task(
                world.perform(_make_resolution(case, resolution="accept"))
            )
            await _wait_for_blocked_lock(world)
            await connection.execute(_INSERT_REFUND, uuid4(), case_id)
        with pytest.raises(RefusedError, match="already being refunded"):
            await acceptance
    finally:
        await connection.close()


# Lock the payment first, like every transaction.
_LOCK = "SELECT FROM payment p JOIN money_case m ON m.payment_id = p.id WHERE m.id = $1 FOR UPDATE"
_INSERT_REFUND = """
INSERT INTO refund (id, merchant_id, payment_id, capture_id, case_id, currency, amount_minor, step,
    requested_by)
SELECT $1, m.merchant_id, m.payment_id, m.capture_id, m.id, 'THB', 159000, 'queued', 'Eve'
FROM money_case m
WHERE m.id = $2
"""


async def _wait_for_blocked_lock(world: World) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await world.rows(
            "SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
            "WHERE NOT l.granted AND a.datname = current_database()"
        ):
            await asyncio.sleep(0.01)


async def test_concurrent_refunds_of_a_case_and_a_payment_never_exceed_the_captures(
    world: World,
) -> None:
    payment, case = await _pay_twice(world)
    key, second_key = uuid4(), uuid4()
    request = {"merchant_id": world.merchant_id, "payment_id": payment.id, "amount": "1000.00"}
    results = await _run_concurrently(
        world.service.refund_creator.create(CreateRefundRequest(key=key, **request)),
        world.perform(_make_resolution(case)),
        world.service.refund_creator.create(CreateRefundRequest(key=second_key, **request)),
        world.perform(_make_resolution(case)),
    )
    codes = [item.code for item in results if isinstance(item, RefusedError)]
    assert sorted(codes) == [ErrorCode.CONFLICT, ErrorCode.REFUND_EXCEEDS_REMAINING], results
    assert await _read_captures(world) == [(159_000, 100_000, 0), (159_000, 159_000, 0)]


async def test_a_credited_capture_cannot_be_refunded_through_a_case(world: World) -> None:
    payment, case = await _pay_twice(world)
    [capture] = await world.rows("SELECT id FROM capture WHERE credited")
    case_id = ids.parse_id(ids.CASE, case.id)
    assert case_id is not None
    async with world.database.transaction() as tx:
        await payment_store.lock(tx, [payment.id])
        with pytest.raises(RefusedError, match="refund the payment"):
            await refund_case(tx, case_id, capture["id"], "Grace")
