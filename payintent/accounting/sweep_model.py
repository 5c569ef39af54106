"""Ledger entries for sweeps of deposits, and for their gas."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from payintent.accounting.model import (
    BANK,
    Fact,
    LedgerEntry,
    get_clearing_account,
    get_deposits_account,
    get_gas_account,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptMoney:
    """The deposits that a sweep moved, and the amount that the receiver received."""

    sweep_id: UUID
    account_id: int
    merchant_id: int | None
    currency: str
    chain: str
    deposited_minor: int
    received_minor: int  # more if a transfer to the address was not recorded as a deposit


def make_sweep_entries(
    money: SweptMoney, recorded: Mapping[str, int], entry_count: int
) -> list[LedgerEntry]:
    """Return the entries that bring a sweep's recorded balances in line with its deposits.

    An endpoint may omit a deposit, which is then found after its sweep. The deposits leave the
    address in full; the part that did not reach the receiver is a cost. `recorded` maps the debited
    accounts to debits minus credits over the sweep's `entry_count` entries.
    """
    received_minor = min(money.received_minor, money.deposited_minor)
    balances = {
        get_clearing_account(money.account_id, money.chain): received_minor,
        get_gas_account(money.account_id): money.deposited_minor - received_minor,
    }
    entries = list[LedgerEntry]()
    for account, balance in balances.items():
        difference = balance - recorded.get(account, 0)
        sides = (account, get_deposits_account(money.account_id))
        debit, credit = sides if difference > 0 else reversed(sides)
        entry = LedgerEntry(
            fact=Fact.SWEEP,
            fact_id=money.sweep_id,
            leg=str(entry_count + len(entries) + 1),
            merchant_id=money.merchant_id,
            debit=debit,
            credit=credit,
            amount_minor=abs(difference),
            currency=money.currency,
            chain=money.chain,
            account_id=money.account_id,
        )
        entries += [entry] if difference else []
    return entries


def make_sweep_gas_entry(
    batch_id: UUID, account_id: int, gas_cost: int, coin: str, chain: str
) -> LedgerEntry:
    """Return the entry for the gas that the operator paid for a sweep transaction."""
    return LedgerEntry(
        fact=Fact.SWEEP_GAS,
        fact_id=batch_id,
        leg="whole",
        merchant_id=None,
        debit=get_gas_account(account_id),
        credit=BANK,
        amount_minor=gas_cost,
        currency=coin,
        chain=chain,
        account_id=account_id,
    )
