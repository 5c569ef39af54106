"""A gateway's own list compared with our records, the ledger and what merchants were told."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from payintent.domain.currencies import MINOR_DECIMALS
from payintent.domain.errors import ErrorCode, RefusedError, quote_input
from payintent.domain.settlement_file import PayoutLine
from payintent.reconciliation.difference_cases import (
    DISPUTE_TYPES,
    OPENED_MAX,
    check_count,
    describe_difference,
    make_cases,
)
from payintent.reconciliation.listed_payouts import (
    PayoutTally,
    describe_payout,
    make_payout_cases,
)
from payintent.reconciliation.payout_lines import check_payouts, put_payouts_aside, settle_lines
from payintent.reconciliation.provider_file import (
    InvalidProviderFileError,
    ProviderFile,
    find_layout,
)
from payintent.storage import (
    cases,
    reconciliation,
    reconciliation_disputes,
    reconciliation_orders,
    reconciliation_sums,
)
from payintent.storage.cases import NewCase
from payintent.storage.database import Executor, Tx
from payintent.storage.reconciliation import ReconciliationDifference, ReconciliationScope
from payintent.storage.reconciliation_sums import ReconciliationSum

#: We learn of money a moment after the gateway took it: what we recorded within so many seconds
#: after a file's first line may be in the file before.
LAG_S = 300
_BATCH_MAX = 5_000
_REPEATED_TOLD_MAX = 20
_TOLD_MAX = 100
_TYPES = ("payment", "refund")
_THERE = ("lines", "extra", "different")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationTally:
    """How many lines of a type there are, and how many match our records."""

    type: str
    lines: int
    matched: int
    missing: int  # in our records but not in the file
    extra: int  # in the file but not in our records
    different: int  # in amount or currency
    books: int  # of ours that the ledger has otherwise, or that the merchant was told otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationResult:
    provider: str
    account_id: int | None
    since: datetime  # records from then on are expected in the file
    until: datetime
    sha256: str
    tallies: list[ReconciliationTally]
    payouts: PayoutTally
    sums: list[ReconciliationSum]
    opened: int  # new cases only
    asked: int  # sessions and refunds that gateways are asked about now
    differences: list[str]  # the first of them
    new_payouts: list[str]  # recorded, or to be recorded: the first of them

    @property
    def found(self) -> int:
        return self.payouts.different + sum(
            tally.missing + tally.extra + tally.different + tally.books for tally in self.tallies
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """What the loaded lines, our records, the ledger and the merchants differ in."""

    counts: Mapping[tuple[str, str], int]  # by type and kind; also the lines of each type
    first: Sequence[ReconciliationDifference]  # at most as many as may become cases
    sums: list[ReconciliationSum]

    @property
    def count(self) -> int:
        return sum(count for (_, what), count in self.counts.items() if what != "lines")


async def find_differences(
    tx: Tx,
    scope: ReconciliationScope,
    find_missing: Callable[[Tx, ReconciliationScope], Awaitable[None]],
) -> Differences:
    """Compare the lines that are loaded; `find_missing` knows what of ours they must have."""
    await reconciliation.compare_lines(tx, scope)
    await find_missing(tx, scope)
    await reconciliation_sums.compare_books(tx, scope)
    await reconciliation_disputes.compare_books(tx, scope)
    return Differences(
        counts=await reconciliation.count_differences(tx),
        first=await reconciliation.list_differences(tx, OPENED_MAX),
        sums=await reconciliation_sums.sum_sides(tx),
    )


async def write_cases(tx: Tx, new: Sequence[NewCase]) -> tuple[int, int]:
    """Open the cases that are not open yet, and schedule inquiries that may settle some.

    Returns how many of each.
    """
    opened = await cases.open_cases(tx, new)
    return len(opened), await reconciliation.request_inquiries(tx)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFile:
    """The result of a comparison, and what its cases are about."""

    found: ReconciliationResult
    differences: Sequence[ReconciliationDifference]  # at most as many as may become cases
    payouts: Sequence[str]  # what each side says of those that we have otherwise

    def make_cases(self, tx: Tx) -> list[NewCase]:
        """Make a case of each difference; refuse more than a day can have."""
        check_count(self.found.found)
        return [
            *make_cases(tx.id_generator, self.found.provider, self.differences),
            *make_payout_cases(tx.id_generator, self.payouts),
        ]

    async def write(self, tx: Tx) -> ReconciliationResult:
        opened, inquiries = await write_cases(tx, self.make_cases(tx))
        return replace(self.found, opened=opened, asked=inquiries)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationInput:
    """Which file is compared with which accounts; times are when we recorded money."""

    file: ProviderFile
    provider: str
    account_id: int | None = None
    since: datetime | None = None  # None: the time of the file's first line, and `LAG_S`
    until: datetime | None = None  # None: the time of its last line
    currencies: frozenset[str] | None = None  # that the gateway takes; None: any
    lists_disputes: bool = False  # all of them: one of ours that it lacks is missing


async def find_accounts(database: Executor, comparison: ReconciliationInput) -> list[int]:
    """Find the live accounts that a list is of; refuse what is unknown, and test accounts.

    What test accounts took is no money: it is in no books, and none of it is looked for in a list.
    """
    provider, account_id = comparison.provider, comparison.account_id
    found = await reconciliation.list_accounts_of(database, provider)
    live = [account for account, is_live in found.items() if is_live]
    if account_id is None:
        if live:
            return live
        whose = "live account" if found else "account"
        raise RefusedError(
            ErrorCode.NOT_FOUND,
            f"{quote_input(provider)} has no {whose} whose payments a file could list",
        )
    if account_id not in found:
        raise RefusedError(ErrorCode.NOT_FOUND, f"{provider} has no account {account_id}")
    if account_id not in live:
        raise RefusedError(
            ErrorCode.UNPROCESSABLE,
            f"account {account_id} is a test account: what it took is in no books to compare",
        )
    return [account_id]


async def _find_period(
    tx: Tx, comparison: ReconciliationInput, payouts: Sequence[PayoutLine]
) -> tuple[datetime, datetime]:
    """Find whose records are expected in the list; refuse one that has no time.

    Payouts count for no period: in a list of payouts alone nothing else is expected.
    """
    since, until = comparison.since, comparison.until
    first, last = await reconciliation.find_times(tx)
    if first is None and payouts:
        first = last = max(payout.at for payout in payouts)
    if since is None and first is not None:
        since = first + timedelta(seconds=LAG_S)
    until = until or last
    if since is None or until is None:
        raise RefusedError(
            ErrorCode.BAD_REQUEST, "the file has no lines: say from when to when it is"
        )
    return since, until


async def compare_file(
    tx: Tx, comparison: ReconciliationInput, recorded_by: str | None
) -> ComparedFile:
    """Load the file, find the differences, and record its payouts if `recorded_by` is given.

    Raises `InvalidProviderFileError` for a line that cannot be read, or that is repeated.
    """
    accounts = await find_accounts(tx, comparison)
    payouts = await _load(tx, comparison.file, accounts)
    check_payouts(comparison.provider, comparison.currencies, accounts, payouts)
    since, until = await _find_period(tx, comparison, payouts)
    scope = ReconciliationScope(
        accounts=accounts, since=since, until=until, decimals=MINOR_DECIMALS
    )

    async def find_missing(tx: Tx, scope: ReconciliationScope) -> None:
        await reconciliation.find_missing(tx, scope)
        await reconciliation_disputes.compare(tx, scope, is_complete=comparison.lists_disputes)

    differences = await find_differences(tx, scope, find_missing)
    settled, payout_sums = await settle_lines(
        tx, comparison.provider, accounts[0], payouts, recorded_by
    )
    subjects = [
        describe_difference(comparison.provider, found) for found in differences.first[:_TOLD_MAX]
    ]
    found = ReconciliationResult(
        provider=comparison.provider,
        account_id=comparison.account_id,
        since=scope.since,
        until=scope.until,
        sha256=comparison.file.sha256,
        tallies=[
            _tally(differences.counts, type_)
            for type_ in (*_TYPES, *DISPUTE_TYPES)
            if type_ in _TYPES or any(of == type_ for of, _ in differences.counts)
        ],
        payouts=settled.tally,
        sums=differences.sums + payout_sums,
        opened=0,
        asked=0,
        differences=[*subjects, *settled.different][:_TOLD_MAX],
        new_payouts=[describe_payout(payout) for payout in settled.new[:_TOLD_MAX]],
    )
    return ComparedFile(found=found, differences=differences.first, payouts=settled.different)


async def _load(tx: Tx, file: ProviderFile, accounts: Sequence[int]) -> list[PayoutLine]:
    await reconciliation.create_tables(tx)
    payouts = dict[str, PayoutLine]()
    lines = put_payouts_aside(file.read(), payouts)
    # Lines are read in a thread, so that a long file does not hold up the event loop.
    while batch := await asyncio.to_thread(lambda: list(islice(lines, _BATCH_MAX))):
        await reconciliation.add(tx, batch)
    layout = find_layout(file.path, file.layouts)
    if layout is not None and layout.names_orders:
        await reconciliation_orders.resolve_orders(tx, accounts, MINOR_DECIMALS)
    if again := await reconciliation.list_repeated(tx, _REPEATED_TOLD_MAX):
        raise InvalidProviderFileError(
            [f"line {repeated}: it stands on line {first} already" for repeated, first in again]
        )
    return list(payouts.values())


def _tally(counts: Mapping[tuple[str, str], int], type_: str) -> ReconciliationTally:
    lines, extra, different = (counts.get((type_, side), 0) for side in _THERE)
    return ReconciliationTally(
        type=type_,
        lines=lines,
        matched=lines - extra - different,
        missing=counts.get((type_, "missing"), 0),
        extra=extra,
        different=different,
        books=counts.get((type_, "ledger"), 0) + counts.get((type_, "merchants"), 0),
    )
