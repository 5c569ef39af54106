"""Operations that list, show and retry reconciliation runs."""

from dataclasses import dataclass
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.domain.errors import BadRequestError, ConflictError, NotFoundError
from payintent.domain.operator import Role
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.fields import ListLimit, argument, option
from payintent.operations.validation import check_list_limit, is_database_id, quote_input
from payintent.storage import accounts, reconciliation_blocks, reconciliation_runs
from payintent.storage.database import Executor, Tx
from payintent.storage.reconciliation_blocks import ReceiverBalance
from payintent.storage.reconciliation_runs import STATUSES, RunRecord
from payintent.storage.reconciliation_sums import ReconciliationSum


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetails:
    """A run with the totals of each side."""

    run: RunRecord
    sums: list[ReconciliationSum]
    balances: list[ReceiverBalance]  # of a contract's receiver


class ListReconciliationRuns(ReadOperation[list[RunRecord]], frozen=True, kw_only=True):
    """List the worker's reconciliation runs, newest first."""

    action: ClassVar[str] = "reconciliation.list"
    columns = (
        *("id", "account_id", "provider", "source", "name", "status", "lines", "opened"),
        "ended_at",
    )
    account_id: Annotated[int | None, option("Of one gateway account.", name="account")] = None
    status: Annotated[str | None, option("One of running, matched, differs, failed.")] = None
    before: Annotated[
        UUID | None, option("The last run of the previous page, to get the next page.")
    ] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[RunRecord]:
        check_list_limit(self.limit)
        if self.status is not None and self.status not in STATUSES:
            raise BadRequestError(
                f"status must be one of {', '.join(STATUSES)}, not {quote_input(self.status)}"
            )
        if self.account_id is not None and not await _account_exists(context, self.account_id):
            raise NotFoundError(f"no account {self.account_id}")
        return await reconciliation_runs.list_runs(
            context.reading, self.account_id, self.status, self.before, self.limit
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
        status = await reconciliation_runs.lock_status(tx, self.run_id)
        if status is not None and status != "failed":
            raise ConflictError(f"the run has not failed: it is {status}")
        if status is not None:
            await reconciliation_runs.reopen(tx, self.run_id)
        return await _get_details(tx, self.run_id)


async def _account_exists(context: OperationContext, account_id: int) -> bool:
    return is_database_id(account_id) and bool(await accounts.get(context.database, account_id))


async def _get_details(database: Executor, run_id: UUID) -> RunDetails:
    run = await reconciliation_runs.get(database, run_id)
    if run is None:
        raise NotFoundError(f"no run {run_id}")
    return RunDetails(
        run=run,
        sums=await reconciliation_runs.list_sums(database, run_id),
        balances=await reconciliation_blocks.list_balances(database, run_id),
    )
