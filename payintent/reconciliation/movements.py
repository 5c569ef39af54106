"""Each day what a gateway's reporting API lists is compared, and its payouts are recorded."""

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

from payintent.config import Settings
from payintent.domain import ids
from payintent.domain.balance_movement import BalanceMovement, MovementKind, ReportingGateway
from payintent.domain.gateway import GatewayAccount, GatewayRefundState, OutcomeUnknown
from payintent.domain.money import format_smallest_units
from payintent.domain.outside_reports import OutsideRefund
from payintent.domain.settlement_file import ListedPayout
from payintent.json_format import format_timestamp
from payintent.log import get_logger
from payintent.payments.gateway_accounts import GatewayAccounts
from payintent.payments.gateway_payouts import reverse_gateway_payout
from payintent.payments.record_outside_refund import RefundUnderWayError, record_outside_refund
from payintent.payments.reported_capture import EarlyReportError
from payintent.reconciliation.generic_layout import HEADER
from payintent.reconciliation.intake import (
    WHO,
    FoundList,
    ReconciliationContext,
    compare_list,
    read_digest,
)
from payintent.reconciliation.listed_payouts import (
    PAYOUTS_MAX,
    PayoutAccount,
    make_payout_cases,
    settle_payouts,
)
from payintent.reconciliation.runs import SOURCE_FAILURES
from payintent.storage import captures, cases, gateway_payouts, reconciliation_runs
from payintent.storage.advisory_lock import LockLostError, hold_advisory_lock
from payintent.storage.database import current_time
from payintent.storage.reconciliation_runs import NewRun, ReportingAccount

SOURCE = "api"
#: What was paid or sent a while ago, and that we learned of in the day, is listed too.
OVERLAP_DAYS = 3
#: A day is asked for so much later: a gateway's list is complete then.
PATIENCE = timedelta(hours=1)
PAGES_MAX = 100_000  # of a day
_OF_DISPUTES = frozenset({MovementKind.DISPUTE, MovementKind.DISPUTE_REVERSAL})
_NAME = "balance transactions "
_log = get_logger("reconciliation")


class UnlistedError(Exception):
    """A gateway does not list what is asked for; the next look tries again."""


@dataclass(slots=True)
class _Written:
    payouts: list[BalanceMovement] = field(default_factory=list[BalanceMovement])
    outside_refunds: list[OutsideRefund] = field(default_factory=list[OutsideRefund])
    disputes: set[tuple[MovementKind, str]] = field(default_factory=set[tuple[MovementKind, str]])


@dataclass(frozen=True, slots=True)
class MovementComparison:
    settings: Settings
    context: ReconciliationContext
    accounts: GatewayAccounts


async def compare_movements(comparison: MovementComparison) -> None:
    """Compare the days that are over of every live account whose gateway reports."""
    accounts, database = comparison.accounts, comparison.context.database
    providers = [
        name for name in accounts.providers if isinstance(accounts.gateway(name), ReportingGateway)
    ]
    now = await current_time(database)
    for account in await reconciliation_runs.list_reporting(database, providers, SOURCE):
        await _compare_days(comparison, account, now)


async def _compare_days(
    comparison: MovementComparison, account: ReportingAccount, now: datetime
) -> None:
    while (day := _due_day(account, now)) is not None:
        if not await _compare_alone(comparison, account, day):
            return
        account = replace(
            account, open_name=None, last_name=max(account.last_name or "", _name(day))
        )


def _due_day(account: ReportingAccount, now: datetime) -> date | None:
    """Return the first day that is over and not compared; yesterday where none ever was."""
    over = (now - PATIENCE).date() - timedelta(days=1)
    if account.open_name is not None:
        return _day_of(account.open_name)
    if account.last_name is None:
        return over
    day = _day_of(account.last_name) + timedelta(days=1)
    return day if day <= over else None


def _name(day: date) -> str:
    return f"{_NAME}{day.isoformat()}"


def _day_of(name: str) -> date:
    return date.fromisoformat(name.removeprefix(_NAME))


async def _compare_alone(
    comparison: MovementComparison, account: ReportingAccount, day: date
) -> bool:
    """Compare a day unless another worker does; False where it has not ended."""
    settings = comparison.settings
    url = settings.direct_url
    try:
        async with hold_advisory_lock(url, f"movements:{account.account_id}") as lock:
            return lock.is_held and await _compare(comparison, account, day)
    except (UnlistedError, LockLostError, OSError) as error:
        SOURCE_FAILURES.labels(SOURCE).inc()
        _log.warning(
            "reconciliation_source_unavailable",
            source=f"{account.provider} {account.account_id}",
            why=str(error) or type(error).__name__,
        )
        return False


async def _compare(comparison: MovementComparison, account: ReportingAccount, day: date) -> bool:
    begin = datetime.combine(day, time(), UTC)
    until = begin + timedelta(days=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "list.csv"
        written = await _write(comparison.accounts, account, path, begin, until)
        await _record_payouts(comparison, account, written.payouts)
        await _record_outside_refunds(comparison, account, written.outside_refunds)
        name = _name(day)
        new = NewRun(
            id=comparison.context.database.id_generator.new_id(),
            account_id=account.account_id,
            source=SOURCE,
            name=name,
            sha256=hashlib.sha256(name.encode()).hexdigest(),
        )
        found = FoundList(
            path=path,
            sha256=await asyncio.to_thread(read_digest, path),
            since=begin,
            until=until - timedelta(microseconds=1),
            lists_disputes=True,
        )
        return await compare_list(comparison.context, new, found) is not None


async def _write(
    accounts: GatewayAccounts,
    account: ReportingAccount,
    path: Path,
    begin: datetime,
    until: datetime,
) -> _Written:
    gateway, credentials = await _connect(accounts, account)
    written, after = _Written(), None
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerow(HEADER)
        for _ in range(PAGES_MAX):
            page = await gateway.list_movements(
                credentials, begin - timedelta(days=OVERLAP_DAYS), until, after
            )
            if isinstance(page, OutcomeUnknown):
                raise UnlistedError(page.detail)
            _add(file, written, page.movements)
            after = page.after
            if after is None:
                return written
    raise UnlistedError("the list has too many pages")


async def _connect(
    accounts: GatewayAccounts, account: ReportingAccount
) -> tuple[ReportingGateway, GatewayAccount]:
    connection = await accounts.connect(account.account_id, account.provider)
    if connection is None or not isinstance(connection.gateway, ReportingGateway):
        raise UnlistedError("no account or adapter")
    return connection.gateway, connection.account


def _add(file: TextIO, written: _Written, movements: Sequence[BalanceMovement]) -> None:
    rows = csv.writer(file)
    for movement in movements:
        if movement.kind in {MovementKind.PAYOUT, MovementKind.PAYOUT_BACK}:
            written.payouts.append(movement)
            continue
        if movement.kind in _OF_DISPUTES:
            if (of := (movement.kind, movement.reference)) in written.disputes:
                continue  # of an appeal: a list has a dispute's line once, and this is an older one
            written.disputes.add(of)
        if (refund := _outside_refund(movement)) is not None:
            written.outside_refunds.append(refund)
        ours = "" if movement.our_id is None else ids.format_id(ids.REFUND, movement.our_id)
        rows.writerow(
            (
                movement.kind.value,
                movement.reference,
                ours,
                format_smallest_units(
                    movement.amount_minor, movement.currency, None, on_chain=False
                ),
                movement.currency,
                format_timestamp(movement.at),
            )
        )
    if len(written.payouts) > PAYOUTS_MAX:
        raise UnlistedError("the list has too many payouts")


def _outside_refund(movement: BalanceMovement) -> OutsideRefund | None:
    """Return a refund that names none of ours: its callback may never have arrived."""
    is_ours = movement.our_id is not None
    if movement.kind is not MovementKind.REFUND or is_ours or movement.capture is None:
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
    """Count refunds that were made at the gateway and that no callback has reported.

    What cannot be counted now stays a difference of the list.
    """
    database = comparison.context.database
    for refund in refunds:
        if not await captures.is_known(database, account.account_id, refund.capture):
            continue
        with suppress(EarlyReportError, RefundUnderWayError):
            async with database.transaction() as tx:
                await record_outside_refund(tx, account.account_id, refund)


async def _record_payouts(
    comparison: MovementComparison, account: ReportingAccount, payouts: list[BalanceMovement]
) -> None:
    """Record payouts that are not, the oldest first, and those that came back."""
    for payout in sorted(payouts, key=lambda payout: payout.at):
        if payout.kind is MovementKind.PAYOUT_BACK:
            async with comparison.context.database.transaction() as tx:
                await reverse_gateway_payout(tx, account.account_id, payout.reference, WHO)
        else:
            await _settle(comparison, account, await _ask_fee(comparison, account, payout))


async def _ask_fee(
    comparison: MovementComparison, account: ReportingAccount, payout: BalanceMovement
) -> ListedPayout:
    """Ask what the gateway kept of a payout that was never recorded."""
    gateway, credentials = await _connect(comparison.accounts, account)
    fee_minor = None
    database = comparison.context.database
    if not await gateway_payouts.find_last(database, account.account_id, [payout.reference]):
        fee_minor = await gateway.sum_payout_fees(credentials, payout.reference)
        if isinstance(fee_minor, OutcomeUnknown):
            raise UnlistedError(fee_minor.detail)
    return ListedPayout(
        reference=payout.reference,
        amount_minor=payout.amount_minor,
        fee_minor=fee_minor,
        currency=payout.currency,
        paid_on=payout.paid_on,
    )


async def _settle(
    comparison: MovementComparison, account: ReportingAccount, payout: ListedPayout
) -> None:
    """Record a payout, or open a case where a person has recorded it with another amount."""
    context = comparison.context
    paying = PayoutAccount(
        id=account.account_id, provider=account.provider, merchant_id=account.merchant_id
    )
    async with context.database.transaction() as tx:
        settled = await settle_payouts(tx, paying, [payout], WHO)
        await cases.open_cases(tx, make_payout_cases(tx.id_generator, settled.different))
