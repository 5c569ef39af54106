"""Ledger entries for each kind of fact. Amounts are in minor units, or smallest units for tokens.

An entry moves an amount from a credited to a debited account. Debits increase assets (clearing,
receivers) and decrease liabilities (payable, fee, tax, suspense, reserves).
`docs/operate/ledger.md` lists all facts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from uuid import UUID

from payintent.core.money import EXACT
from payintent.gateways.port import UNREFUNDABLE_DISPUTE_STATES, DisputeState
from payintent.merchants.model import Price


class Fact(StrEnum):
    CAPTURE = "capture"
    CAPTURE_ADOPTED = "capture_adopted"  # the session was found later, and the payment became PAID
    REFUND_RESERVED = "refund_reserved"
    REFUND_DONE = "refund_done"
    REFUND_REVERSED = "refund_reversed"  # the refund failed, so the reserved amount is released
    DISPUTE_OPENED = "dispute_opened"
    DISPUTE_MOVED = "dispute_moved"  # the money has since been credited, accepted or dismissed
    DISPUTE_WON = "dispute_won"  # also used for disputes that were closed
    DISPUTE_LOST = "dispute_lost"
    CASE_ACCEPTED = "case_accepted"
    CASE_DISMISSED = "case_dismissed"
    GATEWAY_PAYOUT = "gateway_payout"
    PAYOUT = "payout"
    ADJUSTMENT = "adjustment"
    SWEEP = "sweep"  # deposits were sent to the receiver
    SWEEP_GAS = "sweep_gas"


FEE_INCOME = "fee_income"
TAX_PAYABLE = "tax_payable"
BANK = "bank"
_PAYABLE = "merchant_payable"
#: Single accounts exist once per installation. Numbered accounts belong to a gateway account or
#: merchant.
_SINGLE_ACCOUNTS = "fee_income|tax_payable|bank"
_NUMBERED_ACCOUNTS = (
    "gateway_clearing|chain_receiver|chain_deposits|chain_gas|merchant_payable|suspense"
    "|refund_reserve|dispute_reserve"
)
_ACCOUNT = re.compile(
    rf"(?:{_SINGLE_ACCOUNTS})|({_NUMBERED_ACCOUNTS}):([1-9][0-9]{{0,18}})", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """An amount moved between two accounts. Unique by fact, fact id and leg."""

    fact: Fact
    fact_id: UUID
    leg: str
    merchant_id: int | None
    debit: str
    credit: str
    amount_minor: int
    currency: str  # a token's symbol, or its address if the token is not supported
    chain: str | None  # set for tokens
    account_id: int | None = None  # entries of test accounts are not stored


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedMoney:
    capture_id: UUID
    account_id: int
    currency: str
    chain: str | None
    merchant_id: int | None  # owner of the payment or account; None means the operator
    credited: bool
    is_deposit: bool = False  # the money is at a deposit address until it is swept
    resolution: str | None = None  # ACCEPTED or DISMISSED: how the case about the money was closed

    @property
    def clearing(self) -> str:
        return get_clearing_account(self.account_id, self.chain)

    @property
    def captured_in(self) -> str:
        return get_deposits_account(self.account_id) if self.is_deposit else self.clearing

    @property
    def suspense(self) -> str:
        return f"suspense:{self.account_id}"

    @property
    def refund_reserve(self) -> str:
        return f"refund_reserve:{self.account_id}"

    @property
    def dispute_reserve(self) -> str:
        return f"dispute_reserve:{self.account_id}"

    @property
    def owner(self) -> str:
        """The account from which refunds and disputes take the money.

        This is the merchant's payable account if the money was credited or its case was accepted.
        Money of a dismissed case has left the clearing account, so a refund or dispute of it
        changes no balance. All other money is in suspense.
        """
        is_accepted = self.credited or self.resolution == "ACCEPTED"
        if is_accepted and self.merchant_id is not None:
            return get_payable_account(self.merchant_id)
        return self.clearing if self.resolution == "DISMISSED" else self.suspense


@dataclass(frozen=True, slots=True, kw_only=True)
class PayoutBase:
    id: UUID
    amount_minor: int  # negative if the bank account was debited
    currency: str  # or a token's symbol
    chain: str | None  # set for tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Payout(PayoutBase):
    """A transfer from the operator to a merchant."""

    merchant_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPayout(PayoutBase):
    """A gateway's payout to the owner of the gateway account."""

    account_id: int
    merchant_id: int | None  # the account's owner; None means the operator
    fee_minor: int  # deducted by the gateway; negative if the gateway returned it


@dataclass(frozen=True, slots=True)
class Charges:
    """The fee and tax included in a total, in minor units. They are not owed to the merchant."""

    fee_minor: int
    tax_minor: int


@dataclass(frozen=True, slots=True)
class ParsedAccount:
    """A ledger account's number, and whether it is a payable account."""

    number: int | None  # merchant or gateway account; None for a single account
    is_payable: bool  # named `merchant_payable`


def parse_account(text: str) -> ParsedAccount | None:
    """Parse an account name such as `merchant_payable:7`; return None if it is invalid."""
    match = _ACCOUNT.fullmatch(text)
    if match is None:
        return None
    number = int(match[2]) if match[2] else None
    return ParsedAccount(number, is_payable=match[1] == _PAYABLE)


def make_adjustment_entry(
    adjustment_id: UUID, move: tuple[str, str, int], currency: str, chain: str | None
) -> LedgerEntry:
    """Return an adjustment's entry, assigned to a merchant if it affects exactly one."""
    debit, credit, amount_minor = move
    owners = [parse_account(account) for account in (debit, credit)]
    merchants = {owner.number for owner in owners if owner is not None and owner.is_payable}
    return LedgerEntry(
        fact=Fact.ADJUSTMENT,
        fact_id=adjustment_id,
        leg="whole",
        merchant_id=merchants.pop() if len(merchants) == 1 else None,
        debit=debit,
        credit=credit,
        amount_minor=amount_minor,
        currency=currency,
        chain=chain,
    )


def make_payout_entry(payout: Payout, *, is_reversal: bool = False) -> LedgerEntry:
    sides = (get_payable_account(payout.merchant_id), BANK)
    debit, credit = reversed(sides) if is_reversal else sides
    return LedgerEntry(
        fact=Fact.PAYOUT,
        fact_id=payout.id,
        leg="reversed" if is_reversal else "whole",
        merchant_id=payout.merchant_id,
        debit=debit,
        credit=credit,
        amount_minor=payout.amount_minor,
        currency=payout.currency,
        chain=payout.chain,
    )


def make_gateway_payout_entries(
    payout: GatewayPayout, *, is_reversal: bool = False
) -> list[LedgerEntry]:
    """Return the entries for a gateway payout and its fee.

    They affect the accounts of the owning merchant, or the operator's accounts if there is none.
    A negative amount swaps debit and credit, as does a reversal.
    """
    owner = None if payout.merchant_id is None else get_payable_account(payout.merchant_id)
    source = get_clearing_account(payout.account_id, payout.chain)
    moves = [
        ("reversed" if is_reversal else "whole", owner or BANK, payout.amount_minor),
        ("fee_reversed" if is_reversal else "fee", owner or FEE_INCOME, payout.fee_minor),
    ]
    entries = list[LedgerEntry]()
    for leg, target, amount_minor in moves:
        sides = (source, target) if is_reversal != (amount_minor < 0) else (target, source)
        entry = LedgerEntry(
            fact=Fact.GATEWAY_PAYOUT,
            fact_id=payout.id,
            leg=leg,
            merchant_id=payout.merchant_id,
            debit=sides[0],
            credit=sides[1],
            amount_minor=abs(amount_minor),
            currency=payout.currency,
            chain=payout.chain,
            account_id=payout.account_id,
        )
        entries += [entry] if amount_minor else []
    return entries


def get_clearing_account(account_id: int, chain: str | None) -> str:
    return f"{'gateway_clearing' if chain is None else 'chain_receiver'}:{account_id}"


def get_deposits_account(account_id: int) -> str:
    return f"chain_deposits:{account_id}"


def get_gas_account(account_id: int) -> str:
    return f"chain_gas:{account_id}"


def get_payable_account(merchant_id: int) -> str:
    return f"merchant_payable:{merchant_id}"


def get_quoted_charges(price: Price, total_minor: int) -> Charges:
    return parse_charges(price.fee_amount, price.estimated_tax, price.total_amount, total_minor)


def parse_charges(fee: str, tax: str, total: str, total_minor: int) -> Charges:
    """Convert a quote's fee and tax from decimal strings to minor units."""
    unit = EXACT.divide(Decimal(total_minor), Decimal(total))  # a power of ten
    return Charges(_to_minor_units(fee, unit), _to_minor_units(tax, unit))


def _to_minor_units(amount: str, unit: Decimal) -> int:
    minor = EXACT.multiply(Decimal(amount), unit)
    whole = int(minor)
    assert whole == minor  # noqa: S101 - quotes round all amounts to the same decimals
    return whole


def make_capture_entries(
    money: CapturedMoney, amount_minor: int, charges: Charges
) -> list[LedgerEntry]:
    """Return the entries that credit the merchant, fee and tax, or suspense if there is a case."""
    if not money.credited:
        legs = [("suspense", money.suspense, amount_minor)]
        return _make_entries(Fact.CAPTURE, money, money.captured_in, legs)
    return _make_entries(
        Fact.CAPTURE, money, money.captured_in, _credit_legs(money, amount_minor, charges)
    )


def make_assignment_entries(
    money: CapturedMoney, amount_minor: int, charges: Charges
) -> list[LedgerEntry]:
    """Return the entries for a capture in suspense whose payment session is found later."""
    if not money.credited:
        return []
    shares = _credit_legs(money, amount_minor, charges)
    return _make_entries(Fact.CAPTURE_ADOPTED, money, money.suspense, shares)


def make_refund_entry(
    fact: Fact, money: CapturedMoney, refund_id: UUID, amount_minor: int
) -> LedgerEntry:
    debit, credit = {
        Fact.REFUND_RESERVED: (money.owner, money.refund_reserve),
        Fact.REFUND_DONE: (money.refund_reserve, money.clearing),
        Fact.REFUND_REVERSED: (money.refund_reserve, money.owner),
    }[fact]
    return _make_entry(fact, refund_id, "whole", money, (debit, credit, amount_minor))


def make_case_entries(
    fact: Fact, money: CapturedMoney, case_id: UUID, amount_minor: int
) -> list[LedgerEntry]:
    """Return the entry that moves a closed case's money to the merchant or back to clearing.

    The money of an accepted case without a merchant stays in suspense.
    """
    if amount_minor == 0 or (fact is Fact.CASE_ACCEPTED and money.merchant_id is None):
        return []
    credit = money.clearing
    if fact is Fact.CASE_ACCEPTED and money.merchant_id is not None:
        credit = get_payable_account(money.merchant_id)
    return [_make_entry(fact, case_id, "whole", money, (money.suspense, credit, amount_minor))]


def make_dispute_entries(
    money: CapturedMoney,
    dispute_id: UUID,
    state: DisputeState,
    amount_minor: int,
    recorded_balances: Mapping[str, int],
    entry_count: int,
) -> list[LedgerEntry]:
    """Return the entries that bring a dispute's recorded balances in line with its current state.

    `recorded_balances` maps accounts to debits minus credits, summed over the dispute's
    `entry_count` entries.
    """
    balances = {}
    holder = money.clearing if state is DisputeState.LOST else money.dispute_reserve
    if state in UNREFUNDABLE_DISPUTE_STATES and amount_minor and holder != money.owner:
        balances = {money.owner: amount_minor, holder: -amount_minor}
    differences = {
        account: balances.get(account, 0) - recorded_balances.get(account, 0)
        for account in sorted(balances.keys() | recorded_balances.keys())
    }
    moves = list[LedgerEntry]()
    while debits := [account for account, difference in differences.items() if difference > 0]:
        debit = debits[0]
        credit = next(account for account, difference in differences.items() if difference < 0)
        amount = min(differences[debit], -differences[credit])
        differences[debit] -= amount
        differences[credit] += amount
        leg = str(entry_count + len(moves) + 1)
        fact = _choose_dispute_fact(money, state, debit, credit)
        moves.append(_make_entry(fact, dispute_id, leg, money, (debit, credit, amount)))
    return moves


def _choose_dispute_fact(
    money: CapturedMoney, state: DisputeState, debit: str, credit: str
) -> Fact:
    if credit == money.dispute_reserve:
        return Fact.DISPUTE_OPENED
    if state is DisputeState.LOST and credit == money.clearing:
        return Fact.DISPUTE_LOST
    return Fact.DISPUTE_MOVED if debit == money.owner else Fact.DISPUTE_WON


def _credit_legs(
    money: CapturedMoney, amount_minor: int, charges: Charges
) -> list[tuple[str, str, int]]:
    net_minor = amount_minor - charges.fee_minor - charges.tax_minor
    return [
        ("payable", money.owner, net_minor),
        ("fee", FEE_INCOME, charges.fee_minor),
        ("tax", TAX_PAYABLE, charges.tax_minor),
    ]


def _make_entries(
    fact: Fact, money: CapturedMoney, debit: str, legs: list[tuple[str, str, int]]
) -> list[LedgerEntry]:
    """Return an entry for each nonzero leg; a negative amount swaps debit and credit."""
    return [
        _make_entry(fact, money.capture_id, leg, money, (debit, credit, amount))
        if amount > 0
        else _make_entry(fact, money.capture_id, leg, money, (credit, debit, -amount))
        for leg, credit, amount in legs
        if amount
    ]


def _make_entry(
    fact: Fact,
    fact_id: UUID,
    leg: str,
    money: CapturedMoney,
    move: tuple[str, str, int],
) -> LedgerEntry:
    debit, credit, amount_minor = move
    return LedgerEntry(
        fact=fact,
        fact_id=fact_id,
        leg=leg,
        merchant_id=money.merchant_id,
        debit=debit,
        credit=credit,
        amount_minor=amount_minor,
        currency=money.currency,
        chain=money.chain,
        account_id=money.account_id,
    )
