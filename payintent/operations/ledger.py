"""The ledger: balances shown, compared with the facts, and entered for facts of before."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.domain.cell_transfer import transfer_entry
from payintent.domain.ledger import CELL_CLEARING
from payintent.domain.operator import Role
from payintent.operations.base import BatchOperation, OperationContext, OperationHome, ReadOperation
from payintent.operations.fields import OfMerchantId, option
from payintent.operations.run_in_cells import ask_in_cells
from payintent.operations.validation import check_merchant
from payintent.payments.carry_balances import find_missing_halves
from payintent.storage import ledger_backfill, ledger_balances, ledger_check
from payintent.storage.cells import Cells
from payintent.storage.database import Tx
from payintent.storage.ledger_backfill import FactKind
from payintent.storage.ledger_balances import AccountBalance
from payintent.storage.merge_lists import CellList, ask_cells

_BATCH = 500
_UNDER_WAY_S = 60.0  # the second half of a transfer follows the first one at once


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferingAccount:
    """An account whose balance in a cell is not what the facts there say.

    Debits less credits, in minor units.
    """

    account: str
    currency: str
    chain: str | None
    ledger_minor: str
    facts_minor: str
    cell: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerBackfilled:
    """How many facts were entered, and up to where."""

    facts: int
    kind: FactKind
    last_id: UUID | None


class ShowLedger(ReadOperation[list[AccountBalance]], frozen=True, kw_only=True):
    """Show the balance of each account of the ledger."""

    action: ClassVar[str] = "ledger.show"
    home: ClassVar[OperationHome] = OperationHome.CELLS
    columns = ("account", "currency", "chain", "debits_minor", "credits_minor", "balance_minor")
    merchant_id: OfMerchantId = None
    currency: Annotated[str | None, option("Of one currency or token, such as THB.")] = None

    async def read(self, context: OperationContext) -> list[AccountBalance]:
        """Return the balances by account; with a merchant, of what is entered for it."""
        await check_merchant(context.database, self.merchant_id)
        found, away = await ask_cells(
            dict(context.readings.items()),
            lambda reading: ledger_balances.list_balances(reading, self.merchant_id, self.currency),
        )
        return CellList(add_balances(found.values()), away)


class CheckLedger(ReadOperation[list[DifferingAccount]], frozen=True, kw_only=True):
    """List accounts that are not what captures, refunds, disputes, cases and payouts say.

    What was carried from one cell to another has to be in both. A command that finds one ends with
    the status 1.
    """

    action: ClassVar[str] = "ledger.check"
    home: ClassVar[OperationHome] = OperationHome.CELLS
    columns = ("account", "currency", "chain", "ledger_minor", "facts_minor", "cell")

    async def read(self, context: OperationContext) -> list[DifferingAccount]:
        """Return the accounts that differ, of one moment in each cell; then those of transfers."""
        found, away = await ask_cells(dict(context.cells.items()), ledger_check.find_differences)
        rows = (
            DifferingAccount(
                account=difference.account,
                currency=difference.currency,
                chain=difference.chain,
                ledger_minor=str(difference.ledger_minor),
                facts_minor=str(difference.facts_minor),
                cell=cell,
            )
            for cell, differences in found.items()
            for difference in differences
        )
        return CellList([*rows, *await _lost_transfers(context.cells, sorted(found))], away)


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
        """Describe how many facts are entered."""
        facts = sum(await ask_in_cells(context, self, self.total))
        return [f"{facts} facts are entered in the ledger"]

    async def total(self, context: OperationContext) -> int:
        """Count the facts that lack an entry."""
        return await ledger_backfill.count_missing(context.database)

    async def foresee(self, context: OperationContext) -> Mapping[str, object]:
        """Count the facts that would be entered."""
        return {"facts": sum(await ask_in_cells(context, self, self.total))}

    def place(self) -> tuple[FactKind, UUID]:
        """Return the kind of the batch, and the fact that it comes after."""
        return FactKind.CAPTURES, UUID(int=0)

    async def apply(self, context: OperationContext, tx: Tx) -> LedgerBackfilled:
        """Enter the next batch, of the next kind that lacks one."""
        del context
        kind, after = self.place()
        kinds = list(FactKind)
        for current in kinds[kinds.index(kind) :]:
            start = after if current is kind else UUID(int=0)
            entered = await ledger_backfill.enter_missing(tx, current, start, _BATCH)
            if entered:
                return LedgerBackfilled(facts=len(entered), kind=current, last_id=entered[-1])
        return LedgerBackfilled(facts=0, kind=kinds[-1], last_id=None)

    def count(self, done: LedgerBackfilled) -> int:
        """Return how many facts were entered."""
        return done.facts

    def following(self, batch: LedgerBackfilled) -> "BackfillLedger | None":
        """Continue after the last fact, until none lacks an entry."""
        if batch.last_id is None:
            return None
        return _FurtherBackfill(kind=batch.kind, after=batch.last_id)

    def combine(self, done: LedgerBackfilled, batch: LedgerBackfilled) -> LedgerBackfilled:
        """Add up what was done."""
        last_id = batch.last_id or done.last_id
        return LedgerBackfilled(facts=done.facts + batch.facts, kind=batch.kind, last_id=last_id)

    def audit_details(self, result: LedgerBackfilled) -> Mapping[str, object]:
        """Record how many facts the batch has."""
        return {"facts": result.facts}


class _FurtherBackfill(BackfillLedger, frozen=True, kw_only=True):
    """The facts after those of the batch before."""

    kind: FactKind
    after: UUID

    def place(self) -> tuple[FactKind, UUID]:
        """Return the kind of the batch, and the fact that it comes after."""
        return self.kind, self.after


async def _lost_transfers(cells: Cells, answering: Sequence[int]) -> list[DifferingAccount]:
    """List what one cell has given and another one has not got, or got and the other not given."""
    lost: Counter[tuple[int, str, str | None]] = Counter()
    for first, second in combinations(answering, 2):
        for half in await find_missing_halves(cells, first, second):
            if half.age_s > _UNDER_WAY_S:
                entry = transfer_entry(half.transfer, half.cell)
                is_debit = entry.debit == CELL_CLEARING
                key = half.cell, entry.currency, entry.chain
                lost[key] += entry.amount_minor if is_debit else -entry.amount_minor
    return [
        DifferingAccount(
            account=CELL_CLEARING,
            currency=currency,
            chain=of_chain,
            ledger_minor="0",
            facts_minor=str(minor),
            cell=cell,
        )
        for (cell, currency, of_chain), minor in lost.items()
    ]


def add_balances(of_cells: Iterable[Sequence[AccountBalance]]) -> list[AccountBalance]:
    """Add up each account over cells, in the order of a list of one cell."""
    every = list(of_cells)
    if len(every) == 1:
        return list(every[0])
    sums: dict[tuple[str, str, str | None], tuple[int, int]] = {}
    for balance in chain.from_iterable(every):
        key = balance.account, balance.currency, balance.chain
        debits, credits_ = sums.get(key, (0, 0))
        sums[key] = debits + int(balance.debits_minor), credits_ + int(balance.credits_minor)
    return [
        AccountBalance(
            account=account,
            currency=currency,
            chain=of_chain,
            debits_minor=str(debits),
            credits_minor=str(credits_),
            balance_minor=str(debits - credits_),
        )
        for (account, currency, of_chain), (debits, credits_) in sorted(
            sums.items(), key=lambda item: (*item[0][:2], item[0][2] is None, item[0][2] or "")
        )
    ]
