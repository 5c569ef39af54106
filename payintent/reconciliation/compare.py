"""Compare a gateway's list with our records, the ledger and the merchants' payments."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice

from payintent.cases import store as case_store
from payintent.cases.model import CaseKind
from payintent.cases.store import NewCase
from payintent.core.errors import BadRequestError, NotFoundError, UnprocessableError, quote_input
from payintent.core.money import (
    CRYPTO,
    MINOR_DECIMALS,
    SETTLEMENT_TOKENS,
    format_amount,
    get_minor_decimals,
)
from payintent.db.database import Executor, Tx
from payintent.gateways.port import GatewayCapabilities
from payintent.gateways.settlement_reports import PayoutLine
from payintent.payments.captures_store import MoneyOrigin
from payintent.reconciliation import (
    addresses_store,
    compare_store,
    disputes_store,
    orders_store,
    sums_store,
)
from payintent.reconciliation.compare_store import ReconciliationDifference, ReconciliationScope
from payintent.reconciliation.file import (
    InvalidProviderFileError,
    ProviderFile,
    find_layout,
)
from payintent.reconciliation.listed_payouts import (
    PayoutTally,
    check_payouts,
    compare_payout_lines,
    describe_payout,
    separate_payouts,
)
from payintent.reconciliation.sums_store import ReconciliationSum
from payintent.runtime.id_generator import IdGenerator
from payintent.runtime.json_format import format_timestamp

#: Maximum number of differences per file. A file with more probably belongs to another account.
DIFFERENCES_MAX = 10_000
#: We record money slightly later than the gateway does, so records from the first 300 seconds of a
#: file's period may belong to the previous file.
LAG_S = 300
_BATCH_MAX = 5_000
_DUPLICATES_MAX = 20
_REPORTED_DIFFERENCES_MAX = 100
_TYPES = ("payment", "refund")
_BOOKS = {"ledger": "in the ledger", "merchants": "for the merchant"}
_REFERENCE_CHARS_MAX = 120
DISPUTE_TYPES = ("dispute", "dispute_reversal")
_ORIGINS = {
    **dict.fromkeys(_TYPES, "captured or refunded"),
    **dict.fromkeys(DISPUTE_TYPES, "disputed"),
    "deposit": "deposited and not swept",
}


def make_cases(
    id_generator: IdGenerator,
    provider: str,
    differences: Sequence[ReconciliationDifference],
    *,
    with_time: bool = True,
) -> list[NewCase]:
    """Create a case for each difference. `with_time` includes the time in the case subject."""
    return [
        NewCase(
            id=id_generator.new_id(),
            kind=CaseKind.RECONCILIATION,
            origin=MoneyOrigin(
                merchant_id=difference.merchant_id,
                payment_id=difference.payment_id,
                session_id=difference.session_id,
            ),
            capture_id=difference.capture_id,
            refund_id=difference.refund_id,
            subject=_describe_difference(provider, difference, with_time=with_time),
        )
        for difference in differences
    ]


def check_difference_count(differences: int) -> None:
    """Raise `RefusedError` if there are more than `DIFFERENCES_MAX` differences."""
    if differences > DIFFERENCES_MAX:
        raise UnprocessableError(
            f"there are too many differences ({differences}); check that the file belongs to this "
            "account. Nothing was written."
        )


def _describe_difference(
    provider: str, difference: ReconciliationDifference, *, with_time: bool = True
) -> str:
    """Describe a difference. The wording must not change, because it identifies the case."""
    reference = difference.reference or ""
    if len(reference) > _REFERENCE_CHARS_MAX:
        reference = reference[:_REFERENCE_CHARS_MAX] + "…"
    their_money = _format_money(difference.their_amount, difference.their_currency)
    our_money = _format_money(difference.our_amount, difference.our_currency)
    if books := _BOOKS.get(difference.kind):
        details = f"{their_money} {books}, {our_money} {_ORIGINS[difference.type]}"
    elif difference.kind == "different":
        details = f"{their_money} there, {our_money} here"
    else:
        details = their_money or our_money
        details += f" at {format_timestamp(difference.at)}" if with_time else ""
        status = difference.our_status if difference.kind == "extra" else None
        details += f", ours is {status}" if status else ""
    return f"{provider} {difference.type} {reference}: {difference.kind}, {details}"


def _format_money(amount: Decimal | None, currency: str | None) -> str:
    if amount is None or currency is None:
        return ""
    fraction = format(amount, "f").partition(".")[2].rstrip("0")
    min_decimals = 0 if currency in {*CRYPTO, *SETTLEMENT_TOKENS} else get_minor_decimals(currency)
    decimals = max(min_decimals, len(fraction))
    return f"{format_amount(amount, decimals)} {currency}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationTally:
    """The number of lines of a type, by outcome."""

    type: str
    lines: int
    matched: int
    missing: int  # in our records but not in the file
    extra: int  # in the file but not in our records
    different: int  # with a different amount or currency
    books: int  # our records that do not match the ledger or the merchant's payments


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationResult:
    provider: str
    account_id: int | None
    since: datetime  # our records after this time should be in the file
    until: datetime
    sha256: str
    tallies: list[ReconciliationTally]
    payouts: PayoutTally
    sums: list[ReconciliationSum]
    opened: int  # new cases only
    inquiries: int  # sessions and refunds with a newly scheduled inquiry
    differences: list[str]  # the first 100
    new_payouts: list[str]  # the first 100 that were recorded, or would be in a dry run

    @property
    def difference_count(self) -> int:
        return self.payouts.different + sum(
            tally.missing + tally.extra + tally.different + tally.books for tally in self.tallies
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Differences between the loaded lines, our records, the ledger and merchants' payments."""

    counts: Mapping[tuple[str, str], int]  # by type and kind; the kind `lines` counts all lines
    items: Sequence[ReconciliationDifference]  # the first `DIFFERENCES_MAX`
    sums: list[ReconciliationSum]

    @property
    def count(self) -> int:
        return sum(count for (_, kind), count in self.counts.items() if kind != "lines")


async def find_differences(
    tx: Tx,
    scope: ReconciliationScope,
    find_missing: Callable[[Tx, ReconciliationScope], Awaitable[None]],
) -> Differences:
    """Compare the loaded lines with our records, the ledger and the merchants' payments.

    `find_missing` must add a difference for each of our records that has no line.
    """
    await compare_store.compare_lines(tx, scope)
    await find_missing(tx, scope)
    await sums_store.compare_books(tx, scope)
    await disputes_store.compare_books(tx, scope)
    await addresses_store.compare_books(tx, scope)
    return Differences(
        counts=await compare_store.count_differences(tx),
        items=await compare_store.list_differences(tx, DIFFERENCES_MAX),
        sums=await sums_store.sum_sides(tx),
    )


async def open_cases(tx: Tx, cases: Sequence[NewCase]) -> tuple[int, int]:
    """Open cases and schedule inquiries; return how many cases and inquiries are new."""
    case_ids = await case_store.open_cases(tx, cases)
    return len(case_ids), await compare_store.request_inquiries(tx)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFile:
    """The result of a comparison before its cases are opened."""

    result: ReconciliationResult
    cases: Sequence[NewCase]

    async def open_cases(self, tx: Tx) -> ReconciliationResult:
        """Open a case for each difference. Raises `RefusedError` if there are too many."""
        check_difference_count(self.result.difference_count)
        case_count, inquiry_count = await open_cases(tx, self.cases)
        return replace(self.result, opened=case_count, inquiries=inquiry_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationInput:
    """A file to compare with our records, and the accounts and period of those records."""

    file: ProviderFile
    provider: str
    account_id: int | None = None
    since: datetime | None = None  # default: `LAG_S` after the first line
    until: datetime | None = None  # default: the time of the last line
    currencies: frozenset[str] | None = None  # supported by the gateway; None: any
    lists_disputes: bool = False  # the file contains every dispute in the period

    def adapt_to_gateway(self, capabilities: GatewayCapabilities | None) -> "ReconciliationInput":
        """Return a copy with an installed gateway's file layouts and currencies."""
        if capabilities is None:
            return self
        file = replace(self.file, layouts=capabilities.layouts)
        return replace(self, file=file, currencies=capabilities.currencies)


async def find_accounts(database: Executor, comparison: ReconciliationInput) -> list[int]:
    """Return the live accounts that the file covers.

    Raises `RefusedError` for unknown accounts and test accounts. Test payments do not move money,
    so neither the books nor a gateway's list contains them.
    """
    provider, account_id = comparison.provider, comparison.account_id
    accounts = await compare_store.list_provider_accounts(database, provider)
    live_accounts = [account for account, is_live in accounts.items() if is_live]
    if account_id is None:
        if live_accounts:
            return live_accounts
        description = "live account" if accounts else "account"
        raise NotFoundError(f"{quote_input(provider)} has no {description} to compare a file with")
    if account_id not in accounts:
        raise NotFoundError(f"{provider} has no account {account_id}")
    if account_id not in live_accounts:
        problem = "is a test account; its payments are not in the ledger"
        raise UnprocessableError(f"account {account_id} {problem}")
    return [account_id]


async def _find_period(
    tx: Tx, comparison: ReconciliationInput, payouts: Sequence[PayoutLine]
) -> tuple[datetime, datetime]:
    """Determine the period that the file covers. An empty file requires an explicit period.

    Payouts do not extend the period, because a payout file may not contain any payments.
    """
    since, until = comparison.since, comparison.until
    first_time, last_time = await compare_store.find_times(tx)
    if first_time is None and payouts:
        first_time = last_time = max(payout.at for payout in payouts)
    if since is None and first_time is not None:
        since = first_time + timedelta(seconds=LAG_S)
    until = until or last_time
    if since is None or until is None:
        raise BadRequestError("the file has no lines; specify its period with --from and --to")
    return since, until


async def compare_file(
    tx: Tx, comparison: ReconciliationInput, recorded_by: str | None
) -> ComparedFile:
    """Compare a file with our records. New payouts are recorded only if `recorded_by` is given.

    Raises `InvalidProviderFileError` for an invalid or duplicate line.
    """
    accounts = await find_accounts(tx, comparison)
    payouts = await _load_lines(tx, comparison.file, accounts)
    check_payouts(comparison.provider, comparison.currencies, accounts, payouts)
    since, until = await _find_period(tx, comparison, payouts)
    scope = ReconciliationScope(
        accounts=accounts, since=since, until=until, decimals=MINOR_DECIMALS
    )

    async def find_missing(tx: Tx, scope: ReconciliationScope) -> None:
        await compare_store.find_missing(tx, scope)
        await disputes_store.compare(tx, scope, is_complete=comparison.lists_disputes)

    differences = await find_differences(tx, scope, find_missing)
    payout_comparison, payout_sums = await compare_payout_lines(
        tx, comparison.provider, accounts[0], payouts, recorded_by
    )
    cases = [
        *make_cases(tx.id_generator, comparison.provider, differences.items),
        *payout_comparison.cases,
    ]
    result = ReconciliationResult(
        provider=comparison.provider,
        account_id=comparison.account_id,
        since=scope.since,
        until=scope.until,
        sha256=comparison.file.sha256,
        tallies=[
            _make_tally(differences.counts, line_type)
            for line_type in (*_TYPES, *DISPUTE_TYPES)
            if line_type in _TYPES
            or any(counted_type == line_type for counted_type, _ in differences.counts)
        ],
        payouts=payout_comparison.tally,
        sums=differences.sums + payout_sums,
        opened=0,
        inquiries=0,
        differences=[case.subject or "" for case in cases[:_REPORTED_DIFFERENCES_MAX]],
        new_payouts=[
            describe_payout(payout)
            for payout in payout_comparison.new_payouts[:_REPORTED_DIFFERENCES_MAX]
        ],
    )
    return ComparedFile(result=result, cases=cases)


async def _load_lines(tx: Tx, file: ProviderFile, accounts: Sequence[int]) -> list[PayoutLine]:
    await compare_store.create_tables(tx)
    payouts = dict[str, PayoutLine]()
    lines = separate_payouts(file.read(), payouts)
    # Read lines in a thread, so that a long file does not block the event loop.
    while batch := await asyncio.to_thread(lambda: list(islice(lines, _BATCH_MAX))):
        await compare_store.load_lines(tx, batch)
    layout = find_layout(file.path, file.layouts)
    if layout is not None and layout.identifies_orders:
        await orders_store.resolve_orders(tx, accounts, MINOR_DECIMALS)
    if duplicates := await compare_store.list_duplicates(tx, _DUPLICATES_MAX):
        raise InvalidProviderFileError(
            [
                f"line {number}: duplicate of line {first_number}"
                for number, first_number in duplicates
            ]
        )
    return list(payouts.values())


def _make_tally(counts: Mapping[tuple[str, str], int], line_type: str) -> ReconciliationTally:
    lines, extra, different = (
        counts.get((line_type, kind), 0) for kind in ("lines", "extra", "different")
    )
    return ReconciliationTally(
        type=line_type,
        lines=lines,
        matched=lines - extra - different,
        missing=counts.get((line_type, "missing"), 0),
        extra=extra,
        different=different,
        books=counts.get((line_type, "ledger"), 0) + counts.get((line_type, "merchants"), 0),
    )
