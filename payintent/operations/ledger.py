"""Operations that show, check and backfill the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.domain.operator import Role
from payintent.operations.base import BatchOperation, OperationContext, ReadOperation
from payintent.operations.fields import OfMerchantId, option
from payintent.operations.validation import check_merchant
from payintent.storage import ledger_backfill, ledger_balances, ledger_check
from payintent.storage.database import Tx
from payintent.storage.ledger_backfill import FactKind
from payintent.storage.ledger_balances import AccountBalance
from payintent.storage.ledger_check import LedgerDifference

_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerBackfilled:
    facts: int
    kind: FactKind
    last_id: UUID | None


class ShowLedger(ReadOperation[list[AccountBalance]], frozen=True, kw_only=True):
    """Show the balance of each ledger account."""

    action: ClassVar[str] = "ledger.show"
    columns = ("account", "currency", "chain", "debits_minor", "credits_minor", "balance_minor")
    merchant_id: OfMerchantId = None
    currency: Annotated[str | None, option("A currency or token, such as THB.")] = None

    async def read(self, context: OperationContext) -> list[AccountBalance]:
        await check_merchant(context.database, self.merchant_id)
        return await ledger_balances.list_balances(context.reading, self.merchant_id, self.currency)


class CheckLedger(ReadOperation[list[LedgerDifference]], frozen=True, kw_only=True):
    """List accounts that do not match captures, refunds, disputes, cases and payouts.

    The command exits with status 1 if there are any.
    """

    action: ClassVar[str] = "ledger.check"
    columns = ("account", "currency", "chain", "ledger_minor", "facts_minor")

    async def read(self, context: OperationContext) -> list[LedgerDifference]:
        return await ledger_check.find_differences(context.database)


class BackfillLedger(BatchOperation[LedgerBackfilled], frozen=True, kw_only=True):
    """Enter captures, refunds, cases and disputes that are older than the ledger.

    It runs while payments are processed, and skips existing entries, so it can be repeated.
    """

    action: ClassVar[str] = "ledger.backfill"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    has_dry_run: ClassVar[bool] = True
    batch_size: ClassVar[int] = _BATCH

    async def changes(self, context: OperationContext) -> list[str]:
        return [f"{await self.total(context)} facts are entered in the ledger"]

    async def total(self, context: OperationContext) -> int:
        return await ledger_backfill.count_missing(context.database)

    async def foresee(self, context: OperationContext) -> Mapping[str, object]:
        return {"facts": await self.total(context)}

    def cursor(self) -> tuple[FactKind, UUID]:
        """Return the kind of the batch, and the id of the last fact before it."""
        return FactKind.CAPTURES, UUID(int=0)

    async def apply(self, context: OperationContext, tx: Tx) -> LedgerBackfilled:
        kind, after = self.cursor()
        kinds = list(FactKind)
        for current in kinds[kinds.index(kind) :]:
            start = after if current is kind else UUID(int=0)
            fact_ids = await ledger_backfill.enter_missing(tx, current, start, _BATCH)
            if fact_ids:
                return LedgerBackfilled(facts=len(fact_ids), kind=current, last_id=fact_ids[-1])
        return LedgerBackfilled(facts=0, kind=kinds[-1], last_id=None)

    def count(self, batch: LedgerBackfilled) -> int:
        return batch.facts

    def following(self, batch: LedgerBackfilled) -> "BackfillLedger | None":
        if batch.last_id is None:
            return None
        return _FurtherBackfill(kind=batch.kind, after=batch.last_id)

    def combine(self, total: LedgerBackfilled, batch: LedgerBackfilled) -> LedgerBackfilled:
        last_id = batch.last_id or total.last_id
        return LedgerBackfilled(facts=total.facts + batch.facts, kind=batch.kind, last_id=last_id)

    def audit_details(self, result: LedgerBackfilled) -> Mapping[str, object]:
        return {"facts": result.facts}


class _FurtherBackfill(BackfillLedger, frozen=True, kw_only=True):
    kind: FactKind
    after: UUID

    def cursor(self) -> tuple[FactKind, UUID]:
        return self.kind, self.after
