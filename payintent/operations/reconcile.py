"""Operations that compare a gateway's file with our records."""

from dataclasses import replace
from typing import ClassVar

from payintent.domain.operator import Role
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.validation import as_utc
from payintent.reconciliation.compare import (
    ReconciliationInput,
    ReconciliationResult,
    compare_file,
    find_accounts,
)
from payintent.storage import reconciliation
from payintent.storage.database import Tx


class CompareProviderFile(ReadOperation[ReconciliationResult], frozen=True, kw_only=True):
    """Compare a file without changes; `InvalidProviderFileError` if it has duplicate lines.

    With `foresees_cases`, the result's `opened` is the number of cases that would be opened.
    """

    action: ClassVar[str] = "reconcile"
    comparison: ReconciliationInput
    foresees_cases: bool = False

    async def read(self, context: OperationContext) -> ReconciliationResult:
        comparison = _complete(context, self.comparison)
        await find_accounts(context.database, comparison)
        async with context.database.transaction() as tx:
            compared_file = await compare_file(tx, comparison, None)
            if not self.foresees_cases:
                return compared_file.result
            opened = await reconciliation.count_new_cases(tx, compared_file.make_cases(tx))
            return replace(compared_file.result, opened=opened)


class ReconcileProviderFile(ChangeOperation[ReconciliationResult], frozen=True, kw_only=True):
    """Compare a file, open a case for each new difference, and record the file's payouts."""

    action: ClassVar[str] = "reconcile"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    comparison: ReconciliationInput

    async def changes(self, context: OperationContext) -> list[str]:
        compare = CompareProviderFile(comparison=self.comparison, foresees_cases=True)
        foreseen = await compare.read(context)
        payouts = foreseen.payouts.new
        return [f"{foreseen.opened} cases are opened"] + (
            [f"{payouts} payouts are recorded"] if payouts else []
        )

    async def check(self, context: OperationContext) -> None:
        await find_accounts(context.database, _complete(context, self.comparison))

    async def apply(self, context: OperationContext, tx: Tx) -> ReconciliationResult:
        compared_file = await compare_file(tx, _complete(context, self.comparison), context.who)
        return await compared_file.open_cases(tx)

    def audit_details(self, result: ReconciliationResult) -> dict[str, object]:
        return {
            "tallies": result.tallies,
            "payouts": result.payouts,
            "opened": result.opened,
            "asked": result.asked,
        }


def _complete(context: OperationContext, comparison: ReconciliationInput) -> ReconciliationInput:
    """Convert the times to UTC, and add the file layouts and currencies of the gateway."""
    capabilities = context.capabilities(comparison.provider)
    return replace(
        comparison,
        file=replace(comparison.file, layouts=capabilities.layouts if capabilities else ()),
        currencies=capabilities and capabilities.currencies,
        since=as_utc("since", comparison.since),
        until=as_utc("until", comparison.until),
    )
