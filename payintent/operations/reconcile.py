"""A gateway's own list compared with our records: each difference opens one case."""

from dataclasses import replace
from typing import ClassVar

from payintent.domain.operator import Role
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.validation import as_utc
from payintent.reconciliation.compare import (
    ReconciliationInput,
    ReconciliationResult,
    check_count,
    compare_file,
    find_accounts,
    make_cases,
)
from payintent.storage import cases, reconciliation
from payintent.storage.database import Tx


class CompareProviderFile(ReadOperation[ReconciliationResult], frozen=True, kw_only=True):
    """Compare a file, change nothing; raises `InvalidProviderFileError` for a repeated line.

    With `foresees_cases`, `opened` of the result has the cases that would be opened.
    """

    action: ClassVar[str] = "reconcile"
    comparison: ReconciliationInput
    foresees_cases: bool = False

    async def read(self, context: OperationContext) -> ReconciliationResult:
        """Return the differences; nothing is written."""
        comparison = _in_utc(self.comparison)
        await find_accounts(context.database, comparison)
        async with context.database.transaction() as tx:
            found, differences = await compare_file(tx, comparison)
            if not self.foresees_cases:
                return found
            check_count(found.found)
            new = make_cases(context.id_generator, self.comparison.provider, differences)
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
        """Refuse an unknown provider or account."""
        await find_accounts(context.database, _in_utc(self.comparison))

    async def apply(self, context: OperationContext, tx: Tx) -> ReconciliationResult:
        """Open the cases, and schedule inquiries that may settle differences."""
        comparison = _in_utc(self.comparison)
        found, differences = await compare_file(tx, comparison)
        check_count(found.found)
        opened = await cases.open_cases(
            tx, make_cases(context.id_generator, comparison.provider, differences)
        )
        inquired = await reconciliation.request_inquiries(tx)
        return replace(found, opened=len(opened), asked=inquired)

    def audit_details(self, result: ReconciliationResult) -> dict[str, object]:
        """Record the counts; the lines stay in the file."""
        return {"tallies": result.tallies, "opened": result.opened, "asked": result.asked}


def _in_utc(comparison: ReconciliationInput) -> ReconciliationInput:
    return replace(
        comparison,
        since=as_utc("since", comparison.since),
        until=as_utc("until", comparison.until),
    )
