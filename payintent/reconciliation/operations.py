"""Operations that compare a gateway's file with our records, and manage the worker's runs."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.core.access import Role
from payintent.core.errors import BadRequestError, ConflictError, NotFoundError
from payintent.db.database import Executor, Tx
from payintent.gateway_accounts import store as account_store
from payintent.operators.fields import (
    ListLimit,
    argument,
    check_list_limit,
    is_database_id,
    option,
    quote_input,
    to_utc,
)
from payintent.operators.operation import ChangeOperation, OperationContext, ReadOperation
from payintent.reconciliation import blocks_store, compare_store, runs_store
from payintent.reconciliation.blocks_store import ReceiverBalance
from payintent.reconciliation.compare import (
    ReconciliationInput,
    ReconciliationResult,
    check_difference_count,
    compare_file,
    find_accounts,
)
from payintent.reconciliation.runs_store import STATUSES, RunRecord
from payintent.reconciliation.sums_store import ReconciliationSum


class CompareProviderFile(ReadOperation[ReconciliationResult], frozen=True, kw_only=True):
    """Compare a file with our records without changing anything.

    With `counts_new_cases`, `opened` is the number of cases that would be opened. Raises
    `InvalidProviderFileError` for an invalid or duplicate line.
    """

    action: ClassVar[str] = "reconcile"
    comparison: ReconciliationInput
    counts_new_cases: bool = False

    async def read(self, context: OperationContext) -> ReconciliationResult:
        comparison = _normalize(context, self.comparison)
        await find_accounts(context.database, comparison)
        async with context.database.transaction() as tx:
            compared_file = await compare_file(tx, comparison, None)
            if not self.counts_new_cases:
                return compared_file.result
            check_difference_count(compared_file.result.difference_count)
            case_count = await compare_store.count_new_cases(tx, compared_file.cases)
            return replace(compared_file.result, opened=case_count)


class ReconcileProviderFile(ChangeOperation[ReconciliationResult], frozen=True, kw_only=True):
    """Compare a file, open a case for each new difference, and record the file's payouts."""

    action: ClassVar[str] = "reconcile"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    comparison: ReconciliationInput

    async def changes(self, context: OperationContext) -> list[str]:
        comparison = CompareProviderFile(comparison=self.comparison, counts_new_cases=True)
        preview = await comparison.read(context)
        payouts = preview.payouts.new
        return [f"cases to open: {preview.opened}"] + (
            [f"payouts to record: {payouts}"] if payouts else []
        )

    async def check(self, context: OperationContext) -> None:
        await find_accounts(context.database, _normalize(context, self.comparison))

    async def apply(self, context: OperationContext, tx: Tx) -> ReconciliationResult:
        compared_file = await compare_file(
            tx, _normalize(context, self.comparison), context.actor_name
        )
        return await compared_file.open_cases(tx)

    def audit_details(self, result: ReconciliationResult) -> dict[str, object]:
        return {
            "tallies": result.tallies,
            "payouts": result.payouts,
            "opened": result.opened,
            "inquiries": result.inquiries,
        }


def _normalize(context: OperationContext, comparison: ReconciliationInput) -> ReconciliationInput:
    """Convert the times to UTC, and add the gateway's file layouts and currencies."""
    return replace(
        comparison.adapt_to_gateway(context.capabilities(comparison.provider)),
        since=to_utc("since", comparison.since),
        until=to_utc("until", comparison.until),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetails:
    run: RunRecord
    sums: list[ReconciliationSum]
    balances: list[ReceiverBalance]  # of the receiver, if a contract was compared


class ListReconciliationRuns(ReadOperation[list[RunRecord]], frozen=True, kw_only=True):
    """List the worker's reconciliation runs, newest first."""

    action: ClassVar[str] = "reconciliation.list"
    columns = (
        *("id", "account_id", "provider", "source", "name", "status", "lines", "opened"),
        "ended_at",
    )
    account_id: Annotated[int | None, option("Only this gateway account.", name="account")] = None
    status: Annotated[
        str | None, option("Only this status: running, matched, differs or failed.")
    ] = None
    before: Annotated[UUID | None, option("The last run on the previous page.")] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[RunRecord]:
        check_list_limit(self.limit)
        if self.status is not None and self.status not in STATUSES:
            raise BadRequestError(
                f"status must be one of {', '.join(STATUSES)}, not {quote_input(self.status)}"
            )
        if self.account_id is not None and not await _account_exists(context, self.account_id):
            raise NotFoundError(f"no account {self.account_id}")
        return await runs_store.list_runs(
            context.read_database, self.account_id, self.status, self.before, self.limit
        )


class ShowReconciliationRun(ReadOperation[RunDetails], frozen=True, kw_only=True):
    """Show a reconciliation run: each side's totals by currency, and a contract's balances."""

    action: ClassVar[str] = "reconciliation.show"
    run_id: Annotated[UUID, argument("The id shown by `reconciliation list`.")]

    async def read(self, context: OperationContext) -> RunDetails:
        return await _get_details(context.database, self.run_id)


class RetryReconciliationRun(ChangeOperation[RunDetails], frozen=True, kw_only=True):
    """Retry a failed reconciliation run when a worker next finds its file."""

    action: ClassVar[str] = "reconciliation.retry"
    needs_role: ClassVar[Role] = Role.FINANCE
    run_id: Annotated[UUID, argument("The id shown by `reconciliation list`.")]

    async def apply(self, context: OperationContext, tx: Tx) -> RunDetails:
        status = await runs_store.lock_status(tx, self.run_id)
        if status is not None and status != "failed":
            raise ConflictError(f"only a failed run can be retried; this run is {status}")
        if status is not None:
            await runs_store.reopen(tx, self.run_id)
        return await _get_details(tx, self.run_id)


async def _account_exists(context: OperationContext, account_id: int) -> bool:
    return is_database_id(account_id) and bool(
        await account_store.get(context.database, account_id)
    )


async def _get_details(database: Executor, run_id: UUID) -> RunDetails:
    run = await runs_store.get(database, run_id)
    if run is None:
        raise NotFoundError(f"no run {run_id}")
    return RunDetails(
        run=run,
        sums=await runs_store.list_sums(database, run_id),
        balances=await blocks_store.list_balances(database, run_id),
    )
