"""Compare each gateway's balance movements with our records once a day, and record payouts."""

import asyncio
import csv
import hashlib
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TextIO

from payintent.accounting import gateway_payouts_store as gateway_payout_store
from payintent.accounting.gateway_payouts_store import reverse_gateway_payout
from payintent.cases import store as case_store
from payintent.core import ids
from payintent.core.money import format_smallest_units
from payintent.db.database import get_current_time
from payintent.db.locks import LockLostError, hold_advisory_lock
from payintent.disputes.record import EarlyReportError
from payintent.gateway_accounts.accounts import GatewayAccounts
from payintent.gateways.port import (
    GatewayAccount,
    GatewayRefundState,
    OutcomeUnknown,
    OutsideRefund,
    ReportingGateway,
)
from payintent.gateways.settlement_reports import BalanceMovement, ListedPayout, MovementKind
from payintent.payments import captures_store as capture_store
from payintent.reconciliation import runs_store
from payintent.reconciliation.compare import ReconciliationInput
from payintent.reconciliation.file import HEADER, ProviderFile
from payintent.reconciliation.listed_payouts import (
    PAYOUTS_MAX,
    compare_payouts,
)
from payintent.reconciliation.runs import (
    RECORDED_BY,
    SOURCE_FAILURES,
    ReconciliationContext,
    compare_list,
    read_digest,
)
from payintent.reconciliation.runs_store import NewRun, ReportingAccount
from payintent.refunds.record_outside import RefundInProgressError, record_outside_refund
from payintent.runtime.json_format import format_timestamp
from payintent.runtime.log import get_logger
from payintent.runtime.settings import Settings

SOURCE = "api"
#: Number of earlier days to list, because our records may be dated later than the movements.
OVERLAP_DAYS = 3
#: Time after midnight (UTC) until a gateway's list for the previous day is complete.
COMPLETION_DELAY = timedelta(hours=1)
PAGES_MAX = 100_000  # per day
_DISPUTE_KINDS = frozenset({MovementKind.DISPUTE, MovementKind.DISPUTE_REVERSAL})
_RUN_NAME_PREFIX = "balance transactions "
_log = get_logger("reconciliation")


class ListUnavailableError(Exception):
    """The gateway did not return a complete list. The next poll requests the list again."""


@dataclass(slots=True)
class _ListContents:
    """The payouts and outside refunds in a list, and the disputes already written to the file."""

    payouts: list[BalanceMovement] = field(default_factory=list[BalanceMovement])
    outside_refunds: list[OutsideRefund] = field(default_factory=list[OutsideRefund])
    disputes: set[tuple[MovementKind, str]] = field(default_factory=set[tuple[MovementKind, str]])


@dataclass(frozen=True, slots=True)
class MovementComparison:
    settings: Settings
    context: ReconciliationContext
    accounts: GatewayAccounts


async def compare_movements(comparison: MovementComparison) -> None:
    """Compare all completed days of every live account whose gateway has a reporting API."""
    accounts, database = comparison.accounts, comparison.context.database
    providers = [
        name for name in accounts.providers if isinstance(accounts.gateway(name), ReportingGateway)
    ]
    now = await get_current_time(database)
    for account in await runs_store.list_reporting_accounts(database, providers, SOURCE):
        await _compare_days(comparison, account, now)


async def _compare_days(
    comparison: MovementComparison, account: ReportingAccount, now: datetime
) -> None:
    while (day := _find_due_day(account, now)) is not None:
        if not await _compare_with_lock(comparison, account, day):
            return
        account = replace(
            account,
            open_run_name=None,
            newest_run_name=max(account.newest_run_name or "", _format_run_name(day)),
        )


def _find_due_day(account: ReportingAccount, now: datetime) -> date | None:
    """Return the oldest completed day that still has to be compared, or None.

    For an account without any runs, this is yesterday.
    """
    yesterday = (now - COMPLETION_DELAY).date() - timedelta(days=1)
    if account.open_run_name is not None:
        return _parse_day(account.open_run_name)
    if account.newest_run_name is None:
        return yesterday
    day = _parse_day(account.newest_run_name) + timedelta(days=1)
    return day if day <= yesterday else None


def _format_run_name(day: date) -> str:
    return f"{_RUN_NAME_PREFIX}{day.isoformat()}"


def _parse_day(run_name: str) -> date:
    return date.fromisoformat(run_name.removeprefix(_RUN_NAME_PREFIX))


async def _compare_with_lock(
    comparison: MovementComparison, account: ReportingAccount, day: date
) -> bool:
    """Compare a day unless another worker is doing so; return whether the run has ended."""
    url = comparison.settings.direct_url
    try:
        async with hold_advisory_lock(url, f"movements:{account.account_id}") as lock:
            return lock.is_held and await _compare(comparison, account, day)
    except (ListUnavailableError, LockLostError, OSError) as error:
        SOURCE_FAILURES.labels(SOURCE).inc()
        _log.warning(
            "reconciliation_source_unavailable",
            source=f"{account.provider} {account.account_id}",
            why=str(error) or type(error).__name__,
        )
        return False


async def _compare(comparison: MovementComparison, account: ReportingAccount, day: date) -> bool:
    start = datetime.combine(day, time(), UTC)
    until = start + timedelta(days=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "list.csv"
        contents = await _write_list(comparison.accounts, account, path, start, until)
        await _record_payouts(comparison, account, contents.payouts)
        await _record_outside_refunds(comparison, account, contents.outside_refunds)
        name = _format_run_name(day)
        new_run = NewRun(
            id=comparison.context.database.id_generator.new_id(),
            account_id=account.account_id,
            source=SOURCE,
            name=name,
            sha256=hashlib.sha256(name.encode()).hexdigest(),
        )
        comparison_input = ReconciliationInput(
            file=ProviderFile(path=path, sha256=await asyncio.to_thread(read_digest, path)),
            provider=account.provider,
            account_id=account.account_id,
            since=start,
            until=until - timedelta(microseconds=1),
            lists_disputes=True,
        )
        return await compare_list(comparison.context, new_run, comparison_input) is not None


async def _write_list(
    accounts: GatewayAccounts,
    account: ReportingAccount,
    path: Path,
    start: datetime,
    until: datetime,
) -> _ListContents:
    gateway, credentials = await _connect(accounts, account)
    contents, after = _ListContents(), None
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerow(HEADER)
        for _ in range(PAGES_MAX):
            page = await gateway.list_movements(
                credentials, start - timedelta(days=OVERLAP_DAYS), until, after
            )
            if isinstance(page, OutcomeUnknown):
                raise ListUnavailableError(page.detail)
            _write_movements(file, contents, page.movements)
            after = page.after
            if after is None:
                return contents
    raise ListUnavailableError("the list has too many pages")


async def _connect(
    accounts: GatewayAccounts, account: ReportingAccount
) -> tuple[ReportingGateway, GatewayAccount]:
    connection = await accounts.connect(account.account_id, account.provider)
    if connection is None or not isinstance(connection.gateway, ReportingGateway):
        raise ListUnavailableError("the account or its gateway adapter is missing")
    return connection.gateway, connection.account


def _write_movements(
    file: TextIO, contents: _ListContents, movements: Sequence[BalanceMovement]
) -> None:
    rows = csv.writer(file)
    for movement in movements:
        if movement.kind in {MovementKind.PAYOUT, MovementKind.PAYOUT_REVERSAL}:
            contents.payouts.append(movement)
            continue
        if movement.kind in _DISPUTE_KINDS:
            if (dispute := (movement.kind, movement.reference)) in contents.disputes:
                continue  # the dispute was appealed, and its newer movement is already written
            contents.disputes.add(dispute)
        if (refund := _to_outside_refund(movement)) is not None:
            contents.outside_refunds.append(refund)
        our_id = "" if movement.our_id is None else ids.format_id(ids.REFUND, movement.our_id)
        rows.writerow(
            (
                movement.kind.value,
                movement.reference,
                our_id,
                format_smallest_units(
                    movement.amount_minor, movement.currency, None, on_chain=False
                ),
                movement.currency,
                format_timestamp(movement.at),
            )
        )
    if len(contents.payouts) > PAYOUTS_MAX:
        raise ListUnavailableError("the list has too many payouts")


def _to_outside_refund(movement: BalanceMovement) -> OutsideRefund | None:
    """Return a refund that was made at the gateway, or None. Its callback may have been lost."""
    is_our_refund = movement.our_id is not None
    if movement.kind is not MovementKind.REFUND or is_our_refund or movement.capture is None:
        return None
    return OutsideRefund(
        reference=movement.reference,
        capture=movement.capture,
        state=GatewayRefundState.DONE,
        amount_minor=movement.amount_minor,
        currency=movement.currency,
    )


async def _record_outside_refunds(
    comparison: MovementComparison, account: ReportingAccount, refunds: Sequence[OutsideRefund]
) -> None:
    """Record refunds that were made at the gateway but not reported by a callback.

    A refund that cannot be recorded yet is reported as a difference.
    """
    database = comparison.context.database
    for refund in refunds:
        if not await capture_store.is_known(database, account.account_id, refund.capture):
            continue
        with suppress(EarlyReportError, RefundInProgressError):
            async with database.transaction() as tx:
                await record_outside_refund(tx, account.account_id, refund)


async def _record_payouts(
    comparison: MovementComparison, account: ReportingAccount, payouts: list[BalanceMovement]
) -> None:
    """Record new payouts and reverse returned payouts, oldest first."""
    for payout in sorted(payouts, key=lambda payout: payout.at):
        if payout.kind is MovementKind.PAYOUT_REVERSAL:
            async with comparison.context.database.transaction() as tx:
                await reverse_gateway_payout(tx, account.account_id, payout.reference, RECORDED_BY)
        else:
            await _record_payout(comparison, account, payout)


async def _record_payout(
    comparison: MovementComparison, account: ReportingAccount, movement: BalanceMovement
) -> None:
    """Record a payout. If it is already recorded with a different amount, open a case."""
    database = comparison.context.database
    gateway, credentials = await _connect(comparison.accounts, account)
    fee_minor = None
    if not await gateway_payout_store.find_latest(
        database, account.account_id, [movement.reference]
    ):
        fee_minor = await gateway.sum_payout_fees(credentials, movement.reference)
        if isinstance(fee_minor, OutcomeUnknown):
            raise ListUnavailableError(fee_minor.detail)
    payout = ListedPayout(
        reference=movement.reference,
        amount_minor=movement.amount_minor,
        fee_minor=fee_minor,
        currency=movement.currency,
        paid_on=movement.paid_on,
    )
    async with database.transaction() as tx:
        comparison_result = await compare_payouts(
            tx, account.provider, account.account_id, [payout], RECORDED_BY
        )
        await case_store.open_cases(tx, comparison_result.cases)
