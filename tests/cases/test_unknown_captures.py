"""A capture for an unknown session opens a case, which is corrected if the session appears."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from payintent.callbacks import store as callback_store
from payintent.callbacks.receive import apply_deferred_callbacks
from payintent.cases.list_store import CaseDetails
from payintent.cases.model import CaseKind
from payintent.cases.operations import ListCases, ShowCase
from payintent.core import ids
from payintent.core.errors import ErrorCode, RefusedError
from payintent.db.database import Tx
from payintent.gateways.port import (
    DisputeReport,
    DisputeState,
    GatewaySessionState,
    SessionReport,
    VerifiedCallback,
)
from payintent.payment_sessions.settle import settle_session
from payintent.payments import store as payment_store
from payintent.refunds.create import refund_case
from payintent.refunds.resolve_case import ResolveCase
from tests.callbacks.test_receive import EXACT, add_account, add_session, selected, tell
from tests.payments.test_expire import sweep
from tests.refunds.refund_gateway import RefundGateway
from tests.refunds.refund_setup import process_due_refunds
from tests.support.fakes import FakeGateway, captured, declined
from tests.support.race_staging import hold_transaction, wait_until_blocked
from tests.support.world import World


@pytest.fixture
def gateway() -> FakeGateway:
    return RefundGateway()


async def unknown_cases(world: World) -> list[CaseDetails]:
    return await world.perform(ListCases(kind=CaseKind.UNKNOWN_REFERENCE, status="ALL"))


async def resolve(world: World, case: CaseDetails, resolution: Any) -> CaseDetails:
    note = "nobody knows it"
    return await world.perform(ResolveCase(case_id=case.id, resolution=resolution, note=note))


async def apply(world: World) -> int:
    return await apply_deferred_callbacks(world.database, 10)


async def captures(world: World) -> list[tuple[UUID | None, bool, int]]:
    rows = await world.rows("SELECT payment_id, credited, refunded_minor FROM capture ORDER BY id")
    return [(row["payment_id"], row["credited"], int(row["refunded_minor"])) for row in rows]


async def test_a_capture_for_an_unknown_session_opens_a_case_immediately(world: World) -> None:
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id, captured(4200, "USD", reference="stray"), name="told-1")
    [case] = await unknown_cases(world)
    assert (case.status, case.merchant_id, case.payment_id) == ("OPEN", None, None)
    assert (case.currency, case.amount_minor) == ("USD", "4200")
    assert (case.account_id, case.reference) == (world.account_id, "stray")
    assert "told-1" in case.note


async def test_a_capture_without_a_session_opens_a_case(world: World) -> None:
    await tell(world, None, EXACT)
    [case] = await unknown_cases(world)
    assert (case.reference, case.amount_minor) == ("cap-1", "159000")


async def test_a_case_at_a_merchants_own_account_belongs_to_the_merchant(world: World) -> None:
    other = await add_account(world)
    await world.rows(
        "UPDATE provider_account SET merchant_id = $1 WHERE id = $2", world.merchant_id, other
    )
    await tell(world, world.id_generator.new_session_id(), EXACT, account_id=other)
    [case] = await unknown_cases(world)
    assert (case.account_id, case.merchant_id) == (other, world.merchant_id)


async def test_a_case_states_that_the_session_belongs_to_another_account(
    world: World,
) -> None:
    """If two accounts share a secret key, the gateway reports all payments to both."""
    _, session_id = await selected(world)
    await tell(world, session_id)
    await tell(world, session_id, account_id=await add_account(world))
    [case] = await unknown_cases(world)
    assert case.note.endswith(
        f" of account {world.account_id}. If both accounts have the same credentials, "
        "the capture was reported twice and belongs to that session; do not refund it here"
    )


async def test_a_capture_that_is_reported_twice_opens_a_single_case(world: World) -> None:
    session_id = world.id_generator.new_session_id()
    for _ in range(2):
        await tell(world, session_id)
    await tell(
        world, world.id_generator.new_session_id()
    )  # a different session, but the same capture
    assert len(await unknown_cases(world)) == 1
    assert len(await captures(world)) == 1


async def test_a_report_without_a_capture_does_not_open_a_case(world: World) -> None:
    for report in (declined(), SessionReport(state=GatewaySessionState.CANCELLED), None):
        await tell(world, world.id_generator.new_session_id(), report)
    assert await unknown_cases(world) == []


async def test_an_unknown_capture_is_refunded_from_its_case_through_the_reported_session(
    world: World,
) -> None:
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id)
    [case] = await unknown_cases(world)
    assert (await resolve(world, case, "refund")).status == "OPEN"
    assert await process_due_refunds(world) == 1
    [request] = world.gateway.refunds
    assert (request.capture.reference, request.amount_minor) == ("cap-1", 159000)
    assert request.session is not None
    assert (request.session.session_id, request.session.reference) == (session_id, None)
    assert (await world.perform(ShowCase(case_id=case.id))).status == "REFUNDED"
    assert await captures(world) == [(None, False, 159000)]


async def test_a_callback_with_a_capture_is_never_deleted(world: World) -> None:
    await tell(world, world.id_generator.new_session_id())
    await tell(world, world.id_generator.new_session_id(), declined())
    await world.move_clock(400 * 24 * 3600)
    assert await callback_store.delete_unmatched(world.database, 24, 10) == 1
    [row] = await world.rows("SELECT report FROM callback")
    assert '"captured"' in row["report"]


async def test_the_capture_pays_its_session_when_it_appears_and_the_case_is_closed(
    world: World,
) -> None:
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id)
    payment = await add_session(world, session_id)
    assert await apply(world) == 1
    assert await world.status(payment) == "PAID"
    assert await world.events(payment) == ["payment.completed"]
    assert await captures(world) == [(payment.id, True, 0)]
    [case] = await unknown_cases(world)
    assert (case.status, case.closed_by) == ("DISMISSED", "policy:session_appeared")
    with pytest.raises(RefusedError) as refused:
        await resolve(world, case, "refund")
    assert refused.value.code in {ErrorCode.CONFLICT, ErrorCode.UNPROCESSABLE}
    assert await world.cases(payment) == []


async def test_an_inquiry_finds_the_capture_of_a_session_that_appeared(world: World) -> None:
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id)
    payment = await add_session(world, session_id)
    await world.report(payment, session_id, EXACT)
    assert await world.status(payment) == "PAID"
    assert await apply(world) == 1
    assert await world.events(payment) == ["payment.completed"]
    assert await captures(world) == [(payment.id, True, 0)]


async def test_a_capture_that_is_too_late_for_its_session_opens_a_case_for_its_payment(
    world: World,
) -> None:
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id)
    payment = await add_session(world, session_id)
    await world.move_clock(1801)
    await sweep(world)
    await world.rows("UPDATE session SET life = 'ended', outcome = 'closed', ended_at = clock()")
    await sweep(world)
    assert await world.status(payment) == "EXPIRED"
    assert await apply(world) == 1
    assert await world.cases(payment) == ["ORPHAN_CAPTURE"]
    assert await captures(world) == [(payment.id, False, 0)]
    [unknown] = await unknown_cases(world)
    assert unknown.status == "DISMISSED"


async def test_a_refunded_capture_does_not_pay_a_session_that_appears_later(world: World) -> None:
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id)
    [case] = await unknown_cases(world)
    await resolve(world, case, "refund")
    payment = await add_session(world, session_id)
    for _ in range(2):  # during the refund, and after it
        await apply(world)
        await world.report(payment, session_id, EXACT)
        assert await world.events(payment) == []
        assert (await world.session(session_id))["life"] == "ended"
        await process_due_refunds(world)
    assert await captures(world) == [(None, False, 159000)]
    [case] = await unknown_cases(world)
    assert case.status == "REFUNDED"
    assert (await world.read(payment)).payment.paid_at is None


async def test_a_capture_is_either_refunded_or_pays_its_session(world: World) -> None:
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id)
    [case] = await unknown_cases(world)
    payment = await add_session(world, session_id)
    async with hold_transaction(
        world, lambda tx: settle_session(tx, payment.id, session_id, EXACT)
    ) as first:
        giving_back = asyncio.create_task(resolve(world, case, "refund"))
        await wait_until_blocked(world, giving_back)
        await first.commit()
        [refused] = await asyncio.gather(giving_back, return_exceptions=True)
    assert isinstance(refused, RefusedError)
    assert refused.code is ErrorCode.CONFLICT
    assert await world.status(payment) == "PAID"
    assert await world.rows("SELECT 1 FROM refund") == []


async def test_a_capture_with_a_pending_refund_does_not_pay_a_session_that_appears(
    world: World,
) -> None:
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id)
    payment = await add_session(world, session_id)
    [row] = await world.rows("SELECT id, capture_id FROM money_case")
    async with hold_transaction(
        world,
        lambda tx: refund_case(tx, row["id"], row["capture_id"], "Grace"),
    ) as first:
        task = asyncio.create_task(world.report(payment, session_id, EXACT))
        await wait_until_blocked(world, task)
        await first.commit()
        await task
    assert (await world.read(payment)).payment.paid_at is None
    assert await captures(world) == [(None, False, 0)]


async def test_concurrent_callbacks_for_an_unknown_capture_store_it_once(world: World) -> None:
    service, session_id = world.service, world.id_generator.new_session_id()
    callbacks = [
        VerifiedCallback(id=name, session_id=session_id, report=EXACT) for name in ("a", "b")
    ]
    receipts = await asyncio.gather(
        *(service.callback_receiver.receive(world.account_id, item, b"") for item in callbacks)
    )
    assert all(receipt.is_new for receipt in receipts)
    assert len(await captures(world)) == len(await unknown_cases(world)) == 1


async def test_a_locked_session_that_appears_delays_only_itself(world: World) -> None:
    """The lock order is payment, session, capture: a locked payment delays only itself."""
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id)
    payment = await add_session(world, session_id)
    other, other_session = await selected(world)
    async with hold_transaction(world, lambda tx: payment_store.lock(tx, [payment.id])) as first:
        waits = asyncio.create_task(apply(world))
        await wait_until_blocked(world, waits)
        await world.report(other, other_session, captured(159000, reference="cap-2"))
        await first.commit()
        assert await waits == 1
    assert await world.status(payment) == await world.status(other) == "PAID"


def dispute_of(reference: str) -> DisputeReport:
    return DisputeReport(
        reference="du_1",
        capture=reference,
        state=DisputeState.OPEN,
        amount_minor=159000,
        currency="THB",
    )


async def the_dispute(world: World) -> CaseDetails:
    [case] = await world.perform(ListCases(kind=CaseKind.DISPUTE))
    return case


async def test_a_dispute_of_an_unknown_capture_moves_to_the_payment_when_the_session_appears(
    world: World,
) -> None:
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id)
    callback = VerifiedCallback(id="du-told", dispute=dispute_of("cap-1"))
    await world.service.callback_receiver.receive(world.account_id, callback, b"")
    assert (await the_dispute(world)).payment_id is None
    payment = await add_session(world, session_id)
    assert await apply(world) == 1
    case = await the_dispute(world)
    assert (case.payment_id, case.merchant_id) == (
        ids.format_id(ids.PAYMENT, payment.id),
        world.merchant_id,
    )


async def test_a_dispute_that_waits_for_its_capture_is_assigned_to_the_payment(
    world: World,
) -> None:
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id)
    payment = await add_session(world, session_id)

    async def adopt(tx: Tx) -> None:
        await settle_session(tx, payment.id, session_id, EXACT)

    async with hold_transaction(world, adopt) as first:
        callback = VerifiedCallback(id="du-told", dispute=dispute_of("cap-1"))
        receiver = world.service.callback_receiver
        hearing = asyncio.create_task(receiver.receive(world.account_id, callback, b""))
        await wait_until_blocked(world, hearing)
        await first.commit()
        with pytest.raises(RefusedError) as refused:
            await hearing
        assert refused.value.code is ErrorCode.CONFLICT
    await world.service.callback_receiver.receive(world.account_id, callback, b"")
    assert (await the_dispute(world)).payment_id == ids.format_id(ids.PAYMENT, payment.id)
