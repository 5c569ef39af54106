"""Gateway reports take effect once, and a terminal payment does not change."""

from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from payintent.gateways.port import GatewaySessionState, SessionReport
from payintent.merchants.taxes import set_tax_rate
from payintent.payments.cancel import cancel_by_merchant
from payintent.payments.model import Payment
from tests.callbacks.test_receive import tell
from tests.payment_sessions.test_inquire_sessions import crash_in_selection
from tests.payments.test_expire import TTL_S, inquire_all, sweep
from tests.refunds.refund_setup import process_due_refunds, request_refund
from tests.support.fakes import captured, declined
from tests.support.world import World

pytestmark = pytest.mark.slow

TABLES = ("payment", "session", "capture", "refund", "money_case", "event", "delivery")
Start = Callable[[World], Awaitable[tuple[Payment, UUID]]]


def reports(start: str) -> list[SessionReport]:
    """List all reports; each initial state has separate captures."""
    return [
        *(
            SessionReport(state=state)
            for state in GatewaySessionState
            if state is not GatewaySessionState.CAPTURED
        ),
        captured(159000, reference=f"{start}-exact"),
        captured(159000, reference=f"{start}-second"),
        captured(158999, reference=f"{start}-less"),
        captured(159000, currency="USD", reference=f"{start}-dollars"),
        declined(),
    ]


async def snapshot(world: World) -> dict[str, list[Any]]:
    return {table: await world.rows(f"SELECT * FROM {table} ORDER BY 1") for table in TABLES}


async def _processing(world: World) -> tuple[Payment, UUID]:
    payment = await world.create()
    return payment, (await world.select(payment)).session.id


async def _paid(world: World) -> tuple[Payment, UUID]:
    payment, session_id = await _processing(world)
    await world.report(payment, session_id, captured(159000, reference="paid"))
    return payment, session_id


async def _failed(world: World) -> tuple[Payment, UUID]:
    payment, session_id = await _processing(world)
    await world.report(payment, session_id, declined())
    return payment, session_id


async def _expired(world: World) -> tuple[Payment, UUID]:
    payment, session_id = await _processing(world)
    await world.move_clock(TTL_S)
    await sweep(world)
    await inquire_all(world)
    return payment, session_id


async def _cancelled(world: World) -> tuple[Payment, UUID]:
    payment, session_id = await crash_in_selection(world)
    async with world.database.transaction() as tx:
        await cancel_by_merchant(tx, payment, None)
    return payment, session_id


async def _replaced(world: World) -> tuple[Payment, UUID]:
    payment, session_id = await _processing(world)
    await world.select(payment, world.transfer)
    return payment, session_id


async def _refunded(world: World, amount: str | None) -> tuple[Payment, UUID]:
    payment, session_id = await _paid(world)
    await request_refund(world, payment, amount)
    await process_due_refunds(world)
    return payment, session_id


async def _partially_refunded(world: World) -> tuple[Payment, UUID]:
    return await _refunded(world, "590.00")


async def _fully_refunded(world: World) -> tuple[Payment, UUID]:
    return await _refunded(world, None)


STARTS: dict[str, Start] = {
    "opening": crash_in_selection,
    "processing": _processing,
    "paid": _paid,
    "partly": _partially_refunded,
    "wholly": _fully_refunded,
    "failed": _failed,
    "expired": _expired,
    "cancelled": _cancelled,
    "replaced": _replaced,
}
ENDS = {
    "paid": "PAID",
    "partly": "PARTIALLY_REFUNDED",
    "wholly": "REFUNDED",
    "failed": "FAILED",
    "expired": "EXPIRED",
    "cancelled": "CANCELLED",
}


@pytest.mark.parametrize("start", STARTS)
async def test_a_repeated_report_takes_effect_once(world: World, start: str) -> None:
    for number, report in enumerate(reports(start)):
        payment, session_id = await STARTS[start](world)
        await tell(world, session_id, report, name=f"{number}")
        first_snapshot = await snapshot(world)
        await tell(world, session_id, report, name=f"{number}")
        if report.state is not GatewaySessionState.ATTEMPTED:  # two such reports are two attempts
            await world.report(payment, session_id, report)
        assert await snapshot(world) == first_snapshot, report
        await world.rows("DELETE FROM refund")
        await world.rows("DELETE FROM money_case")
        await world.rows("DELETE FROM capture")  # the next iteration reports the same captures


@pytest.mark.parametrize("start", ENDS)
async def test_reports_do_not_change_an_ended_payment(world: World, start: str) -> None:
    payment, session_id = await STARTS[start](world)
    before, events = (await world.read(payment)).payment, await world.events(payment)
    assert before.status == ENDS[start]
    for report in reports(start):
        await world.report(payment, session_id, report)
        assert (await world.read(payment)).payment == before
    assert await world.events(payment) == events
    assert len(events) == 1
    captures = await world.rows("SELECT 1 FROM capture WHERE NOT credited")
    assert len(captures) == len(await world.cases(payment)) == 4


async def test_a_selected_quote_keeps_its_fees_and_taxes_after_they_change(world: World) -> None:
    await world.rows("UPDATE merchant SET tax_manager = 'SERVICE'")
    payment = await world.create(tax_manager="SERVICE")
    first_selection = await world.select(payment, country="TH")
    async with world.database.transaction() as tx:
        await set_tax_rate(tx, "TH", Decimal("0.07"))
    await world.rows("UPDATE payment_method SET fee_rate = 0.5, fee_mode = 'EXCLUSIVE'")
    stored = await world.read(payment)
    assert stored.session is not None
    assert stored.session.quote == first_selection.session.quote
    second_selection = await world.select(payment, country="TH")
    assert second_selection.session.quote.price.estimated_tax == "111.30"
    assert second_selection.session.quote.price.total_amount == "2496.30"
    assert (await world.read(payment)).payment.session_id == second_selection.session.id
    await world.report(
        payment, second_selection.session.id, captured(159000, reference="old price")
    )
    assert await world.status(payment) == "FAILED"
