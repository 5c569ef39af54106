"""When a payer is erased, all personal data is removed, and the books stay complete."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from asyncpg import CheckViolationError

from payintent.accounting.close_statements import close_due_days
from payintent.accounting.ledger_operations import CheckLedger
from payintent.approvals.operations import Approve, Reject, ShowApproval, make_proposal_view
from payintent.cases.operations import ListCases
from payintent.core import ids
from payintent.core.access import Role
from payintent.core.errors import ErrorCode, RefusedError
from payintent.db.database import Tx
from payintent.gateways.port import DisputedFunds, DisputeReport, DisputeState, VerifiedCallback
from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.methods_operations import ListPaymentMethods
from payintent.operators.operation import Actor
from payintent.payments.model import Payment
from payintent.privacy.data_store import ERASED
from payintent.privacy.operations import ErasePayer, ExportPayer
from payintent.refunds.resolve_case import ResolveCase
from payintent.test_mode import buyer_simulator
from payintent.test_mode.model import APPROVED_CARD
from tests.refunds.refund_setup import (
    DONE,
    create_paid_payment,
    process_due_refunds,
    request_refund,
    send_refund_callback,
)
from tests.support.race_staging import hold_transaction, wait_until_blocked
from tests.support.world import World

DAY_S = 24 * 3600
#: The payer's data. Before the erasure, each string is in at least one table.
WORDS = (
    "zora-17",
    "zora@example.com",
    "Zora's book",
    "tore its cover",
    "zora-was-here",
    "zora-back",
    "zora-order",
    "zora-cart",
)
ADA, ALAN = Actor("Ada", "ticket 9", Role.ADMIN), Actor("Alan", "ticket 9", Role.ADMIN)
#: Contains half of a surrogate pair, which PostgreSQL and one of our parsers reject.
METADATA = '{"title":"Zora\'s book","odd":"\\ud83d","order_id":"A-77"}'


def erasure(world: World, payer_uid: str = "zora-17") -> ErasePayer:
    return ErasePayer(merchant_id=world.merchant_id, payer_uid=payer_uid)


async def buy(world: World, **changes: Any) -> Payment:
    """Pay and partly refund a payment, and deliver its event to an endpoint that echoes it."""
    fields = {
        "payer_uid": "zora-17",
        "payer_email": "zora@example.com",
        "metadata": METADATA,
        "return_url": "https://shop.example/zora-order",
        "cancel_url": "https://shop.example/zora-cart",
    }
    payment = await create_paid_payment(world, **(fields | changes))
    await world.rows(
        "UPDATE session SET return_url = 'https://shop.example/zora-back',"
        ' next_action = \'{"url":"https://pay.example/zora-was-here"}\' WHERE payment_id = $1',
        payment.id,
    )
    refund = await request_refund(world, payment, "10", reason="she tore its cover")
    await process_due_refunds(world)
    await send_refund_callback(world, refund.id, DONE)
    [session] = await world.rows("SELECT id FROM session WHERE payment_id = $1", payment.id)
    callback = VerifiedCallback(id=uuid4().hex, session_id=session["id"])
    service = world.service
    await service.callback_receiver.receive(world.account_id, callback, b"by zora@example.com")
    await mark_delivered(world, payment)
    return payment


async def mark_delivered(world: World, payment: Payment) -> None:
    [event] = await world.rows("SELECT id FROM event WHERE payment_id = $1", payment.id)
    await world.rows(
        "INSERT INTO attempt (id, event_id, number, outcome, detail, answer, duration_ms,"
        " started_at) VALUES ($1, $2, 1, 'delivered', '', 'thanks, zora-17', 1, clock())",
        make_id(world),
        event["id"],
    )
    await world.rows("UPDATE delivery SET state = 'delivered' WHERE event_id = $1", event["id"])


def make_id(world: World) -> Any:
    return world.id_generator.new_id()


async def find_words(world: World, words: tuple[str, ...] = WORDS) -> dict[str, set[str]]:
    """Search every column for the words, including bytes; return the tables of each word."""
    tables = await world.rows(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    locations: dict[str, set[str]] = {}
    for table in [row["relname"] for row in tables]:
        for row in await world.rows(f"SELECT t::text AS whole FROM {table} t"):
            text = row["whole"].replace('""', '"')
            for word in words:
                if word in text or word.replace("'", "\\'") in text or word.encode().hex() in text:
                    locations.setdefault(word, set()).add(table)
    return locations


async def read_books(world: World) -> dict[str, list[Any]]:
    """Read the tables that the books consist of."""
    return {
        table: await world.rows(f"SELECT t::text FROM {table} t ORDER BY 1")
        for table in ("ledger_entry", "statement", "capture", "statement_close", "dispute")
    }


async def erase_with_approval(world: World, operation: ErasePayer) -> Any:
    """Propose the erasure as Ada, and approve it as Alan."""
    for name in ("Ada", "Alan"):
        await world.operator_token(name)
    proposal = make_proposal_view(await world.service.submit(operation, ADA))
    approval = Approve(approval_id=proposal.id)
    return (await world.service.run_operation(approval, ALAN)).result


async def test_erasure_removes_all_data_of_a_payer_and_preserves_the_books(world: World) -> None:
    payments = [await buy(world) for _ in range(2)]
    nothing = {"payer_email": None, "metadata": "{}", "return_url": None, "cancel_url": None}
    second_payment = await buy(world, payer_uid="buyer-8", **nothing)
    await world.rows(
        "UPDATE attempt SET answer = 'ok' WHERE event_id IN"
        " (SELECT id FROM event WHERE payment_id = $1)",
        second_payment.id,
    )
    await world.move_clock(2 * DAY_S)
    while await close_due_days(world.database):
        pass
    before = await find_words(world)
    assert set(before) == set(WORDS)
    assert before["zora-17"] == {"payment", "event", "attempt"}
    assert before["zora@example.com"] == {"payment", "callback"}
    assert await world.perform(CheckLedger()) == []
    books = await read_books(world)
    assert books["statement"]
    columns = "SELECT amount, status, refunded_amount, paid_at, updated_at FROM payment ORDER BY id"
    rows = await world.rows(columns)
    result = await erase_with_approval(world, erasure(world))
    assert result == {"merchant_id": world.merchant_id, "payments": 2, "more": False}
    locations = await find_words(world)
    # The second payer's data is not deleted.
    assert locations.pop("tore its cover") == {"refund"}
    assert locations.pop("zora-back") == locations.pop("zora-was-here") == {"session"}
    assert locations.pop("zora@example.com") == {"callback"}
    assert locations == {}
    await erase_other_payer(world)
    assert await world.perform(CheckLedger()) == []
    assert await read_books(world) == books
    assert await world.rows(columns) == rows
    bodies = await world.rows(
        "SELECT body FROM event WHERE payment_id = ANY($1::uuid[])",
        [payment.id for payment in payments],
    )
    assert all(f'"payer_uid":"{ERASED}"' in row["body"] for row in bodies)
    assert all('"metadata":{}' in row["body"] for row in bodies)


async def erase_other_payer(world: World) -> None:
    """Erase the second payer too, and check that no data of either payer remains."""
    proposal = make_proposal_view(await world.service.submit(erasure(world, "buyer-8"), ADA))
    await world.service.run_operation(Approve(approval_id=proposal.id), ALAN)
    assert await find_words(world, (*WORDS, "buyer-8")) == {}


async def test_erasure_needs_a_second_operator_and_its_records_do_not_name_the_payer(
    world: World,
) -> None:
    payment = await buy(world)
    await world.operator_token("Ada")
    await world.operator_token("Alan")
    await world.move_clock(2 * DAY_S)
    with pytest.raises(RefusedError, match="another operator must approve payer"):
        await world.service.run_operation(erasure(world), ADA)
    proposal = make_proposal_view(await world.service.submit(erasure(world), ADA))
    payment_id = ids.format_id(ids.PAYMENT, payment.id)
    assert proposal.changes[0] == (
        f"1 payment of merchant {world.merchant_id}, starting with {payment_id}"
    )
    approval = await world.perform(ShowApproval(approval_id=proposal.id))
    assert approval.changes == proposal.changes
    assert {"proposal", "audit"}.isdisjoint((await find_words(world))["zora-17"])
    with pytest.raises(RefusedError, match="an operator other than 'Ada'"):
        await world.service.run_operation(Approve(approval_id=proposal.id), ADA)
    await world.service.run_operation(Reject(approval_id=proposal.id, note="not theirs"), ALAN)
    assert (await find_words(world))["zora-17"] == {"payment", "event", "attempt"}


async def test_erasure_also_removes_data_from_the_test_gateway(world: World) -> None:
    issued = await world.perform(IssueApiKey(merchant_id=world.merchant_id, test=True))
    [method, *_] = await world.perform(ListPaymentMethods(merchant_id=issued.merchant_id))
    side = replace(world, merchant_id=issued.merchant_id, card=method.id)
    payment = await side.create(payer_uid="zora-17", metadata="{}")
    await side.select(payment)
    step = buyer_simulator.enter_card(APPROVED_CARD)
    card = buyer_simulator.TestRequest(operation="pay", fields=(), key=None, action=step)
    await side.service.buyer_simulator.pay(await side.read(payment), card)
    assert await side.status(payment) == "PAID"
    await mark_delivered(side, payment)
    await side.rows("UPDATE test_session SET return_url = 'https://shop.example/zora-back'")
    assert (await find_words(side))["zora-back"] == {"test_session"}
    assert (await side.perform(erasure(side))).payments == 1
    assert await find_words(side) == {}


async def expect_rejected(world: World, why: str) -> None:
    with pytest.raises(RefusedError, match=f"^pay_[^ ]+ {why}.*, so its payer cannot") as error:
        await world.service.submit(erasure(world), ADA)
    assert error.value.code is ErrorCode.CONFLICT
    assert "zora" in str(await find_words(world))


async def test_a_payer_with_open_payments_refunds_or_disputes_cannot_be_erased(
    world: World,
) -> None:
    payment = await world.create(payer_uid="zora-17")
    await expect_rejected(world, "has not ended")
    await world.rows("UPDATE payment SET payer_uid = 'buyer-8' WHERE id = $1", payment.id)
    await world.cancelled(payer_uid="zora-17")
    payment = await create_paid_payment(world, payer_uid="zora-17")
    await world.rows("UPDATE delivery SET state = 'pending'")
    await expect_rejected(world, "has an undelivered event")
    await mark_delivered(world, payment)
    await request_refund(world, payment, "10")
    await expect_rejected(world, "has a pending refund")
    await process_due_refunds(world)
    [refund] = await world.rows("SELECT id FROM refund")
    await send_refund_callback(world, refund["id"], DONE)
    report = DisputeReport(
        reference="du-1",
        capture=f"cap-{payment.id}",
        state=DisputeState.OPEN,
        funds=DisputedFunds.UNTOUCHED,
        amount_minor=1000,
        currency="THB",
        reason="fraudulent",
        respond_by=None,
    )
    callback = VerifiedCallback(id=uuid4().hex, dispute=report)
    await world.service.callback_receiver.receive(world.account_id, callback, b"raw body")
    await expect_rejected(world, "has an open case")
    await world.rows(
        "UPDATE money_case SET status = 'ACCEPTED', closed_by = 'x', closed_at = clock()"
    )
    await expect_rejected(world, "has an open dispute")
    await world.rows("UPDATE dispute SET state = 'won'")
    await world.rows("UPDATE money_case SET status = 'OPEN', closed_by = NULL, closed_at = NULL")
    [case] = await world.perform(ListCases())
    await world.perform(ResolveCase(case_id=case.id, resolution="accept", note="it was won"))
    assert (await world.perform(erasure(world))).payments == 2


async def test_erasure_cannot_be_approved_if_a_refund_was_requested_meanwhile(world: World) -> None:
    payment = await buy(world)
    await world.operator_token("Ada")
    await world.operator_token("Alan")
    proposal = make_proposal_view(await world.service.submit(erasure(world), ADA))
    await request_refund(world, payment, "1")
    with pytest.raises(RefusedError, match="has a pending refund"):
        await world.service.run_operation(Approve(approval_id=proposal.id), ALAN)
    assert (await find_words(world))["zora-17"] == {"payment", "event", "attempt"}


async def test_an_erasure_waits_for_a_concurrent_refund_and_is_rejected(world: World) -> None:
    payment = await buy(world)

    async def refund(tx: Tx) -> None:
        await tx.fetch("SELECT FROM payment WHERE id = $1 FOR UPDATE", payment.id)
        await tx.fetch(
            "UPDATE refund SET status = 'PENDING', step = 'queued', next_at = clock()"
            " WHERE payment_id = $1",
            payment.id,
        )

    async with hold_transaction(world, refund) as first:
        erasing = asyncio.create_task(world.perform(erasure(world)))
        await wait_until_blocked(world, erasing)
        await first.commit()
    with pytest.raises(RefusedError, match="has a pending refund"):
        await erasing
    assert (await find_words(world))["zora-17"] == {"payment", "event", "attempt"}


async def test_erasure_does_not_affect_the_same_payer_uid_of_another_merchant(world: World) -> None:
    await buy(world)
    second_merchant_id = (await world.add_merchant()).merchant.id
    await world.rows("UPDATE payment SET merchant_id = $1", second_merchant_id)
    await buy(world)
    assert (await world.perform(erasure(world))).payments == 1
    payments = await world.perform(ExportPayer(merchant_id=second_merchant_id, payer_uid="zora-17"))
    assert len(payments) == 1
    for payer_uid in ("zora-17", ERASED):
        with pytest.raises(RefusedError, match="no payer"):
            await world.perform(erasure(world, payer_uid))


async def test_only_the_reason_and_destination_of_an_ended_refund_can_be_removed(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment, "10", reason="a page is missing")
    removal = "reason = NULL, destination = NULL"
    with pytest.raises(CheckViolationError, match="is what it was asked for"):
        await world.rows(f"UPDATE refund SET {removal}")
    await process_due_refunds(world)
    await send_refund_callback(world, refund.id, DONE)
    for change in (
        "reason = 'another'",
        f"{removal}, amount_minor = 1",
        f"{removal}, currency = 'USD'",
    ):
        with pytest.raises(CheckViolationError, match="is what it was asked for"):
            await world.rows(f"UPDATE refund SET {change}")
    await world.rows(f"UPDATE refund SET {removal}")
