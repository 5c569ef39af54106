"""The ledger: balances shown, compared with the facts, and entered for facts of before."""

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

_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferingAccount:
    """An account whose balance is not what the facts say: debits less credits, in minor units."""

    account: str
    currency: str
    chain: str | None
    ledger_minor: str
    facts_minor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerBackfilled:
    """How many facts were entered, and up to where."""

    facts: int
    kind: FactKind
    last_id: UUID | None


class ShowLedger(ReadOperation[list[AccountBalance]], frozen=True, kw_only=True):
    """Show the balance of each account of the ledger."""

    action: ClassVar[str] = "ledger.show"
    columns = ("account", "currency", "chain", "debits_minor", "credits_minor", "balance_minor")
    merchant_id: OfMerchantId = None
    currency: Annotated[str | None, option("Of one currency or token, such as THB.")] = None

    async def read(self, context: OperationContext) -> list[AccountBalance]:
        """Return the balances by account; with a merchant, of what is entered for it."""
        await check_merchant(context.database, self.merchant_id)
        return await ledger_balances.list_balances(context.reading, self.merchant_id, self.currency)


class CheckLedger(ReadOperation[list[DifferingAccount]], frozen=True, kw_only=True):
    """List accounts that are not what captures, refunds, disputes, cases and payouts say.

    A command that finds one ends with the status 1.
    """

    action: ClassVar[str] = "ledger.check"
    columns = ("account", "currency", "chain", "ledger_minor", "facts_minor")

    async def read(self, context: OperationContext) -> list[DifferingAccount]:
        """Return the accounts that differ, all read at one moment."""
        return [
            DifferingAccount(
                account=difference.account,
                currency=difference.currency,
                chain=difference.chain,
                ledger_minor=str(difference.ledger_minor),
                facts_minor=str(difference.facts_minor),
            )
            for difference in await ledger_check.find_differences(context.database)
        ]


class BackfillLedger(BatchOperation[LedgerBackfilled], frozen=True, kw_only=True):
    """Enter captures, refunds, cases and disputes from before the ledger.

    Payments go on meanwhile. What is entered is left as it is, so that it can be begun again.
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

    def place(self) -> tuple[FactKind, UUID]:
        """Return the kind of the batch, and the fact that it comes after."""
        return FactKind.CAPTURES, UUID(int=0)

    async def apply(self, context: OperationContext, tx: Tx) -> LedgerBackfilled:
        kind, after = self.place()
        kinds = list(FactKind)
        for current in kinds[kinds.index(kind) :]:
            start = after if current is kind else UUID(int=0)
            entered = await ledger_backfill.enter_missing(tx, current, start, _BATCH)
            if entered:
                return LedgerBackfilled(facts=len(entered), kind=current, last_id=entered[-1])
        return LedgerBackfilled(facts=0, kind=kinds[-1], last_id=None)

    def count(self, done: LedgerBackfilled) -> int:
        return done.facts

    def following(self, batch: LedgerBackfilled) -> "BackfillLedger | None":
        """Continue after the last fact, until none lacks an entry."""
        if batch.last_id is None:
            return None
        return _FurtherBackfill(kind=batch.kind, after=batch.last_id)

    def combine(self, done: LedgerBackfilled, batch: LedgerBackfilled) -> LedgerBackfilled:
        last_id = batch.last_id or done.last_id
        return LedgerBackfilled(facts=done.facts + batch.facts, kind=batch.kind, last_id=last_id)

    def audit_details(self, result: LedgerBackfilled) -> Mapping[str, object]:
        return {"facts": result.facts}


class _FurtherBackfill(BackfillLedger, frozen=True, kw_only=True):
    """The facts after those of the batch before."""

    kind: FactKind
    after: UUID

    def place(self) -> tuple[FactKind, UUID]:
        return self.kind, self.after
