"""A gateway's own list compared with our records: each difference opens one case."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import ClassVar
from uuid import UUID

from payintent.domain.case import CaseKind, MoneyOrigin
from payintent.domain.currencies import CRYPTO, MINOR_DECIMALS, SETTLING, minor_decimals
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.money import format_amount
from payintent.domain.operator import Role
from payintent.json_format import format_timestamp
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.provider_file import InvalidProviderFileError, ProviderFile
from payintent.operations.validation import as_utc, quote_input
from payintent.storage import cases, reconciliation
from payintent.storage.cases import NewCase
from payintent.storage.database import Executor, Tx
from payintent.storage.reconciliation import ReconciliationDifference, ReconciliationScope

#: We learn of money a moment after the gateway took it: what we recorded within so many seconds
#: after a file's first line may be in the file before.
LAG_S = 300
_BATCH_MAX = 5_000
_REPEATED_TOLD_MAX = 20
_TOLD_MAX = 100
#: More than this is not a day's differences but another account's file.
OPENED_MAX = 10_000
_TYPES = ("payment", "refund")
_THERE = ("lines", "extra", "different")
_REFERENCE_TOLD_MAX = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationTally:
    """How many lines of a type there are, and how many match our records."""

    type: str
    lines: int
    matched: int
    missing: int  # in our records but not in the file
    extra: int  # in the file but not in our records
    different: int  # in amount or currency


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationResult:
    """The result of a comparison."""

    provider: str
    account_id: int | None
    since: datetime  # records from then on are expected in the file
    until: datetime
    sha256: str
    tallies: list[ReconciliationTally]
    opened: int  # new cases only
    asked: int  # sessions and refunds that gateways are asked about now
    differences: list[str]  # the first of them

    @property
    def found(self) -> int:
        """Count the differences of all types and kinds."""
        return sum(tally.missing + tally.extra + tally.different for tally in self.tallies)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationInput:
    """Which file is compared with which accounts; times are when we recorded money."""

    file: ProviderFile
    provider: str
    account_id: int | None = None
    since: datetime | None = None  # None: the time of the file's first line, and `LAG_S`
    until: datetime | None = None  # None: the time of its last line


class CompareProviderFile(ReadOperation[ReconciliationResult], frozen=True, kw_only=True):
    """Compare a file, change nothing; raises `InvalidProviderFileError` for a repeated line.

    With `foresees_cases`, `opened` of the result has the cases that would be opened.
    """

    action: ClassVar[str] = "reconcile"
    comparison: ReconciliationInput
    foresees_cases: bool = False

    async def read(self, context: OperationContext) -> ReconciliationResult:
        """Return the differences; nothing is written."""
        scope = await _scope(context.database, self.comparison)
        async with context.database.transaction() as tx:
            found, differences = await _compare(tx, self.comparison, scope)
            if not self.foresees_cases:
                return found
            _check_count(found)
            new = _cases(context, self.comparison, differences)
            return replace(found, opened=await reconciliation.count_new_cases(tx, new))


class ReconcileProviderFile(ChangeOperation[ReconciliationResult], frozen=True, kw_only=True):
    """Compare a file, and open a case for each difference that has none."""

    action: ClassVar[str] = "reconcile"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    comparison: ReconciliationInput

    async def changes(self, context: OperationContext) -> list[str]:
        """Describe how many cases are opened."""
        compare = CompareProviderFile(comparison=self.comparison, foresees_cases=True)
        return [f"{(await compare.read(context)).opened} cases are opened"]

    async def check(self, context: OperationContext) -> None:
        """Refuse an unknown provider or account, and a file without a time."""
        await _scope(context.database, self.comparison)

    async def apply(self, context: OperationContext, tx: Tx) -> ReconciliationResult:
        """Open the cases, and schedule inquiries that may settle differences."""
        comparison = self.comparison
        found, differences = await _compare(tx, comparison, await _scope(tx, comparison))
        _check_count(found)
        opened = await cases.open_cases(tx, _cases(context, comparison, differences))
        inquired = await reconciliation.request_inquiries(tx)
        return replace(found, opened=len(opened), asked=inquired)

    def audit_details(self, result: ReconciliationResult) -> dict[str, object]:
        """Record the counts; the lines stay in the file."""
        return {"tallies": result.tallies, "opened": result.opened, "asked": result.asked}


def _cases(
    context: OperationContext,
    comparison: ReconciliationInput,
    differences: Sequence[ReconciliationDifference],
) -> list[NewCase]:
    return [
        _case(context.id_generator.new_id(), comparison.provider, difference)
        for difference in differences
    ]


def _check_count(found: ReconciliationResult) -> None:
    if found.found > OPENED_MAX:
        raise RefusedError(
            ErrorCode.UNPROCESSABLE,
            f"{found.found} differences are too many for cases: is it the file of "
            f"another account? nothing was written",
        )


async def _scope(database: Executor, comparison: ReconciliationInput) -> ReconciliationScope:
    """Find the accounts and the period; refuse what cannot be compared."""
    provider = comparison.provider
    accounts = await reconciliation.list_accounts_of(database, provider)
    if not accounts:
        raise RefusedError(
            ErrorCode.NOT_FOUND,
            f"{quote_input(provider)} has no account whose payments a file could list",
        )
    if comparison.account_id is not None:
        if comparison.account_id not in accounts:
            raise RefusedError(
                ErrorCode.NOT_FOUND, f"{provider} has no account {comparison.account_id}"
            )
        accounts = [comparison.account_id]
    since, until = as_utc("since", comparison.since), as_utc("until", comparison.until)
    file = comparison.file
    if since is None and file.first is not None:
        since = file.first + timedelta(seconds=LAG_S)
    until = until or file.last
    if since is None or until is None:
        raise RefusedError(
            ErrorCode.BAD_REQUEST, "the file has no lines: say from when to when it is"
        )
    return ReconciliationScope(accounts=accounts, since=since, until=until, decimals=MINOR_DECIMALS)


async def _compare(
    tx: Tx, comparison: ReconciliationInput, scope: ReconciliationScope
) -> tuple[ReconciliationResult, Sequence[ReconciliationDifference]]:
    """Load the file and find the differences; returns at most as many as may become cases."""
    await reconciliation.create_tables(tx)
    lines = comparison.file.read()
    while batch := list(islice(lines, _BATCH_MAX)):
        await reconciliation.add(tx, batch)
    if again := await reconciliation.list_repeated(tx, _REPEATED_TOLD_MAX):
        raise InvalidProviderFileError(
            [f"line {repeated}: it stands on line {first} already" for repeated, first in again]
        )
    await reconciliation.compare(tx, scope)
    counts = await reconciliation.count_differences(tx)
    differences = await reconciliation.list_differences(tx, OPENED_MAX)
    found = ReconciliationResult(
        provider=comparison.provider,
        account_id=comparison.account_id,
        since=scope.since,
        until=scope.until,
        sha256=comparison.file.sha256,
        tallies=[_tally(counts, type_) for type_ in _TYPES],
        opened=0,
        asked=0,
        differences=[
            _subject(comparison.provider, difference) for difference in differences[:_TOLD_MAX]
        ],
    )
    return found, differences


def _tally(counts: Mapping[tuple[str, str], int], type_: str) -> ReconciliationTally:
    lines, extra, different = (counts.get((type_, side), 0) for side in _THERE)
    return ReconciliationTally(
        type=type_,
        lines=lines,
        matched=lines - extra - different,
        missing=counts.get((type_, "missing"), 0),
        extra=extra,
        different=different,
    )


def _case(case_id: UUID, provider: str, difference: ReconciliationDifference) -> NewCase:
    origin = MoneyOrigin(
        merchant_id=difference.merchant_id,
        payment_id=difference.payment_id,
        session_id=difference.session_id,
    )
    return NewCase(
        id=case_id,
        kind=CaseKind.RECONCILIATION,
        origin=origin,
        capture_id=difference.capture_id,
        refund_id=difference.refund_id,
        subject=_subject(provider, difference),
    )


def _subject(provider: str, difference: ReconciliationDifference) -> str:
    """Describe the difference; the same text each time, for it identifies the case."""
    reference = difference.reference or ""
    if len(reference) > _REFERENCE_TOLD_MAX:
        reference = reference[:_REFERENCE_TOLD_MAX] + "…"
    told_there = _money(difference.there, difference.there_currency)
    told_here = _money(difference.here, difference.here_currency)
    if difference.what == "different":
        how = f"{told_there} there, {told_here} here"
    else:
        how = f"{told_there or told_here} at {format_timestamp(difference.at)}"
        status = difference.refund_status if difference.what == "extra" else None
        how += f", ours is {status}" if status else ""
    return f"{provider} {difference.type} {reference}: {difference.what}, {how}"


def _money(amount: Decimal | None, currency: str | None) -> str:
    if amount is None or currency is None:
        return ""
    fraction = format(amount, "f").partition(".")[2].rstrip("0")
    least = 0 if currency in {*CRYPTO, *SETTLING} else minor_decimals(currency)
    decimals = max(least, len(fraction))
    return f"{format_amount(amount, decimals)} {currency}"
