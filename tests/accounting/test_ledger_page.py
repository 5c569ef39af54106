"""The service creates the entries of every example in docs/operate/ledger.md."""

from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from payintent.accounting import ledger_check_store
from payintent.accounting.model import Fact
from payintent.accounting.payouts_operations import RecordGatewayPayout, RecordPayout
from payintent.callbacks.receive import apply_deferred_callbacks
from payintent.cases.operations import ListCases
from payintent.gateways.port import DisputeState
from payintent.merchants.model import TaxManager
from payintent.merchants.taxes import SetTaxRate
from payintent.refunds.resolve_case import ResolveCase
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

PAGE = (Path(__file__).parents[2] / "docs/operate/ledger.md").read_text()


@pytest.fixture
def gateway() -> FakeGateway:
    return RefundGateway()


async def _pay(world: World) -> None:
    await world.perform(SetTaxRate(country="US", rate=Decimal("0.07")))
    await world.rows("UPDATE payment_method SET fee_mode = 'EXCLUSIVE'")
    await create_paid_payment(world, tax_manager=TaxManager.SERVICE)


async def _refund(world: World) -> None:
    await request_refund(world, await create_paid_payment(world), "590.00")
    await process_due_refunds(world)
    [refund] = await world.rows("SELECT id FROM refund")
    await send_refund_callback(world, refund["id"])


async def _decline_refund(world: World) -> None:
    refund = await request_refund(world, await create_paid_payment(world), "590.00")
    await send_refund_callback(world, refund.id, DECLINED)


async def _lose_dispute(world: World) -> None:
    payment = await create_paid_payment(world)
    for state in (DisputeState.OPEN, DisputeState.LOST):
        await hear_dispute(world, dispute(payment, state=state))


async def _win_dispute(world: World) -> None:
    payment = await create_paid_payment(world)
    for state in (DisputeState.OPEN, DisputeState.WON):
        await hear_dispute(world, dispute(payment, state=state))


async def _report_late_capture(world: World) -> None:
    payment, session_id = await selected(world)
    await world.report(payment, session_id, declined())
    await world.report(payment, session_id, captured(159000, reference="stray"))


async def _resolve_case(world: World, resolution: Any) -> None:
    [case] = await world.perform(ListCases(status="OPEN"))
    await world.perform(ResolveCase(case_id=case.id, resolution=resolution, note="looked at"))


async def _refund_case(world: World) -> None:
    await _report_late_capture(world)
    await _resolve_case(world, "refund")
    await process_due_refunds(world)


async def _accept_case(world: World) -> None:
    await _report_late_capture(world)
    await _resolve_case(world, "accept")


async def _dismiss_case(world: World) -> None:
    await _report_late_capture(world)
    await _resolve_case(world, "dismiss")


async def _adopt_capture(world: World) -> None:
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id)
    await add_session(world, session_id)
    await apply_deferred_callbacks(world.database, 10)


async def _settle(world: World) -> None:
    await create_paid_payment(world)
    record = RecordGatewayPayout(
        account_id=world.account_id, amount="1560.00", fee="30.00", currency="THB", reference="po_1"
    )
    await world.perform(record)
    transfer = {"amount": "1543.89", "currency": "THB", "reference": "transfer 1"}
    await world.perform(RecordPayout(merchant_id=world.merchant_id, **transfer))


async def _pay_out_own_account(world: World) -> None:
    await create_paid_payment(world)
    await world.rows(f"UPDATE provider_account SET merchant_id = {world.merchant_id}")
    record = RecordGatewayPayout(
        account_id=world.account_id, amount="1560.00", fee="30.00", currency="THB", reference="po_1"
    )
    await world.perform(record)


FLOWS: dict[str, Callable[[World], Awaitable[None]]] = {
    "A payment is paid": _pay,
    "A payment is partially refunded": _refund,
    "A refund fails": _decline_refund,
    "A dispute is lost": _lose_dispute,
    "A dispute is won": _win_dispute,
    "A case is refunded": _refund_case,
    "A case is accepted": _accept_case,
    "A case is dismissed": _dismiss_case,
    "A capture arrives before its session": _adopt_capture,
    "A gateway payout is forwarded to the merchant": _settle,
    "A gateway pays out from a merchant's own account": _pay_out_own_account,
}


async def _tables(world: World) -> list[str]:
    """Format the entries and the account balances as the page does."""
    rows = await world.rows(
        "SELECT fact, debit, credit, amount FROM ledger_entry ORDER BY created_at, ctid"
    )
    table = ["| Fact | Debit | Credit | Amount |", "|---|---|---|--:|"]
    sides: dict[str, list[int]] = {}
    for row in rows:
        debit, credit, amount = (
            _format_account(row["debit"]),
            _format_account(row["credit"]),
            int(row["amount"]),
        )
        table.append(f"| `{row['fact']}` | `{debit}` | `{credit}` | {amount} |")
        for side, account in enumerate((debit, credit)):
            sides.setdefault(account, [0, 0])[side] += amount
    accounts = ["| Account | Debits | Credits | Balance |", "|---|--:|--:|--:|"]
    accounts += [
        f"| `{account}` | {debits or ''} | {credits_ or ''} | {debits - credits_} |"
        for account, (debits, credits_) in sides.items()
    ]
    return [*table, "", *accounts]


def _format_account(account: str) -> str:
    """Replace the id of an account with 1, because the page does."""
    kind, colon, _ = account.partition(":")
    return f"{kind}:1" if colon else kind


@pytest.mark.parametrize("flow", FLOWS)
async def test_each_documented_flow_creates_its_entries(world: World, flow: str) -> None:
    await FLOWS[flow](world)
    documented = PAGE.partition(f"### {flow}\n")[2].partition("\n#")[0]
    tables = "\n".join(await _tables(world))
    assert tables in documented, tables
    assert await ledger_check_store.find_differences(world.database) == []


def test_the_page_documents_every_flow_and_every_fact() -> None:
    tables, _, examples = PAGE.partition("## Examples\n")
    flows = examples.partition("\n## ")[0]
    assert [line[4:] for line in flows.splitlines() if line.startswith("### ")] == list(FLOWS)
    assert [fact for fact in Fact if f"| `{fact}` |" not in tables] == []
