"""The ledger records each fact once, and matches captures, refunds, disputes and cases."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from asyncpg import UniqueViolationError

from payintent.accounting import ledger_check_store, ledger_store
from payintent.accounting.ledger_check_store import LedgerDifference
from payintent.accounting.model import Fact, LedgerEntry
from payintent.callbacks.receive import apply_deferred_callbacks
from payintent.cases.model import CaseKind
from payintent.cases.operations import ListCases
from payintent.core.errors import ErrorCode, RefusedError
from payintent.disputes.record import record_dispute
from payintent.gateways.port import DisputeState, GatewayRefundState
from payintent.payment_sessions.settle import settle_session
from payintent.payments.model import Payment
from payintent.refunds.resolve_case import ResolveCase
from tests.callbacks.test_receive import EXACT, add_session, tell
from tests.disputes.test_record import hear as hear_dispute
from tests.disputes.test_record import report as dispute
from tests.payments.test_expire import sweep
from tests.refunds.refund_gateway import RefundGateway
from tests.refunds.refund_setup import (
    create_paid_payment,
    process_due_refunds,
    request_refund,
    send_refund_callback,
)
from tests.refunds.test_case_refunds import create_selected_payment
from tests.refunds.test_outside_refunds import make_report, send_callback
from tests.support.fakes import FakeGateway, captured, declined
from tests.support.race_staging import hold_transaction, wait_until_blocked
from tests.support.world import World

#: The account balances after a payment has been paid.
PAID = {"gateway_clearing": 159000, "merchant_payable": -154389, "fee_income": -4611}


@pytest.fixture
def gateway() -> FakeGateway:
    return RefundGateway()


async def entries(world: World) -> list[tuple[str, str, str, int]]:
    """Read all entries. Accounts are reduced to their kind, because their ids vary."""
    rows = await world.rows("SELECT fact, debit, credit, amount FROM ledger_entry ORDER BY ctid")
    return [(r["fact"], _kind(r["debit"]), _kind(r["credit"]), int(r["amount"])) for r in rows]


def _kind(account: str) -> str:
    return account.partition(":")[0]


async def matches_facts(world: World) -> bool:
    return await ledger_check_store.find_differences(world.database) == []


async def resolve(world: World, resolution: Any) -> None:
    [case] = await world.perform(ListCases(status="OPEN"))
    await world.perform(ResolveCase(case_id=case.id, resolution=resolution, note="looked at"))


async def test_a_payment_without_tax_credits_the_merchant_and_the_fee(world: World) -> None:
    await create_paid_payment(world)
    assert await entries(world) == [
        ("capture", "gateway_clearing", "merchant_payable", 154389),
        ("capture", "gateway_clearing", "fee_income", 4611),
    ]
    assert await matches_facts(world)


async def test_a_concurrent_second_settlement_waits_and_records_nothing(
    world: World,
) -> None:
    payment, session_id = await create_selected_payment(world)

    async def settle(tx: Any) -> None:
        await settle_session(tx, payment.id, session_id, EXACT)

    async def settle_again() -> None:
        async with world.database.transaction() as tx:
            await settle(tx)

    async with hold_transaction(world, settle) as first:
        second = asyncio.create_task(settle_again())
        await wait_until_blocked(world, second)
        await first.commit()
        await second
    assert [entry[0] for entry in await entries(world)] == ["capture", "capture"]


async def test_the_database_rejects_a_second_entry_for_the_same_fact(world: World) -> None:
    await create_paid_payment(world)
    [row] = await world.rows("SELECT * FROM ledger_entry WHERE leg = 'fee'")
    twin = LedgerEntry(
        fact=Fact(row["fact"]),
        fact_id=row["fact_id"],
        leg="fee",
        merchant_id=row["merchant_id"],
        debit=row["credit"],
        credit=row["debit"],
        amount_minor=1,
        currency="THB",
        chain=None,
    )
    with pytest.raises(UniqueViolationError):
        async with world.database.transaction() as tx:
            await ledger_store.add(tx, [twin])


async def test_a_refund_reported_twice_is_recorded_once(world: World) -> None:
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment, "590.00")
    await process_due_refunds(world)
    await send_refund_callback(world, refund.id)
    assert (await entries(world))[2:] == [
        ("refund_reserved", "merchant_payable", "refund_reserve", 59000),
        ("refund_done", "refund_reserve", "gateway_clearing", 59000),
    ]
    assert await matches_facts(world)


async def test_every_step_of_a_won_and_then_lost_dispute_is_recorded(
    world: World,
) -> None:
    payment = await create_paid_payment(world)
    for state in (DisputeState.INQUIRY, DisputeState.OPEN, DisputeState.WON, DisputeState.LOST):
        await hear_dispute(world, dispute(payment, state=state, amount_minor=50000))
        assert await matches_facts(world)
    assert (await entries(world))[2:] == [
        ("dispute_opened", "merchant_payable", "dispute_reserve", 50000),
        ("dispute_won", "dispute_reserve", "merchant_payable", 50000),
        ("dispute_lost", "merchant_payable", "gateway_clearing", 50000),
    ]


async def test_disputed_money_of_an_accepted_case_is_credited_to_the_merchant(world: World) -> None:
    payment, session_id = await create_selected_payment(world)
    await world.report(payment, session_id, declined())
    await world.report(payment, session_id, captured(159000, reference=f"cap-{payment.id}"))
    await hear_dispute(world, dispute(payment))
    cases = await world.perform(ListCases(status="OPEN"))
    [case] = [case for case in cases if case.kind != "DISPUTE"]
    await world.perform(ResolveCase(case_id=case.id, resolution="accept", note="sold"))
    assert await matches_facts(world)
    await hear_dispute(world, dispute(payment, state=DisputeState.WON))
    assert await matches_facts(world)
    assert await balances(world) == {"gateway_clearing": 159000, "merchant_payable": -159000}


async def balances(world: World) -> dict[str, int]:
    """Sum debits minus credits by account kind, without accounts whose sum is zero."""
    amounts: dict[str, int] = {}
    for _, debit, credit, amount in await entries(world):
        amounts[debit] = amounts.get(debit, 0) + amount
        amounts[credit] = amounts.get(credit, 0) - amount
    return {account: amount for account, amount in amounts.items() if amount}


async def test_the_ledger_balances_if_dismissed_money_later_pays_its_session(
    world: World,
) -> None:
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id)
    await resolve(world, "dismiss")
    assert await balances(world) == {}
    await add_session(world, session_id)
    await apply_deferred_callbacks(world.database, 10)
    assert await matches_facts(world)
    assert await balances(world) == PAID


@pytest.fixture
async def accepted_session_id(world: World) -> UUID:
    """Accept an orphan capture in a merchant's own account; return its session id."""
    await world.rows("UPDATE provider_account SET merchant_id = $1", world.merchant_id)
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id)
    await resolve(world, "accept")
    assert await balances(world) == {"gateway_clearing": 159000, "merchant_payable": -159000}
    return session_id


async def test_accepted_money_that_later_pays_its_session_is_credited_once(
    world: World, accepted_session_id: UUID
) -> None:
    payment = await add_session(world, accepted_session_id)
    await apply_deferred_callbacks(world.database, 10)
    assert await world.status(payment) == "PAID"
    assert await matches_facts(world)
    assert await balances(world) == PAID
    [case] = await world.perform(ListCases(status="ALL"))
    assert (case.status, case.closed_by) == ("DISMISSED", "policy:session_appeared")
    assert "ACCEPTED" in case.note


async def test_accepted_money_that_is_too_late_for_its_session_reopens_a_case(
    world: World, accepted_session_id: UUID
) -> None:
    payment = await add_session(world, accepted_session_id)
    await world.move_clock(1801)
    await sweep(world)
    await world.rows("UPDATE session SET life = 'ended', outcome = 'closed', ended_at = clock()")
    await sweep(world)
    await apply_deferred_callbacks(world.database, 10)
    assert await world.cases(payment) == ["ORPHAN_CAPTURE"]
    assert await balances(world) == {"gateway_clearing": 159000, "suspense": -159000}
    await resolve(world, "accept")
    assert await balances(world) == {"gateway_clearing": 159000, "merchant_payable": -159000}
    assert await matches_facts(world)


async def test_closing_a_case_waits_for_a_concurrent_dispute(world: World) -> None:
    payment, session_id = await create_selected_payment(world)
    await world.report(payment, session_id, declined())
    await world.report(payment, session_id, captured(159000, reference=f"cap-{payment.id}"))
    report = dispute(payment)
    async with hold_transaction(
        world, lambda tx: record_dispute(tx, world.account_id, report)
    ) as first:
        closing = asyncio.create_task(resolve(world, "accept"))
        await wait_until_blocked(world, closing)
        await first.commit()
        await closing
    assert await matches_facts(world)
    assert await balances(world) == {"gateway_clearing": 159000, "dispute_reserve": -159000}


async def test_money_that_pays_its_session_cannot_be_accepted_concurrently(world: World) -> None:
    await world.rows("UPDATE provider_account SET merchant_id = $1", world.merchant_id)
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id)
    payment = await add_session(world, session_id)
    async with hold_transaction(
        world, lambda tx: settle_session(tx, payment.id, session_id, EXACT)
    ) as first:
        closing = asyncio.create_task(resolve(world, "accept"))
        await wait_until_blocked(world, closing)
        await first.commit()
        [refused] = await asyncio.gather(closing, return_exceptions=True)
    assert isinstance(refused, RefusedError)
    assert refused.code is ErrorCode.CONFLICT
    assert await balances(world) == PAID


async def test_accepted_money_in_a_platform_account_stays_in_suspense(world: World) -> None:
    await tell(world, world.id_generator.new_session_id())
    await resolve(world, "accept")
    assert await balances(world) == {"gateway_clearing": 159000, "suspense": -159000}
    assert await matches_facts(world)


async def test_the_ledger_check_reports_exact_differences(
    world: World,
) -> None:
    await create_paid_payment(world)
    await world.rows("UPDATE capture SET amount_minor = amount_minor + 1")
    differences = await ledger_check_store.find_differences(world.database)
    clearing, payable = (
        f"gateway_clearing:{world.account_id}",
        f"merchant_payable:{world.merchant_id}",
    )
    assert differences == [
        LedgerDifference(
            account=clearing,
            currency="THB",
            chain=None,
            ledger_minor="159000",
            facts_minor="159001",
        ),
        LedgerDifference(
            account=payable,
            currency="THB",
            chain=None,
            ledger_minor="-154389",
            facts_minor="-154390",
        ),
    ]


async def report_unassigned_money(world: World) -> Payment:
    """Report money that arrives after its payment has failed."""
    payment, session_id = await create_selected_payment(world)
    await world.report(payment, session_id, declined())
    await world.report(payment, session_id, captured(159000, reference=f"cap-{payment.id}"))
    return payment


_RESOLUTIONS = pytest.mark.parametrize("resolution", ["accept", "dismiss"])


@_RESOLUTIONS
async def test_money_of_a_closed_case_that_the_gateway_returns_is_owed_to_nobody(
    world: World, resolution: Any
) -> None:
    payment = await report_unassigned_money(world)
    await resolve(world, resolution)
    await send_callback(world, make_report(payment, 59000))
    await send_callback(world, make_report(payment, 100000, reference="re_2"))
    assert await balances(world) == {}
    assert await matches_facts(world)


@_RESOLUTIONS
async def test_the_money_of_a_refund_that_fails_after_its_case_was_closed_follows_the_case(
    world: World, resolution: Any
) -> None:
    payment = await report_unassigned_money(world)
    refund = make_report(payment, 59000, state=GatewayRefundState.PENDING)
    await send_callback(world, refund)
    [case] = await world.perform(ListCases(kind=CaseKind.LATE_PAYMENT))
    await world.perform(ResolveCase(case_id=case.id, resolution=resolution, note="looked at"))
    assert await matches_facts(world)
    await send_callback(world, replace(refund, state=GatewayRefundState.DECLINED))
    assert await matches_facts(world)
    accepted = {"gateway_clearing": 159000, "merchant_payable": -159000}
    assert await balances(world) == (accepted if resolution == "accept" else {})


@pytest.mark.parametrize("states", [["open", "lost"], ["lost"], ["open", "won", "lost"]])
@pytest.mark.parametrize("closed_after", [0, 1, 2])
async def test_dismissed_money_that_a_dispute_takes_is_missing_once(
    world: World, states: list[str], closed_after: int
) -> None:
    payment = await report_unassigned_money(world)
    for position, state in enumerate([*states, states[-1]]):
        if position == closed_after:
            [case] = await world.perform(ListCases(kind=CaseKind.LATE_PAYMENT))
            await world.perform(ResolveCase(case_id=case.id, resolution="dismiss", note="gone"))
        await hear_dispute(world, dispute(payment, state=DisputeState(state)))
        assert await matches_facts(world)
    assert await balances(world) == {}
