"""Runs of reconciliation: listed, shown with what each side says, and done again."""

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
    """A run, and what each side says of it."""

    run: RunRecord
    sums: list[ReconciliationSum]
    balances: list[ReceiverBalance]  # of a contract's receiver


class ListReconciliationRuns(ReadOperation[list[RunRecord]], frozen=True, kw_only=True):
    """List comparisons of gateways' lists with ours that the worker made, newest first."""

    action: ClassVar[str] = "reconciliation.list"
    columns = (
        *("id", "account_id", "provider", "source", "name", "status", "lines", "opened"),
        "ended_at",
    )
    account_id: Annotated[int | None, option("Of one gateway account.", name="account")] = None
    status: Annotated[str | None, option("One of running, matched, differs, failed.")] = None
    before: Annotated[
        UUID | None, option("The next page: runs before this one, the last of a page.")
    ] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[RunRecord]:
        check_list_limit(self.limit)
        if self.status is not None and self.status not in STATUSES:
            raise BadRequestError(
                f"status must be one of {', '.join(STATUSES)}, not {quote_input(self.status)}"
            )
        if self.account_id is not None and not await _is_known(context, self.account_id):
            raise NotFoundError(f"no account {self.account_id}")
        return await reconciliation_runs.list_runs(
            context.reading, self.account_id, self.status, self.before, self.limit
        )


class ShowReconciliationRun(ReadOperation[RunDetails], frozen=True, kw_only=True):
    """Show a comparison: what each side has by currency, and what is at a contract's receiver."""

    action: ClassVar[str] = "reconciliation.show"
    run_id: Annotated[UUID, argument("As `reconciliation list` has it.")]

    async def read(self, context: OperationContext) -> RunDetails:
        return await _details(context.database, self.run_id)


class RetryReconciliationRun(ChangeOperation[RunDetails], frozen=True, kw_only=True):
    """Have a comparison that failed done again, when a worker next finds its file."""

    action: ClassVar[str] = "reconciliation.retry"
    needs_role: ClassVar[Role] = Role.FINANCE
    run_id: Annotated[UUID, argument("As `reconciliation list` has it.")]

    async def apply(self, context: OperationContext, tx: Tx) -> RunDetails:
        """Reopen the run; raise `CONFLICT` if it has not failed."""
        status = await reconciliation_runs.lock_ended(tx, self.run_id)
        if status is not None and status != "failed":
            raise ConflictError(f"the run has not failed: it is {status}")
        if status is not None:
            await reconciliation_runs.reopen(tx, self.run_id)
        return await _details(tx, self.run_id)


async def _is_known(context: OperationContext, account_id: int) -> bool:
    found = is_database_id(account_id) and await accounts.get(context.database, account_id)
    return bool(found)


async def _details(database: Executor, run_id: UUID) -> RunDetails:
    found = await reconciliation_runs.get(database, run_id)
    if found is None:
        raise NotFoundError(f"no run {run_id}")
    return RunDetails(
        run=found,
        sums=await reconciliation_runs.list_sums(database, run_id),
        balances=await reconciliation_blocks.list_balances(database, run_id),
    )
