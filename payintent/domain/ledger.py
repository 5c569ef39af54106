"""The ledger: which entries each fact makes. Pure; amounts in minor units (tokens: smallest units).

An entry debits one account and credits another by one amount. Debits raise what we have (clearing,
receivers) and lower what we owe (payable, fee, tax, suspense, reserves). `docs/ledger.md` has the
table of all facts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from uuid import UUID

from payintent.domain.dispute import HOLDING
from payintent.domain.gateway import DisputeState
from payintent.domain.money import EXACT
from payintent.domain.price import Price


class Fact(StrEnum):
    CAPTURE = "capture"
    CAPTURE_ADOPTED = "capture_adopted"  # its session appeared, and it paid its payment
    REFUND_RESERVED = "refund_reserved"
    REFUND_DONE = "refund_done"
    REFUND_REVERSED = "refund_reversed"  # it failed: what was reserved is free again
    DISPUTE_OPENED = "dispute_opened"
    DISPUTE_MOVED = "dispute_moved"  # the disputed money was given to its payment meanwhile
    DISPUTE_WON = "dispute_won"  # or closed
    DISPUTE_LOST = "dispute_lost"
    CASE_ACCEPTED = "case_accepted"
    CASE_DISMISSED = "case_dismissed"
    GATEWAY_PAYOUT = "gateway_payout"
    PAYOUT = "payout"
    ADJUSTMENT = "adjustment"


FEE_INCOME = "fee_income"
TAX_PAYABLE = "tax_payable"
BANK = "bank"
_PAYABLE = "merchant_payable"
#: Accounts without a number, and those that have a gateway's account or a merchant.
_SINGLE = "fee_income|tax_payable|bank"
_NUMBERED = (
    "gateway_clearing|chain_receiver|chain_gas|merchant_payable|suspense|refund_reserve"
    "|dispute_reserve"
)
_ACCOUNT = re.compile(rf"(?:{_SINGLE})|({_NUMBERED}):([1-9][0-9]{{0,18}})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One amount that moves from one account to another; once for each fact, id and leg."""

    fact: Fact
    fact_id: UUID
    leg: str
    merchant_id: int | None
    debit: str
    credit: str
    amount_minor: int
    currency: str  # or the token's symbol; its address where we do not take it
    chain: str | None  # of a token
    account_id: int | None = None  # whose test mode keeps the entry out of the ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedMoney:
    capture_id: UUID
    account_id: int
    currency: str
    chain: str | None
    merchant_id: int | None  # of its payment, else of its account; None: the platform's
    credited: bool

    @property
    def clearing(self) -> str:
        return clearing(self.account_id, self.chain)

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
        """Name the account that this money is owed from: the merchant's once it is credited."""
        if self.credited and self.merchant_id is not None:
            return payable(self.merchant_id)
        return self.suspense


@dataclass(frozen=True, slots=True, kw_only=True)
class Payout:
    """What the operator has paid to a merchant, by a transfer of its own."""

    id: UUID
    merchant_id: int
    amount_minor: int
    currency: str  # or the token's symbol
    chain: str | None  # of a token


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPayout:
    """What a gateway has paid out of one of its accounts, to the bank of the account's owner."""

    id: UUID
    account_id: int
    merchant_id: int | None  # whose account it is; None: the operator's
    amount_minor: int  # what came to the bank; less than 0: the gateway took it from there
    fee_minor: int  # what the gateway kept for itself; less than 0: it gave that back
    currency: str  # or the token's symbol
    chain: str | None  # of a token


@dataclass(frozen=True, slots=True)
class Charges:
    """What of a total is not the merchant's, in minor units."""

    fee_minor: int
    tax_minor: int


@dataclass(frozen=True, slots=True)
class ParsedAccount:
    """Whose an account of the ledger is; None: there is one of its kind."""

    number: int | None
    is_merchants: bool  # else the number is that of a gateway's account


def parse_account(text: str) -> ParsedAccount | None:
    """Parse an account as it is written, `merchant_payable:7`; None for anything else."""
    found = _ACCOUNT.fullmatch(text)
    if found is None:
        return None
    number = int(found[2]) if found[2] else None
    return ParsedAccount(number, is_merchants=found[1] == _PAYABLE)


def adjustment_entry(
    adjustment_id: UUID, move: tuple[str, str, int], currency: str, chain: str | None
) -> LedgerEntry:
    """Record what operators enter: debit, credit and amount; of the merchant that one names."""
    debit, credit, amount_minor = move
    owners = [parse_account(account) for account in (debit, credit)]
    merchants = {owner.number for owner in owners if owner is not None and owner.is_merchants}
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


def payout_entry(payout: Payout, *, reversal: bool = False) -> LedgerEntry:
    """Record what was paid to a merchant, or that it came back or never went."""
    sides = (payable(payout.merchant_id), BANK)
    debit, credit = reversed(sides) if reversal else sides
    return LedgerEntry(
        fact=Fact.PAYOUT,
        fact_id=payout.id,
        leg="reversed" if reversal else "whole",
        merchant_id=payout.merchant_id,
        debit=debit,
        credit=credit,
        amount_minor=payout.amount_minor,
        currency=payout.currency,
        chain=payout.chain,
    )


def gateway_payout_entries(payout: GatewayPayout, *, reversal: bool = False) -> list[LedgerEntry]:
    """Record what a gateway paid out and kept: to our bank, or to the merchant whose account it is.

    What is below zero, and all of a payout that is reversed, is entered the other way round.
    """
    owner = None if payout.merchant_id is None else payable(payout.merchant_id)
    source = clearing(payout.account_id, payout.chain)
    moves = [
        ("reversed" if reversal else "whole", owner or BANK, payout.amount_minor),
        ("fee_reversed" if reversal else "fee", owner or FEE_INCOME, payout.fee_minor),
    ]
    entries = list[LedgerEntry]()
    for leg, taker, amount_minor in moves:
        sides = (source, taker) if reversal != (amount_minor < 0) else (taker, source)
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


def clearing(account_id: int, chain: str | None) -> str:
    return f"{'gateway_clearing' if chain is None else 'chain_receiver'}:{account_id}"


def payable(merchant_id: int) -> str:
    return f"merchant_payable:{merchant_id}"


def quoted_charges(price: Price, total_minor: int) -> Charges:
    return charges_of(price.fee_amount, price.estimated_tax, price.total_amount, total_minor)


def charges_of(fee: str, tax: str, total: str, total_minor: int) -> Charges:
    """Return fee and tax in minor units, of the texts of a quote."""
    unit = EXACT.divide(Decimal(total_minor), Decimal(total))  # a power of ten
    return Charges(_minor(fee, unit), _minor(tax, unit))


def _minor(amount: str, unit: Decimal) -> int:
    minor = EXACT.multiply(Decimal(amount), unit)
    whole = int(minor)
    assert whole == minor  # noqa: S101 - rounded to the same decimals as the total
    return whole


def capture_entries(money: CapturedMoney, amount_minor: int, charges: Charges) -> list[LedgerEntry]:
    """Record money that came: the payment's merchant, fee and tax; of a case, suspense."""
    if not money.credited:
        legs = [("suspense", money.suspense, amount_minor)]
        return _legs(Fact.CAPTURE, money, money.clearing, legs)
    return _legs(Fact.CAPTURE, money, money.clearing, _shares(money, amount_minor, charges))


def adoption_entries(
    money: CapturedMoney, amount_minor: int, charges: Charges
) -> list[LedgerEntry]:
    """Record that a capture in suspense has paid the payment of its session."""
    if not money.credited:
        return []
    shares = _shares(money, amount_minor, charges)
    return _legs(Fact.CAPTURE_ADOPTED, money, money.suspense, shares)


def refund_entry(
    fact: Fact, money: CapturedMoney, refund_id: UUID, amount_minor: int
) -> LedgerEntry:
    """Record that a refund was reserved, has gone back (done), or has failed (reversed)."""
    debit, credit = {
        Fact.REFUND_RESERVED: (money.owner, money.refund_reserve),
        Fact.REFUND_DONE: (money.refund_reserve, money.clearing),
        Fact.REFUND_REVERSED: (money.refund_reserve, money.owner),
    }[fact]
    return _entry(fact, refund_id, "whole", money, (debit, credit, amount_minor))


def case_entries(
    fact: Fact, money: CapturedMoney, case_id: UUID, amount_minor: int
) -> list[LedgerEntry]:
    """Record that a case's money was accepted for its merchant, or is not there (dismissed).

    What is accepted for no merchant stays in suspense.
    """
    if amount_minor == 0 or (fact is Fact.CASE_ACCEPTED and money.merchant_id is None):
        return []
    credit = money.clearing
    if fact is Fact.CASE_ACCEPTED and money.merchant_id is not None:
        credit = payable(money.merchant_id)
    return [_entry(fact, case_id, "whole", money, (money.suspense, credit, amount_minor))]


def dispute_entries(
    money: CapturedMoney,
    dispute_id: UUID,
    state: DisputeState,
    amount_minor: int,
    recorded: Mapping[str, int],
    entries: int,
) -> list[LedgerEntry]:
    """Record what a dispute holds or has taken now, as moves from what was recorded of it.

    `recorded` has debits less credits of each account in the dispute's `entries` entries so far.
    """
    wanted = {}
    if state in HOLDING and amount_minor:
        taker = money.clearing if state is DisputeState.LOST else money.dispute_reserve
        wanted = {money.owner: amount_minor, taker: -amount_minor}
    differences = {
        account: wanted.get(account, 0) - recorded.get(account, 0)
        for account in sorted(wanted.keys() | recorded.keys())
    }
    moves = list[LedgerEntry]()
    while debits := [account for account, difference in differences.items() if difference > 0]:
        debit = debits[0]
        credit = next(account for account, difference in differences.items() if difference < 0)
        moved = min(differences[debit], -differences[credit])
        differences[debit] -= moved
        differences[credit] += moved
        leg = str(entries + len(moves) + 1)
        fact = _dispute_fact(money, debit, credit)
        moves.append(_entry(fact, dispute_id, leg, money, (debit, credit, moved)))
    return moves


def _dispute_fact(money: CapturedMoney, debit: str, credit: str) -> Fact:
    if credit == money.dispute_reserve:
        return Fact.DISPUTE_OPENED
    if credit == money.clearing:
        return Fact.DISPUTE_LOST
    if debit in (money.dispute_reserve, money.clearing):
        return Fact.DISPUTE_WON
    return Fact.DISPUTE_MOVED


def _shares(
    money: CapturedMoney, amount_minor: int, charges: Charges
) -> list[tuple[str, str, int]]:
    rest = amount_minor - charges.fee_minor - charges.tax_minor
    return [
        ("payable", money.owner, rest),
        ("fee", FEE_INCOME, charges.fee_minor),
        ("tax", TAX_PAYABLE, charges.tax_minor),
    ]


def _legs(
    fact: Fact, money: CapturedMoney, debit: str, legs: list[tuple[str, str, int]]
) -> list[LedgerEntry]:
    """Make one entry for each leg that is not zero; a fee above the amount is the merchant's."""
    return [
        _entry(fact, money.capture_id, leg, money, (debit, credit, amount))
        if amount > 0
        else _entry(fact, money.capture_id, leg, money, (credit, debit, -amount))
        for leg, credit, amount in legs
        if amount
    ]


def _entry(
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
