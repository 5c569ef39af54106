"""Compare the payouts in a gateway's list with our records, and record new payouts."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from payintent.accounting import gateway_payouts_store as gateway_payout_store
from payintent.accounting.model import GatewayPayout
from payintent.accounting.payouts_store import NewPayout
from payintent.cases.model import CaseKind
from payintent.cases.store import NewCase
from payintent.core.errors import BadRequestError, RefusedError
from payintent.core.money import EXACT, format_amount, get_minor_decimals
from payintent.db.database import Tx
from payintent.gateways.settlement_reports import ListedPayout, PayoutLine, ProviderFileLine
from payintent.payments.captures_store import UNKNOWN_ORIGIN
from payintent.reconciliation import sums_store
from payintent.reconciliation.file import PROBLEMS_MAX, InvalidProviderFileError
from payintent.reconciliation.sums_store import ReconciliationSum

#: Maximum number of payouts per list. Gateways pay out at most once a day, to a few bank accounts.
PAYOUTS_MAX = 10_000
_REFERENCE_CHARS_MAX = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class PayoutTally:
    """Payout counts for a list, by outcome."""

    lines: int = 0
    new: int = 0  # newly recorded, or only counted if `recorded_by` is None
    repeated: int = 0  # already recorded
    reversed: int = 0  # already recorded and reversed; left unchanged
    different: int = 0  # already recorded with a different amount


@dataclass(frozen=True, slots=True, kw_only=True)
class PayoutComparison:
    tally: PayoutTally = PayoutTally()
    new_payouts: Sequence[ListedPayout] = ()
    cases: Sequence[NewCase] = ()  # for payouts that differ; not open yet


def separate_payouts(
    lines: Iterator[ProviderFileLine | PayoutLine], payouts: dict[str, PayoutLine]
) -> Iterator[ProviderFileLine]:
    """Yield all lines except payouts. Payouts are added to `payouts` by reference.

    Raises `InvalidProviderFileError` for a duplicate payout or too many payouts.
    """
    for line in lines:
        if isinstance(line, ProviderFileLine):
            yield line
            continue
        first_line = payouts.setdefault(line.payout.reference, line)
        if first_line is not line:
            raise InvalidProviderFileError(
                [f"line {line.number}: duplicate of line {first_line.number}"]
            )
        if len(payouts) > PAYOUTS_MAX:
            raise InvalidProviderFileError(
                [f"line {line.number}: a file can contain at most {PAYOUTS_MAX} payouts"]
            )


def check_payouts(
    provider: str,
    currencies: Collection[str] | None,
    accounts: Sequence[int],
    lines: Sequence[PayoutLine],
) -> None:
    """Reject payouts with an ambiguous account or a currency that the gateway does not support."""
    if lines and len(accounts) > 1:
        raise BadRequestError(
            f"the file has payouts, and {provider} has several accounts; select one with --account"
        )
    problems = [
        f"line {line.number}: {provider} does not support {line.payout.currency}"
        for line in lines
        if currencies is not None and line.payout.currency not in currencies
    ]
    if problems:
        raise InvalidProviderFileError(problems[:PROBLEMS_MAX])


async def compare_payout_lines(
    tx: Tx,
    provider: str,
    account_id: int,
    lines: Sequence[PayoutLine],
    recorded_by: str | None,
) -> tuple[PayoutComparison, list[ReconciliationSum]]:
    """Compare payouts and sum each side. New payouts are recorded if `recorded_by` is given."""
    if not lines:
        return PayoutComparison(), []
    payouts = [line.payout for line in lines]
    comparison = await compare_payouts(tx, provider, account_id, payouts, recorded_by)
    return comparison, await sums_store.sum_payouts(tx, account_id, payouts)


async def compare_payouts(
    tx: Tx,
    provider: str,
    account_id: int,
    payouts: Sequence[ListedPayout],
    recorded_by: str | None,
) -> PayoutComparison:
    """Compare payouts with our records. New payouts are recorded unless `recorded_by` is None.

    A recorded payout that differs is not changed; a case is opened instead.
    """
    new_payouts, cases, reversed_count = list[ListedPayout](), list[NewCase](), 0
    references = [payout.reference for payout in payouts]
    records = await gateway_payout_store.find_latest(tx, account_id, references)
    owner = await gateway_payout_store.find_paying_account(tx, account_id)
    merchant_id = None if owner is None else owner.merchant_id
    # Sorted to prevent deadlocks between lists with the same payouts.
    for payout in sorted(payouts, key=lambda payout: payout.reference):
        record = records.get(payout.reference)
        if record is None and (
            recorded_by is None
            or await _record_payout(tx, account_id, merchant_id, payout, recorded_by)
        ):
            new_payouts.append(payout)
            continue
        if record is None:  # it was recorded concurrently
            current_records = await gateway_payout_store.find_latest(
                tx, account_id, [payout.reference]
            )
            record = current_records[payout.reference]
        if record.reversed_at is not None:
            reversed_count += 1
        elif difference := _describe_difference(provider, payout, record.payout):
            case = NewCase(
                id=tx.id_generator.new_id(),
                kind=CaseKind.RECONCILIATION,
                origin=UNKNOWN_ORIGIN,
                subject=difference,
            )
            cases.append(case)
    tally = PayoutTally(
        lines=len(payouts),
        new=len(new_payouts),
        repeated=len(payouts) - len(new_payouts) - reversed_count - len(cases),
        reversed=reversed_count,
        different=len(cases),
    )
    return PayoutComparison(tally=tally, new_payouts=new_payouts, cases=cases)


def describe_payout(payout: ListedPayout) -> str:
    reference = payout.reference[:_REFERENCE_CHARS_MAX]
    return f"payout {reference}: {_format_money(payout, with_fee=True)}"


async def _record_payout(
    tx: Tx, account_id: int, merchant_id: int | None, payout: ListedPayout, recorded_by: str
) -> bool:
    new_payout = NewPayout(
        payout=GatewayPayout(
            id=tx.id_generator.new_id(),
            account_id=account_id,
            merchant_id=merchant_id,
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
        return await gateway_payout_store.record_gateway_payout(tx, new_payout)
    except RefusedError:  # it was recorded with a different amount
        return False


def _describe_difference(provider: str, payout: ListedPayout, record: GatewayPayout) -> str | None:
    """Describe how a payout differs from our record; None if they match."""
    has_fee = payout.fee_minor is not None
    is_same = (payout.amount_minor, payout.currency) == (record.amount_minor, record.currency)
    if is_same and (not has_fee or payout.fee_minor == record.fee_minor):
        return None
    their_money = _format_money(payout, with_fee=has_fee)
    our_money = _format_money(record, with_fee=has_fee)
    return (
        f"{provider} payout {payout.reference[:_REFERENCE_CHARS_MAX]}: different,"
        f" {their_money} there, {our_money} here"
    )


def _format_money(payout: ListedPayout | GatewayPayout, *, with_fee: bool) -> str:
    money = f"{_format_minor(payout.amount_minor, payout.currency)} {payout.currency}"
    if not with_fee or payout.fee_minor is None:
        return money
    return f"{money} and a fee of {_format_minor(payout.fee_minor, payout.currency)}"


def _format_minor(amount_minor: int, currency: str) -> str:
    decimals = get_minor_decimals(currency)
    return format_amount(Decimal(amount_minor).scaleb(-decimals, EXACT), decimals)
