"""The ledger entries of each fact."""

from collections import Counter
from dataclasses import replace
from uuid import UUID

import pytest

from payintent.accounting.model import (
    CapturedMoney,
    Charges,
    Fact,
    GatewayPayout,
    LedgerEntry,
    get_quoted_charges,
    make_assignment_entries,
    make_capture_entries,
    make_case_entries,
    make_dispute_entries,
    make_gateway_payout_entries,
    make_refund_entry,
)
from payintent.accounting.sweep_model import SweptMoney, make_sweep_entries
from payintent.gateways.port import DisputeState
from payintent.merchants.model import FeeMode, Price

ID = UUID(int=1)
PAID = CapturedMoney(
    capture_id=ID, account_id=3, currency="USD", chain=None, merchant_id=7, credited=True
)
STRAY = CapturedMoney(
    capture_id=ID, account_id=3, currency="USD", chain=None, merchant_id=7, credited=False
)
UNASSIGNED = CapturedMoney(
    capture_id=ID, account_id=3, currency="USD", chain=None, merchant_id=None, credited=False
)
TOKEN = CapturedMoney(
    capture_id=ID, account_id=4, currency="USDT", chain="bnb", merchant_id=7, credited=True
)
PAID_OUT = GatewayPayout(
    id=ID, account_id=3, merchant_id=None, amount_minor=90, fee_minor=10, currency="USD", chain=None
)
SWEPT = SweptMoney(
    sweep_id=ID,
    account_id=4,
    merchant_id=7,
    currency="USDT",
    chain="bnb",
    deposited_minor=100,
    received_minor=97,
)
CHARGES = Charges(fee_minor=3, tax_minor=7)
GATEWAY, PAYABLE, SUSPENSE = "gateway_clearing:3", "merchant_payable:7", "suspense:3"
RESERVE, DISPUTED = "refund_reserve:3", "dispute_reserve:3"

Row = tuple[str, str, str, str, int]


def rows(entries: list[LedgerEntry]) -> list[Row]:
    return [(e.fact, e.leg, e.debit, e.credit, e.amount_minor) for e in entries]


TABLE: list[tuple[str, list[LedgerEntry], list[Row]]] = [
    ("credited", make_capture_entries(PAID, 100, CHARGES), [
        ("capture", "payable", GATEWAY, PAYABLE, 90),
        ("capture", "fee", GATEWAY, "fee_income", 3),
        ("capture", "tax", GATEWAY, "tax_payable", 7)]),
    ("on a chain", make_capture_entries(TOKEN, 100, Charges(0, 0)), [
        ("capture", "payable", "chain_receiver:4", PAYABLE, 100)]),
    ("equal to the fee", make_capture_entries(PAID, 3, Charges(3, 0)), [
        ("capture", "fee", GATEWAY, "fee_income", 3)]),
    ("less than the fee", make_capture_entries(PAID, 2, Charges(3, 0)), [
        ("capture", "payable", PAYABLE, GATEWAY, 1),
        ("capture", "fee", GATEWAY, "fee_income", 3)]),
    ("without a payment", make_capture_entries(STRAY, 100, CHARGES), [
        ("capture", "suspense", GATEWAY, SUSPENSE, 100)]),
    ("without money", make_capture_entries(STRAY, 0, Charges(0, 0)), []),
    ("assigned", make_assignment_entries(PAID, 100, CHARGES), [
        ("capture_adopted", "payable", SUSPENSE, PAYABLE, 90),
        ("capture_adopted", "fee", SUSPENSE, "fee_income", 3),
        ("capture_adopted", "tax", SUSPENSE, "tax_payable", 7)]),
    ("assigned but not credited", make_assignment_entries(STRAY, 100, CHARGES), []),
    ("reserved", [make_refund_entry(Fact.REFUND_RESERVED, PAID, ID, 5)], [
        ("refund_reserved", "whole", PAYABLE, RESERVE, 5)]),
    ("done", [make_refund_entry(Fact.REFUND_DONE, PAID, ID, 5)], [
        ("refund_done", "whole", RESERVE, GATEWAY, 5)]),
    ("failed", [make_refund_entry(Fact.REFUND_REVERSED, PAID, ID, 5)], [
        ("refund_reversed", "whole", RESERVE, PAYABLE, 5)]),
    ("reserved for a case", [make_refund_entry(Fact.REFUND_RESERVED, STRAY, ID, 5)], [
        ("refund_reserved", "whole", SUSPENSE, RESERVE, 5)]),
    ("failed for a case", [make_refund_entry(Fact.REFUND_REVERSED, STRAY, ID, 5)], [
        ("refund_reversed", "whole", RESERVE, SUSPENSE, 5)]),
    ("done on a chain", [make_refund_entry(Fact.REFUND_DONE, TOKEN, ID, 5)], [
        ("refund_done", "whole", "refund_reserve:4", "chain_receiver:4", 5)]),
    ("accepted", make_case_entries(Fact.CASE_ACCEPTED, STRAY, ID, 9), [
        ("case_accepted", "whole", SUSPENSE, PAYABLE, 9)]),
    ("accepted without a merchant", make_case_entries(Fact.CASE_ACCEPTED, UNASSIGNED, ID, 9), []),
    ("dismissed", make_case_entries(Fact.CASE_DISMISSED, UNASSIGNED, ID, 9), [
        ("case_dismissed", "whole", SUSPENSE, GATEWAY, 9)]),
    ("paid out by a gateway", make_gateway_payout_entries(PAID_OUT), [
        ("gateway_payout", "whole", "bank", GATEWAY, 90),
        ("gateway_payout", "fee", "fee_income", GATEWAY, 10)]),
    ("gateway payout reversed", make_gateway_payout_entries(PAID_OUT, is_reversal=True), [
        ("gateway_payout", "reversed", GATEWAY, "bank", 90),
        ("gateway_payout", "fee_reversed", GATEWAY, "fee_income", 10)]),
    ("negative gateway payout",
        make_gateway_payout_entries(replace(PAID_OUT, amount_minor=-4, fee_minor=0)), [
        ("gateway_payout", "whole", GATEWAY, "bank", 4)]),
    ("negative gateway payout reversed",
        make_gateway_payout_entries(
            replace(PAID_OUT, amount_minor=-4, fee_minor=-1), is_reversal=True), [
        ("gateway_payout", "reversed", "bank", GATEWAY, 4),
        ("gateway_payout", "fee_reversed", "fee_income", GATEWAY, 1)]),
    ("paid out to the account's merchant",
        make_gateway_payout_entries(replace(PAID_OUT, merchant_id=7)), [
        ("gateway_payout", "whole", PAYABLE, GATEWAY, 90),
        ("gateway_payout", "fee", PAYABLE, GATEWAY, 10)]),
    ("paid out from a contract's receiver",
        make_gateway_payout_entries(replace(
            PAID_OUT, account_id=4, fee_minor=0, currency="USDT", chain="bnb")), [
        ("gateway_payout", "whole", "bank", "chain_receiver:4", 90)]),
    ("captured at a deposit address",
        make_capture_entries(replace(TOKEN, is_deposit=True), 100, Charges(0, 0)), [
        ("capture", "payable", "chain_deposits:4", PAYABLE, 100)]),
    ("swept", make_sweep_entries(SWEPT, {}, 0), [
        ("sweep", "1", "chain_receiver:4", "chain_deposits:4", 97),
        ("sweep", "2", "chain_gas:4", "chain_deposits:4", 3)]),
    ("swept with an unrecorded transfer",
        make_sweep_entries(replace(SWEPT, received_minor=120), {}, 0), [
        ("sweep", "1", "chain_receiver:4", "chain_deposits:4", 100)]),
    ("swept before a deposit was found",
        make_sweep_entries(SWEPT, {"chain_receiver:4": 60, "chain_deposits:4": -60}, 1), [
        ("sweep", "2", "chain_receiver:4", "chain_deposits:4", 37),
        ("sweep", "3", "chain_gas:4", "chain_deposits:4", 3)]),
    ("swept before the sweep was found",
        make_sweep_entries(replace(SWEPT, deposited_minor=50), {"chain_receiver:4": 97}, 1), [
        ("sweep", "2", "chain_deposits:4", "chain_receiver:4", 47)]),
    ("resolved without money", make_case_entries(Fact.CASE_DISMISSED, STRAY, ID, 0), []),
]  # fmt: skip


@pytest.mark.parametrize(("entries", "expected"), [case[1:] for case in TABLE],
    ids=[case[0] for case in TABLE])  # fmt: skip
def test_each_fact_creates_its_entries(entries: list[LedgerEntry], expected: list[Row]) -> None:
    assert rows(entries) == expected
    assert {(e.currency, e.chain) for e in entries} <= {("USD", None), ("USDT", "bnb")}


HELD = {PAYABLE: 50, DISPUTED: -50}
TAKEN = {PAYABLE: 50, GATEWAY: -50}
DISPUTES: list[tuple[CapturedMoney, DisputeState, int, dict[str, int], list[Row]]] = [
    (PAID, DisputeState.INQUIRY, 50, {}, []),
    (PAID, DisputeState.OPEN, 50, {}, [("dispute_opened", "3", PAYABLE, DISPUTED, 50)]),
    (PAID, DisputeState.OPEN, 0, {}, []),
    (PAID, DisputeState.UNDER_REVIEW, 50, HELD, []),
    (PAID, DisputeState.OPEN, 70, HELD, [("dispute_opened", "3", PAYABLE, DISPUTED, 20)]),
    (PAID, DisputeState.OPEN, 20, HELD, [("dispute_won", "3", DISPUTED, PAYABLE, 30)]),
    (PAID, DisputeState.LOST, 50, HELD, [("dispute_lost", "3", DISPUTED, GATEWAY, 50)]),
    (PAID, DisputeState.LOST, 50, {}, [("dispute_lost", "3", PAYABLE, GATEWAY, 50)]),
    (PAID, DisputeState.LOST, 70, HELD, [
        ("dispute_lost", "3", DISPUTED, GATEWAY, 50), ("dispute_lost", "4", PAYABLE, GATEWAY, 20)]),
    (PAID, DisputeState.WON, 50, HELD, [("dispute_won", "3", DISPUTED, PAYABLE, 50)]),
    (PAID, DisputeState.CLOSED, 50, HELD, [("dispute_won", "3", DISPUTED, PAYABLE, 50)]),
    (PAID, DisputeState.WON, 50, TAKEN, [("dispute_won", "3", GATEWAY, PAYABLE, 50)]),
    (STRAY, DisputeState.OPEN, 50, {}, [("dispute_opened", "3", SUSPENSE, DISPUTED, 50)]),
    (PAID, DisputeState.OPEN, 50, {SUSPENSE: 50, DISPUTED: -50}, [
        ("dispute_moved", "3", PAYABLE, SUSPENSE, 50)]),
]  # fmt: skip


@pytest.mark.parametrize(("money", "state", "amount", "recorded", "expected"), DISPUTES)
def test_a_dispute_report_records_only_changes(
    money: CapturedMoney,
    state: DisputeState,
    amount: int,
    recorded: dict[str, int],
    expected: list[Row],
) -> None:
    entries = make_dispute_entries(money, ID, state, amount, recorded, 2)
    assert rows(entries) == expected
    after = Counter(recorded)
    for entry in entries:
        after[entry.debit] += entry.amount_minor
        after[entry.credit] -= entry.amount_minor
    balances = {account: value for account, value in after.items() if value}
    assert make_dispute_entries(money, ID, state, amount, balances, 4) == [], (
        "the same report was recorded twice"
    )


@pytest.mark.parametrize(
    ("fee", "tax", "total", "total_minor", "charges"),
    [
        ("46.11", "0", "1590.00", 159000, Charges(4611, 0)),
        ("29", "70", "1099", 1099, Charges(29, 70)),
        (
            "0.000000000000000001",
            "0",
            "123456789012345678.123456789012345678",
            123456789012345678123456789012345678,
            Charges(1, 0),
        ),
    ],
)
def test_quoted_charges_have_the_same_units_as_the_total(
    fee: str, tax: str, total: str, total_minor: int, charges: Charges
) -> None:
    price = Price(
        currency="THB",
        amount=total,
        fee_mode=FeeMode.INCLUSIVE,
        fee_rate="0",
        fee_amount=fee,
        estimated_tax=tax,
        total_amount=total,
    )
    assert get_quoted_charges(price, total_minor) == charges
