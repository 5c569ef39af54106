"""The ledger operations: balances, the check, and the backfill of facts older than the ledger."""

from typing import Any

import asyncpg
import pytest
from prometheus_client import REGISTRY

from payintent.accounting.ledger_operations import (
    AdjustLedger,
    BackfillLedger,
    CheckLedger,
    ShowLedger,
)
from payintent.callbacks.receive import apply_deferred_callbacks
from payintent.cases.operations import ListCases
from payintent.gateways.port import DisputeState
from payintent.refunds.resolve_case import ResolveCase
from payintent.worker_metrics import check_ledger
from tests.callbacks.test_receive import add_session, selected, tell
from tests.disputes.test_record import hear as hear_dispute
from tests.disputes.test_record import report as dispute
from tests.refunds.refund_gateway import RefundGateway
from tests.refunds.refund_setup import (
    DECLINED,
    create_paid_payment,
    process_due_refunds,
    request_refund,
    send_refund_callback,
)
from tests.support.fakes import FakeGateway, captured, declined
from tests.support.world import World

ENTRIES = "SELECT fact_id, fact, leg, merchant_id, debit, credit, amount, currency, chain"
ENTRIES += " FROM ledger_entry ORDER BY fact_id, fact, leg"


@pytest.fixture
def gateway() -> FakeGateway:
    return RefundGateway()


async def delete_entries(world: World, condition: str = "true") -> None:
    """Delete entries as the table owner, because the service cannot."""
    connection: asyncpg.Connection = await world.open_connection()
    await connection.execute(
        f"""
        ALTER TABLE ledger_entry DISABLE TRIGGER ledger_append_only;
        DELETE FROM ledger_entry WHERE {condition};
        ALTER TABLE ledger_entry ENABLE TRIGGER ledger_append_only;
        """
    )
    await connection.close()


async def resolve(world: World, kind: str, resolution: Any) -> None:
    cases = await world.perform(ListCases(status="OPEN"))
    [case] = [case for case in cases if case.kind == kind]
    await world.perform(ResolveCase(case_id=case.id, resolution=resolution, note="looked at"))


async def report_stray_capture(world: World, reference: str) -> None:
    payment, session_id = await selected(world)
    await world.report(payment, session_id, declined())
    await world.report(payment, session_id, captured(159000, reference=reference))


async def create_every_fact(world: World) -> None:
    """Create every kind of fact that the ledger records."""
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment, "590.00")
    await process_due_refunds(world)
    await send_refund_callback(world, refund.id)
    await send_refund_callback(world, (await request_refund(world, payment, "1.00")).id, DECLINED)
    await request_refund(world, payment, "2.00")
    for state in (DisputeState.OPEN, DisputeState.LOST):
        await hear_dispute(world, dispute(payment, state=state, amount_minor=50000))
    await hear_dispute(world, dispute(await create_paid_payment(world)))
    for number, resolution in enumerate(("accept", "dismiss", "refund")):
        await report_stray_capture(world, f"stray-{number}")
        await resolve(world, "LATE_PAYMENT", resolution)
    await report_stray_capture(world, "stray-that-waits")


async def balances(world: World) -> list[Any]:
    return await world.perform(ShowLedger())


async def test_a_backfill_creates_the_same_entries_as_live_recording(world: World) -> None:
    await create_every_fact(world)
    live = await balances(world)
    before = await world.rows(ENTRIES)
    times = await world.rows("SELECT fact_id, fact, leg, created_at FROM ledger_entry")
    await delete_entries(world)
    assert await world.perform(CheckLedger()) != []
    backfill = await world.perform(BackfillLedger())
    assert backfill.facts > 10
    assert await world.perform(CheckLedger()) == []
    entries = await world.rows(ENTRIES)
    # The backfill records a lost dispute in a single step.
    assert [row for row in entries if "dispute" not in row["fact"]] == [
        row for row in before if "dispute" not in row["fact"]
    ]
    assert get_nonzero_balances(await balances(world)) == get_nonzero_balances(live)
    later = await world.rows("SELECT fact_id, fact, leg, created_at FROM ledger_entry")
    captured_at = {row["created_at"] for row in times if row["fact"] == "capture"}
    assert {row["created_at"] for row in later if row["fact"] == "capture"} == captured_at


def get_nonzero_balances(lines: list[Any]) -> dict[str, str]:
    """Return the balances, without accounts whose balance is zero."""
    return {item.account: item.balance_minor for item in lines if item.balance_minor != "0"}


async def test_an_interrupted_backfill_continues_without_duplicates(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_every_fact(world)
    live = await balances(world)
    await delete_entries(
        world, "fact_id > (SELECT fact_id FROM ledger_entry ORDER BY 1 OFFSET 5 LIMIT 1)"
    )
    monkeypatch.setattr("payintent.accounting.ledger_operations._BATCH", 2)
    await world.perform(BackfillLedger())
    assert await world.perform(CheckLedger()) == []
    assert get_nonzero_balances(await balances(world)) == get_nonzero_balances(live)
    assert (await world.perform(BackfillLedger())).facts == 0


async def test_an_unrecorded_capture_that_pays_its_session_is_recorded_once(world: World) -> None:
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id)
    await delete_entries(world)
    await add_session(world, session_id)
    await apply_deferred_callbacks(world.database, 10)
    await world.perform(BackfillLedger())
    assert await world.perform(CheckLedger()) == []
    assert get_nonzero_balances(await balances(world)).keys() == {
        f"gateway_clearing:{world.account_id}",
        f"merchant_payable:{world.merchant_id}",
        "fee_income",
    }


async def test_unrecorded_refunds_and_disputes_that_end_later_are_fully_recorded(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment, "590.00")
    await hear_dispute(world, dispute(payment, amount_minor=50000))
    await delete_entries(world)
    await process_due_refunds(world)
    await send_refund_callback(world, refund.id)
    await hear_dispute(world, dispute(payment, amount_minor=50000, state=DisputeState.LOST))
    await world.perform(BackfillLedger())
    assert await world.perform(CheckLedger()) == []


async def test_balances_are_shown_by_merchant_and_currency(world: World) -> None:
    await create_paid_payment(world)
    second_merchant = await world.add_merchant()
    assert await world.perform(ShowLedger(merchant_id=second_merchant.merchant.id)) == []
    assert await world.perform(ShowLedger(currency="USD")) == []
    lines = await world.perform(ShowLedger(merchant_id=world.merchant_id, currency="THB"))
    assert [(item.account.partition(":")[0], item.balance_minor) for item in lines] == [
        ("fee_income", "-4611"),
        ("gateway_clearing", "159000"),
        ("merchant_payable", "-154389"),
    ]


async def test_a_worker_reports_ledger_differences_until_they_are_resolved(world: World) -> None:
    await create_paid_payment(world)
    await delete_entries(world, "leg = 'fee'")
    await check_ledger(world.service)
    assert REGISTRY.get_sample_value("payintent_ledger_imbalance_accounts") == 2
    await delete_entries(world)
    await world.perform(BackfillLedger())
    await check_ledger(world.service)
    assert REGISTRY.get_sample_value("payintent_ledger_imbalance_accounts") == 0


async def test_an_adjustment_is_recorded_and_causes_no_difference(world: World) -> None:
    await create_paid_payment(world)
    payable = f"merchant_payable:{world.merchant_id}"
    adjustment = await world.perform(
        AdjustLedger(
            debit=payable, credit="fee_income", amount_minor="150", currency="THB", note="a fee"
        )
    )
    assert (adjustment.merchant_id, adjustment.amount_minor) == (world.merchant_id, "150")
    lines = await world.perform(ShowLedger(merchant_id=world.merchant_id))
    assert get_nonzero_balances(lines) == {
        "fee_income": "-4761",
        f"gateway_clearing:{world.account_id}": "159000",
        payable: "-154239",
    }
    assert await world.perform(CheckLedger()) == []
