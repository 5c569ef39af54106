"""After ten years, payments do not identify their payers, and the books are unchanged."""

import pytest

from payintent.accounting.close_statements import close_due_days
from payintent.accounting.ledger_operations import CheckLedger
from payintent.accounting.statements_operations import ExportStatement
from payintent.core import ids
from payintent.payments.model import Payment
from payintent.privacy.data_store import ERASED
from payintent.privacy.operations import ShowRetention
from payintent.privacy.retention_store import prune_step
from payintent.runtime.settings import RetentionRule, Settings
from tests.privacy.test_payer_erasure import DAY_S, buy, find_words, read_books
from tests.refunds.refund_setup import request_refund
from tests.support.world import World

_YEARS = 3650
_DAYS = {RetentionRule.EVENTS: 365, RetentionRule.PAYERS: _YEARS}


async def prune_after(
    world: World, days: float, retention: dict[RetentionRule, int] = _DAYS
) -> None:
    await world.move_clock(days * DAY_S)
    while await prune_step(world.database, retention, 2):
        pass


async def get_payer_uid(world: World, payment: Payment) -> str:
    [row] = await world.rows("SELECT payer_uid FROM payment WHERE id = $1", payment.id)
    return row["payer_uid"]


async def export_statements(world: World) -> list[str]:
    """Export every statement."""
    rows = await world.rows("SELECT id FROM statement ORDER BY number")
    statement_ids = [ids.format_id(ids.STATEMENT, row["id"]) for row in rows]
    exports = [await world.perform(ExportStatement(statement_id=item)) for item in statement_ids]
    return [export.text for export in exports]


async def test_after_ten_years_payers_are_erased_and_the_books_are_unchanged(world: World) -> None:
    payments = [await buy(world) for _ in range(3)]
    await world.move_clock(2 * DAY_S)
    while await close_due_days(world.database):
        pass
    books, statements = await read_books(world), await export_statements(world)
    columns = "SELECT id, amount, currency, status, refunded_amount, paid_at, updated_at, version"
    rows = await world.rows(f"{columns} FROM payment ORDER BY id")
    assert ids.format_id(ids.PAYMENT, payments[0].id) in statements[0]
    await prune_after(world, _YEARS - 0.1)
    assert {await get_payer_uid(world, payment) for payment in payments} == {"zora-17"}
    await prune_after(world, _YEARS + 0.1)
    assert {await get_payer_uid(world, payment) for payment in payments} == {ERASED}
    assert await find_words(world) == {}
    assert (await read_books(world), await export_statements(world)) == (books, statements)
    assert await world.rows(f"{columns} FROM payment ORDER BY id") == rows
    assert await world.perform(CheckLedger()) == []


async def test_a_payer_is_kept_while_a_refund_or_delivery_is_pending(world: World) -> None:
    pending, undelivered = [await buy(world) for _ in range(2)]
    await world.move_clock((_YEARS + 1) * DAY_S)
    await request_refund(world, pending, "10")
    await world.rows(
        "UPDATE delivery SET state = 'pending' FROM event e"
        " WHERE e.id = event_id AND e.payment_id = $1",
        undelivered.id,
    )
    await world.rows("UPDATE payment SET updated_at = paid_at")
    while await prune_step(world.database, _DAYS, 2):
        pass
    assert [await get_payer_uid(world, item) for item in (pending, undelivered)] == ["zora-17"] * 2
    await world.rows("UPDATE delivery SET state = 'delivered'")
    await prune_after(world, _YEARS + 1)
    assert [await get_payer_uid(world, item) for item in (pending, undelivered)] == [
        "zora-17",
        ERASED,
    ]


async def test_payers_due_for_erasure_are_counted(world: World) -> None:
    await buy(world)
    await prune_after(world, _YEARS + 1, {RetentionRule.EVENTS: 365})
    due = {item.rule: item.due for item in await world.perform(ShowRetention())}
    assert due[RetentionRule.PAYERS] == 1


@pytest.mark.parametrize(
    ("changes", "days"),
    [
        ({}, 3650),
        ({"payers_days": 0}, 0),
        ({"events_days": 0, "payer_details_days": 0}, 0),
        ({"events_days": 5000, "payer_details_days": 0}, 5000),
    ],
)
def test_payers_are_kept_at_least_as_long_as_events(
    settings: Settings, changes: dict[str, int], days: int
) -> None:
    assert settings.model_copy(update=changes).retention[RetentionRule.PAYERS] == days
