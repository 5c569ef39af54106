"""A payment's timeline contains all stored events and their actors, in chronological order."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from payintent.approvals.operations import Approve
from payintent.core import ids
from payintent.disputes.record import record_dispute
from payintent.gateways.port import DisputedFunds, DisputeReport, DisputeState
from payintent.onchain import pending_store as pending_transfers
from payintent.payment_history.operations import ShowPayment
from payintent.payment_history.timeline import TimelineEntry
from payintent.payment_sessions.operations import EndPayment
from payintent.payments.cancel import cancel_by_buyer
from payintent.payments.model import Payment
from payintent.refunds.operations import RefundPayment
from payintent.refunds.resolve_case import ResolveCase
from payintent.runtime.settings import Settings
from payintent.service import Service
from payintent.webhooks import outbox_store
from payintent.webhooks.operations import ResendEvent, ShowEvent
from payintent.webhooks.outbox_store import AttemptRecord
from tests.refunds.refund_gateway import RefundGateway
from tests.refunds.refund_setup import (
    create_paid_payment,
    process_due_refunds,
    send_refund_callback,
)
from tests.support.contracts import bill, contract_service, log_of, offer_tokens, record_final_logs
from tests.support.fakes import FakeGateway, captured
from tests.support.operation_examples import ADA, ALAN
from tests.support.world import World


@pytest.fixture
def gateway() -> FakeGateway:
    return RefundGateway()


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


def name(payment: Payment) -> str:
    return ids.format_id(ids.PAYMENT, payment.id)


async def timeline(world: World, payment: Payment) -> list[TimelineEntry]:
    result = await world.perform(ShowPayment(payment_id=name(payment)))
    entries = result["timeline"]
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
    return entries


def whats(entries: list[TimelineEntry]) -> list[str]:
    return [entry.what for entry in entries]


def one(entries: list[TimelineEntry], kind: str) -> TimelineEntry:
    [entry] = [entry for entry in entries if entry.what == kind]
    return entry


async def attempt(world: World, event_id: Any, number: int, **more: Any) -> None:
    fields: dict[str, Any] = {
        "id": world.id_generator.new_id(),
        "event_id": event_id,
        "number": number,
        "url": "https://shop.example.com/hooks",
        "outcome": "http_error",
        "status": 500,
        "detail": "HTTP 500",
        "answer": "try later",
        "duration_ms": 12,
        "delivered": False,
        "next_wait_s": None,
    }
    await outbox_store.record(world.database, [AttemptRecord(**(fields | more))])


async def test_the_timeline_shows_a_gateway_payment_from_creation_to_refund(world: World) -> None:
    payment = await create_paid_payment(world)
    [event] = await world.rows("SELECT id FROM event")
    await world.rows("UPDATE delivery SET state = 'pending'")
    await attempt(world, event["id"], 1)
    await world.service.submit(ResendEvent(event_id=event["id"]), ADA)
    await attempt(world, event["id"], 1, outcome="delivered", status=200, delivered=True)
    refund = await world.service.submit(
        RefundPayment(payment_id=name(payment), amount="590.00", reason="a page"), ADA
    )
    await process_due_refunds(world)
    await send_refund_callback(world, ids.parse_id(ids.REFUND, refund.id))  # type: ignore[arg-type]
    entries = await timeline(world, payment)
    assert whats(entries)[0] == "created"
    assert set(whats(entries)) == {
        *("created", "selected", "captured", "paid", "session-ended", "event", "attempt"),
        *("refund", "refund-sent", "refund-ended", "refund-callback", "operator"),
    }
    assert one(entries, "created").text == "1,590.00 THB from payer buyer-1"
    assert one(entries, "selected").text.startswith("Card at fake, account 1, 1,590.00 THB")
    assert one(entries, "captured").text.startswith("1,590.00 THB, credited, account 1")
    attempts = [entry.text for entry in entries if entry.what == "attempt"]
    assert attempts == [
        "attempt 1: http_error, HTTP 500, 12 ms, https://shop.example.com/hooks",
        "attempt 2: delivered, HTTP 200, 12 ms, https://shop.example.com/hooks",
    ]
    request = one(entries, "refund")
    assert (request.id, request.who, request.text) == (refund.id, "Ada", "590.00 THB, a page")
    assert one(entries, "refund-ended").text.startswith("SUCCEEDED, reference")
    by_operators = [(entry.who, entry.text) for entry in entries if entry.what == "operator"]
    assert by_operators == [
        ("Ada", "webhooks.replay: ticket 7"),
        ("Ada", "payment.refund: ticket 7"),
    ]
    result = await world.perform(ShowEvent(event_id=event["id"]))
    assert [(made.number, made.url, made.answer) for made in result.attempts] == [
        (1, "https://shop.example.com/hooks", "try later"),
        (2, "https://shop.example.com/hooks", "try later"),
    ]


async def test_the_timeline_shows_a_chain_payment_as_posted_detected_and_final(
    world: World,
) -> None:
    methods = await offer_tokens(world)
    payment, session = await bill(world, methods["NATIVED"])
    log = log_of(session)
    async with world.database.transaction() as tx:
        await pending_transfers.add_posted_hash(tx, session.id, log.tx_hash, "pay")
    pending_transfer = pending_transfers.PendingTransfer(
        tx_hash=bytes(32), log_index=0, session_id=session.id, exact=True, block=6
    )
    await pending_transfers.save_pending(world.database, "native", [pending_transfer])
    await pending_transfers.mark_gone(world.database, "native", [bytes(32)])
    await record_final_logs(world, log)
    entries = await timeline(world, payment)
    assert {"posted", "seen", "gone", "final", "captured", "paid"} <= set(whats(entries))
    final, amount = one(entries, "final"), session.quote.price.total_amount
    assert final.text.startswith(f"credited, {amount} NATIVED, from 0x")
    assert f"0x{log.tx_hash.hex()} on native, in block 7" in final.text
    assert one(entries, "captured").text.startswith(f"{amount} NATIVED, credited")
    assert final.id == ids.format_id(ids.SESSION, session.id)


async def test_the_timeline_shows_cases_and_disputes_and_the_person_who_closed_them(
    world: World,
) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(100_000))
    [case] = await world.rows("SELECT id FROM money_case")
    case_id = ids.format_id(ids.CASE, case["id"])
    report = DisputeReport(
        reference="dp_1",
        capture=captured(1).capture.reference,  # type: ignore[union-attr]
        state=DisputeState.OPEN,
        funds=DisputedFunds.WITHDRAWN,
        amount_minor=100_000,
        currency="THB",
        reason="fraudulent",
    )
    async with world.database.transaction() as tx:
        await record_dispute(tx, world.account_id, report)
    await world.service.submit(
        ResolveCase(case_id=case_id, resolution="dismiss", note="it went back"), ADA
    )
    entries = await timeline(world, payment)
    assert one(entries, "failed").text == "AMOUNT_MISMATCH"
    texts = [entry.text for entry in entries if entry.what == "case"]
    assert sorted(texts) == ["AMOUNT_MISMATCH", "DISPUTE"]
    assert one(entries, "dispute").text == "1,000.00 THB, fraudulent, reference dp_1"
    assert one(entries, "dispute-now").text == "open, funds withdrawn"
    closed = one(entries, "case-closed")
    assert (closed.id, closed.who) == (case_id, "Ada")
    assert closed.text.startswith("DISMISSED, ")
    assert (one(entries, "operator").who, one(entries, "operator").text) == (
        *("Ada", "case.resolve: ticket 7"),
    )


async def test_an_approved_operation_names_both_people(world: World) -> None:
    for who in ("Ada", "Alan"):
        await world.operator_token(who)
    payment = await world.create()
    other = await world.create()
    for stuck in (payment, other):
        await world.select(stuck)
    await world.rows("UPDATE provider_account SET enabled = false")
    for stuck in (payment, other):
        proposal = await world.service.submit(EndPayment(payment_id=name(stuck)), ADA)
        approval_id = ids.format_id(ids.APPROVAL, proposal.id)
        await world.service.run_operation(Approve(approval_id=approval_id), ALAN)
    entries = await timeline(world, payment)
    changes = [(entry.who, entry.text) for entry in entries if entry.what == "operator"]
    assert sorted(changes) == [
        ("Ada", "approval.propose: ticket 7"),
        ("Ada", "payment.end: ticket 7"),
        ("Alan", "approval.approve: agreed"),
    ]
    assert {"expired", "case", "closing"} <= set(whats(entries))


async def test_the_timeline_shows_who_cancelled_the_payment(world: World) -> None:
    payment = await world.create()
    async with world.database.transaction() as tx:
        await cancel_by_buyer(tx, payment.id)
    entries = await timeline(world, payment)
    assert whats(entries) == ["created", "cancelled"]
    assert one(entries, "cancelled").text == "by the buyer"


async def test_the_timeline_includes_denials_by_fraud_screening(world: World) -> None:
    payment = await world.create()
    await world.rows(
        """
        WITH rule AS (
            INSERT INTO fraud_rule (kind, value, code, level, score)
            VALUES ('COUNTRY', 'CU', 'COUNTRY_BLOCKED', 'HIGH', 90)
            RETURNING id
        )
        INSERT INTO fraud_decision (id, merchant_id, payment_id, rule_id, code, level, score)
        SELECT gen_random_uuid(), $2, $1, id, 'COUNTRY_BLOCKED', 'HIGH', 90
        FROM rule
        """,
        payment.id,
        world.merchant_id,
    )
    denied = one(await timeline(world, payment), "denied")
    assert denied.text == "COUNTRY_BLOCKED by rule 1, HIGH, score 90"


async def test_the_checkout_id_is_masked_and_no_secrets_are_shown(world: World) -> None:
    payment = await create_paid_payment(world)
    result = await world.perform(ShowPayment(payment_id=name(payment)))
    assert payment.checkout_id not in repr(result)
    assert world.signing_secret not in repr(result)
