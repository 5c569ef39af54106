"""Payouts of a gateway's list: new ones are recorded, one that we have otherwise is a case."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from payintent.domain.case import UNKNOWN_ORIGIN, CaseKind
from payintent.domain.currencies import minor_decimals
from payintent.domain.errors import RefusedError
from payintent.domain.ledger import GatewayPayout
from payintent.domain.money import EXACT, format_amount
from payintent.domain.settlement_file import ListedPayout
from payintent.id_generator import IdGenerator
from payintent.payments.gateway_payouts import record_gateway_payout
from payintent.storage import gateway_payouts
from payintent.storage.cases import NewCase
from payintent.storage.database import Executor, Tx
from payintent.storage.gateway_payouts import GatewayPayoutRecord, PayoutSum
from payintent.storage.payouts import NewPayout
from payintent.storage.reconciliation_sums import ReconciliationSum

#: Of a list. A gateway pays out daily at most, to each of some bank accounts.
PAYOUTS_MAX = 10_000
_REFERENCE_TOLD_MAX = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class PayoutTally:
    """How many payouts a list has, and what becomes of them."""

    lines: int
    new: int  # recorded, or to be recorded
    repeated: int  # recorded before
    reversed: int  # recorded before and reversed: they stay so
    different: int  # recorded before with another amount


@dataclass(frozen=True, slots=True, kw_only=True)
class PayoutAccount:
    """A gateway's account that payouts came from, and whose it is; None: the operator's."""

    id: int
    provider: str
    merchant_id: int | None


@dataclass(slots=True)
class SettledPayouts:
    new: list[ListedPayout] = field(default_factory=list[ListedPayout])
    repeated: int = 0
    reversed: int = 0
    different: list[str] = field(default_factory=list[str])  # what each side says, of each

    @property
    def tally(self) -> PayoutTally:
        return PayoutTally(
            lines=len(self.new) + self.repeated + self.reversed + len(self.different),
            new=len(self.new),
            repeated=self.repeated,
            reversed=self.reversed,
            different=len(self.different),
        )


async def settle_payouts(
    tx: Tx,
    account: PayoutAccount,
    listed: Sequence[ListedPayout],
    recorded_by: str | None,
) -> SettledPayouts:
    """Record the payouts that were never recorded; where nobody does, say what would be."""
    settled = SettledPayouts()
    references = [payout.reference for payout in listed]
    recorded = await gateway_payouts.find_last(tx, account.id, references)
    # In one order, so that two lists with the same payouts do not wait for each other.
    for payout in sorted(listed, key=lambda payout: payout.reference):
        found = recorded.get(payout.reference)
        if found is None and (
            recorded_by is None or await _record(tx, account, payout, recorded_by)
        ):
            settled.new.append(payout)
            continue
        if found is None:  # somebody has recorded it meanwhile
            again = await gateway_payouts.find_last(tx, account.id, [payout.reference])
            found = again[payout.reference]
        _compare(settled, account, payout, found)
    return settled


def make_payout_cases(id_generator: IdGenerator, different: Iterable[str]) -> list[NewCase]:
    """Make a case of each payout that we have otherwise; what was recorded stands."""
    return [
        NewCase(
            id=id_generator.new_id(),
            kind=CaseKind.RECONCILIATION,
            origin=UNKNOWN_ORIGIN,
            subject=subject,
        )
        for subject in different
    ]


async def sum_payouts(
    database: Executor, account_id: int, listed: Sequence[ListedPayout]
) -> list[ReconciliationSum]:
    """Sum what each side says of these payouts, by currency."""
    references = [payout.reference for payout in listed]
    standing = {
        found.currency: found
        for found in await gateway_payouts.sum_active(database, account_id, references)
    }
    amounts = defaultdict[str, list[int]](list)
    for payout in listed:
        amounts[payout.currency].append(payout.amount_minor)
    return [
        _sum(currency, amounts.get(currency, []), standing.get(currency))
        for currency in sorted({*amounts, *standing})
    ]


def describe_payout(payout: ListedPayout) -> str:
    return f"payout {_told(payout.reference)}: {_money(payout, with_fee=True)}"


async def _record(tx: Tx, account: PayoutAccount, payout: ListedPayout, recorded_by: str) -> bool:
    new = NewPayout(
        payout=GatewayPayout(
            id=tx.id_generator.new_id(),
            account_id=account.id,
            merchant_id=account.merchant_id,
            amount_minor=payout.amount_minor,
            fee_minor=payout.fee_minor or 0,
            currency=payout.currency,
            chain=None,
        ),
        reference=payout.reference,
        paid_on=payout.paid_on,
        recorded_by=recorded_by,
    )
    try:
        return await record_gateway_payout(tx, new)
    except RefusedError:  # it has been recorded with another amount
        return False


def _compare(
    settled: SettledPayouts,
    account: PayoutAccount,
    payout: ListedPayout,
    found: GatewayPayoutRecord,
) -> None:
    ours = found.payout
    if found.reversed_at is not None:
        settled.reversed += 1
        return
    has_fee = payout.fee_minor is not None
    is_same = (payout.amount_minor, payout.currency) == (ours.amount_minor, ours.currency)
    if is_same and (not has_fee or payout.fee_minor == ours.fee_minor):
        settled.repeated += 1
        return
    settled.different.append(
        f"{account.provider} payout {_told(payout.reference)}: different,"
        f" {_money(payout, with_fee=has_fee)} there, {_money(ours, with_fee=has_fee)} here"
    )


def _told(reference: str) -> str:
    return reference[:_REFERENCE_TOLD_MAX]


def _money(payout: ListedPayout | GatewayPayout, *, with_fee: bool) -> str:
    money = f"{_units(payout.amount_minor, payout.currency)} {payout.currency}"
    if not with_fee or payout.fee_minor is None:
        return money
    return f"{money} and a fee of {_units(payout.fee_minor, payout.currency)}"


def _units(amount_minor: int, currency: str, *, trim: bool = False) -> str:
    decimals = minor_decimals(currency)
    amount = Decimal(amount_minor).scaleb(-decimals, EXACT)
    return format_amount(amount, decimals, trim=trim)


def _sum(currency: str, amounts: Sequence[int], standing: PayoutSum | None) -> ReconciliationSum:
    ours = (
        (0, 0, 0)
        if standing is None
        else (standing.amount_minor, standing.ledger_minor, standing.merchants_minor)
    )
    gateway, service, ledger, merchants = (
        _units(side, currency, trim=True) for side in (sum(amounts), *ours)
    )
    return ReconciliationSum(
        type="payout",
        currency=currency,
        lines=len(amounts),
        records=0 if standing is None else standing.payouts,
        gateway=gateway,
        service=service,
        ledger=ledger,
        merchants=merchants,
    )
