"""Retention deletes old data, but not if it is still needed."""

from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError

from payintent.accounting.ledger_operations import CheckLedger
from payintent.cases.operations import ListCases
from payintent.core import ids
from payintent.gateways.port import DisputedFunds, DisputeReport, DisputeState, VerifiedCallback
from payintent.payments.model import Payment
from payintent.privacy.operations import DueRetention, ShowRetention
from payintent.privacy.retention_store import PRUNED, prune_step
from payintent.refunds.resolve_case import ResolveCase
from payintent.runtime.settings import RetentionRule, Settings
from payintent.webhooks import feed_store
from tests.refunds.refund_setup import (
    DONE,
    create_paid_payment,
    process_due_refunds,
    request_refund,
    send_refund_callback,
)
from tests.support.world import World

DAY_S = 24 * 3600
DAYS = {
    RetentionRule.ATTEMPTS: 90,
    RetentionRule.EVENTS: 365,
    RetentionRule.PAYER_ADDRESSES: 90,
    RetentionRule.PAYER_DETAILS: 730,
    RetentionRule.PAYERS: 3650,
}


async def add_attempt(world: World, payment: Payment, state: str = "delivered") -> None:
    """Add a delivery attempt to the payment's event, and set the state of its delivery."""
    [row] = await world.rows("SELECT id FROM event WHERE payment_id = $1", payment.id)
    await world.rows(
        "INSERT INTO attempt (id, event_id, number, outcome, detail, answer, duration_ms,"
        " started_at) VALUES ($1, $2, 1, 'delivered', '', '', 1, clock())",
        world.id_generator.new_id(),
        row["id"],
    )
    await world.rows("UPDATE delivery SET state = $2 WHERE event_id = $1", row["id"], state)


async def prune_after(
    world: World, days: float, retention: dict[RetentionRule, int] = DAYS
) -> None:
    """Advance the clock by this many days, and run the worker's step."""
    await world.move_clock(days * DAY_S)
    while await prune_step(world.database, retention, 2):
        pass


async def count_rows(world: World, payment: Payment) -> tuple[int, int, int]:
    """Count the events, deliveries and attempts of a payment."""
    [row] = await world.rows(
        """
        SELECT count(DISTINCT e.id) AS events, count(DISTINCT d.event_id) AS deliveries,
            count(a.id) AS attempts
        FROM event e
        LEFT JOIN delivery d ON d.event_id = e.id
        LEFT JOIN attempt a ON a.event_id = e.id
        WHERE e.payment_id = $1
        """,
        payment.id,
    )
    return row["events"], row["deliveries"], row["attempts"]


async def read_details(world: World, payment: Payment) -> tuple[str | None, ...]:
    [row] = await world.rows("SELECT * FROM payment WHERE id = $1", payment.id)
    return row["payer_email"], row["metadata"], row["return_url"], row["cancel_url"]


async def buy(world: World, **changes: Any) -> Payment:
    changes = dict(zip(DETAILS, DETAILS_BEFORE, strict=True)) | changes
    payment = await create_paid_payment(world, **changes)
    await add_attempt(world, payment)
    return payment


DETAILS = ("payer_email", "metadata", "return_url", "cancel_url")
DETAILS_BEFORE = (
    "ann@example.com",
    '{"order_id":"A-1"}',
    "https://shop.test/A-1",
    "https://shop.test/cart",
)
DETAILS_AFTER = (None, "{}", None, None)


async def test_attempts_then_events_then_payer_details_are_deleted(world: World) -> None:
    payments = [await buy(world) for _ in range(3)]
    for days, expected_rows, expected_details in (
        (89.9, (1, 1, 1), DETAILS_BEFORE),
        (90.1, (1, 1, 0), DETAILS_BEFORE),
        (364.9, (1, 1, 0), DETAILS_BEFORE),
        (365.1, (0, 0, 0), DETAILS_BEFORE),
        (729.9, (0, 0, 0), DETAILS_BEFORE),
        (730.1, (0, 0, 0), DETAILS_AFTER),
    ):
        await prune_after(world, days)
        for payment in payments:
            assert (await count_rows(world, payment), await read_details(world, payment)) == (
                expected_rows,
                expected_details,
            )
    assert {await world.status(payment) for payment in payments} == {"PAID"}
    assert await world.perform(CheckLedger()) == []
    assert (await request_refund(world, payments[0])).status == "PENDING"


@pytest.mark.parametrize("detail", DETAILS)
async def test_each_payer_detail_is_deleted_even_if_no_other_is_set(
    world: World, detail: str
) -> None:
    unset_details = {
        name: none for name, none in zip(DETAILS, DETAILS_AFTER, strict=True) if name != detail
    }
    payment = await buy(world, **unset_details)
    assert await read_details(world, payment) != DETAILS_AFTER
    await prune_after(world, 731)
    assert await read_details(world, payment) == DETAILS_AFTER


async def test_data_without_a_retention_period_is_kept(world: World) -> None:
    payment = await buy(world)
    await prune_after(world, 30_000, dict.fromkeys(DAYS, 0))
    assert (await count_rows(world, payment), await read_details(world, payment)) == (
        (1, 1, 1),
        DETAILS_BEFORE,
    )


async def test_an_undelivered_event_and_its_attempts_are_kept(world: World) -> None:
    payment = await buy(world)
    await world.rows("UPDATE delivery SET state = 'pending'")
    await prune_after(world, 1_000)
    assert await count_rows(world, payment) == (1, 1, 1)
    await world.rows("UPDATE delivery SET state = 'dead'")
    await prune_after(world, 1_000)
    assert await count_rows(world, payment) == (0, 0, 0)


async def test_details_of_an_unfinished_payment_are_kept(world: World) -> None:
    payment = await world.create(payer_email="ann@example.com", expires_in_s=86_400)
    await world.select(payment)
    await prune_after(world, 1_000)
    assert (await read_details(world, payment))[0] == "ann@example.com"


async def test_events_and_details_are_kept_while_a_refund_is_pending(world: World) -> None:
    payment = await buy(world)
    refund = await request_refund(world, payment, "10")
    await prune_after(world, 1_000)
    assert (await count_rows(world, payment))[:2] == (1, 1)
    assert await read_details(world, payment) == DETAILS_BEFORE
    await process_due_refunds(world)
    await send_refund_callback(world, refund.id, DONE)
    assert await world.status(payment) == "PARTIALLY_REFUNDED"
    await prune_after(world, 1_001)
    assert await read_details(world, payment) == DETAILS_BEFORE  # the payment was updated a day ago
    await prune_after(world, 1_731)
    assert (await count_rows(world, payment), await read_details(world, payment)) == (
        (0, 0, 0),
        DETAILS_AFTER,
    )


async def _dispute(world: World, payment: Payment, state: DisputeState) -> None:
    report = DisputeReport(
        reference=f"du-{payment.id}",
        capture=f"cap-{payment.id}",
        state=state,
        funds=DisputedFunds.UNTOUCHED,
        amount_minor=159000,
        currency="THB",
        reason="fraudulent",
        respond_by=None,
    )
    callback = VerifiedCallback(id=uuid4().hex, dispute=report)
    await world.service.callback_receiver.receive(world.account_id, callback, b"raw body")


async def test_events_and_details_are_kept_while_a_dispute_or_case_is_open(world: World) -> None:
    payment = await buy(world)
    await _dispute(world, payment, DisputeState.OPEN)
    await world.rows(
        "UPDATE money_case SET status = 'ACCEPTED', closed_at = clock(), closed_by = 'test'"
    )  # only the dispute is open
    await prune_after(world, 1_000)
    assert ((await count_rows(world, payment))[:2], await read_details(world, payment)) == (
        (1, 1),
        DETAILS_BEFORE,
    )
    await world.rows("UPDATE dispute SET state = 'won'")
    await world.rows("UPDATE money_case SET status = 'OPEN', closed_at = NULL, closed_by = NULL")
    await prune_after(world, 1_000)
    assert ((await count_rows(world, payment))[:2], await read_details(world, payment)) == (
        (1, 1),
        DETAILS_BEFORE,
    )
    [case] = await world.perform(ListCases())
    await world.perform(ResolveCase(case_id=case.id, resolution="accept", note="it was won"))
    await prune_after(world, 2_000)
    assert (await count_rows(world, payment), await read_details(world, payment)) == (
        (0, 0, 0),
        DETAILS_AFTER,
    )


async def test_a_feed_cursor_of_a_deleted_event_remains_valid(world: World) -> None:
    database, merchant_id = world.database, world.merchant_id
    await buy(world)
    await feed_store.number_new_events(database, merchant_id)
    page = await feed_store.read_page(database, merchant_id, feed_store.FEED_START, EVERY, 10)
    await prune_after(world, 1_000)
    assert await world.rows("SELECT id FROM event") == []
    after = page.cursor
    assert await feed_store.is_valid_cursor(database, merchant_id, after)
    ahead = feed_store.FeedCursor(after.number + 1, after.event_id)
    assert not await feed_store.is_valid_cursor(database, merchant_id, ahead)
    await world.move_clock(0)
    newer = await buy(world)
    await feed_store.number_new_events(database, merchant_id)
    next_page = await feed_store.read_page(database, merchant_id, after, EVERY, 10)
    [event] = next_page.events
    assert event.feed_position == 2
    assert ids.format_id(ids.PAYMENT, newer.id) in event.body
    unknown_cursor = feed_store.FeedCursor(2, uuid4())  # from a database before a restore
    assert not await feed_store.is_valid_cursor(database, merchant_id, unknown_cursor)


EVERY = ("payment.completed", "payment.failed", "payment.expired", "payment.cancelled")


async def test_retention_shows_the_due_rows_without_deleting_them(world: World) -> None:
    payments = [await buy(world) for _ in range(3)]
    await request_refund(world, payments[0], "10")
    await world.move_clock(731 * DAY_S)
    retention = await world.perform(ShowRetention())
    assert retention == await world.perform(ShowRetention())
    assert retention == [
        DueRetention(rule=RetentionRule.ATTEMPTS, days=90, due=3, more=False),
        DueRetention(rule=RetentionRule.EVENTS, days=365, due=2, more=False),
        DueRetention(rule=RetentionRule.PAYER_ADDRESSES, days=90, due=0, more=False),
        DueRetention(rule=RetentionRule.PAYER_DETAILS, days=730, due=2, more=False),
        DueRetention(rule=RetentionRule.PAYERS, days=3650, due=0, more=False),
    ]
    before = {rule: PRUNED.labels(rule)._value.get() for rule in DAYS}
    assert await prune_step(world.database, DAYS, 10) is False
    deleted = {rule: PRUNED.labels(rule)._value.get() - before[rule] for rule in DAYS}
    assert deleted == {item.rule: item.due for item in retention}
    assert [item.due for item in await world.perform(ShowRetention())] == [0, 0, 0, 0, 0]


async def test_a_batch_respects_its_limit_and_skips_locked_rows(
    world: World,
) -> None:
    payments = [await buy(world) for _ in range(3)]
    await world.move_clock(731 * DAY_S)
    database = world.database
    holder = await world.open_connection()
    try:
        transaction = holder.transaction()
        await transaction.start()
        await holder.execute("SELECT FROM payment WHERE id = $1 FOR UPDATE", payments[0].id)
        only = {RetentionRule.PAYER_DETAILS: 730}
        assert await prune_step(database, only, 1) is True
        assert await read_details(world, payments[1]) == DETAILS_AFTER
        assert await read_details(world, payments[2]) == DETAILS_BEFORE
        assert await prune_step(database, only, 10) is False
        assert await read_details(world, payments[0]) == DETAILS_BEFORE
        await transaction.rollback()
    finally:
        await holder.close()
    assert await prune_step(database, only, 10) is False
    assert await read_details(world, payments[0]) == DETAILS_AFTER


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"events_days": 29}, "EVENTS_DAYS must be 0 or at least 30"),
        ({"events_days": 731}, "EVENTS_DAYS must be at most PAYINTENT_PAYER_DETAILS_DAYS"),
        ({"events_days": 0}, r"PAYER_DETAILS_DAYS and not 0 \(forever\)"),
    ],
)
def test_inconsistent_retention_periods_are_rejected(
    settings: Settings, changes: dict[str, int], message: str
) -> None:
    values = settings.model_dump() | {"database_url": settings.database_url, "chain_watched_s": 60}
    with pytest.raises(ValidationError, match=message):
        Settings.model_validate(values | changes)
    Settings.model_validate(values | {"events_days": 0, "payer_details_days": 0})
