"""What the comparison of chains asks each cell: its part of the logs, its last block, its ledger.

A cell that does not answer is never taken for one that has nothing.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.reconciliation.contract_logs import LogPiece
from payintent.storage import reconciliation_blocks
from payintent.storage.database import Database
from payintent.storage.onchain.log_cells import logs_by_cell
from payintent.storage.reconciliation_blocks import LedgerSum


class CellAwayError(Exception):
    """A cell that is to be compared does not answer."""

    def __init__(self, cell: int, why: object) -> None:
        """Take the number of the cell, and what is known of it."""
        super().__init__(f"cell {cell} did not answer ({why}): it is done again when it does")
        self.cell = cell


@contextmanager
def naming_cell(cell: int) -> Generator[None]:
    """Name the cell that does not answer."""
    try:
        yield
    except (StorageUnavailableError, LockTimeoutError) as error:
        raise CellAwayError(cell, str(error) or type(error).__name__) from error


async def part_piece(
    control: Database, others: Mapping[int, Database], piece: LogPiece
) -> dict[int, LogPiece]:
    """Part a piece's logs among the cells; one that has none still looks for what is missing."""
    paid = await logs_by_cell(control, piece.paid)
    refunded = await logs_by_cell(control, piece.refunded)
    for cell in (paid.keys() | refunded.keys()) - others.keys() - {0}:
        raise CellAwayError(cell, "it was added after this process began")
    return {
        cell: replace(piece, paid=paid.get(cell, []), refunded=refunded.get(cell, []))
        for cell in (0, *others)
    }


async def find_last_block(
    control: Database, others: Mapping[int, Database], slug: str
) -> int | None:
    """Return the last final block that has taken effect in every cell; None where one is halted."""
    last = await reconciliation_blocks.find_last_block(control, slug)
    for cell, database in others.items():
        with naming_cell(cell):
            of_cell = await reconciliation_blocks.find_last_block(database, slug)
        last = None if last is None or of_cell is None else min(last, of_cell)
    return last


async def sum_ledgers(
    others: Mapping[int, Database], slug: str, receiver: bytes, block: int
) -> list[Mapping[str, LedgerSum]]:
    """Sum the accounts of a receiver in the ledger of each other cell."""
    sums = list[Mapping[str, LedgerSum]]()
    for cell, database in others.items():
        with naming_cell(cell):
            sums.append(await reconciliation_blocks.sum_ledger(database, slug, receiver, block))
    return sums


def add_ledgers(of_cells: Sequence[Mapping[str, LedgerSum]]) -> dict[str, LedgerSum]:
    """Add up what the ledgers of cells have at a receiver; what one has entered is kept in all."""
    total: dict[str, LedgerSum] = {}
    for currency, entered in (item for sums in of_cells for item in sums.items()):
        before = total.get(currency, LedgerSum(minor=0, is_kept=False))
        total[currency] = LedgerSum(
            minor=before.minor + entered.minor, is_kept=before.is_kept or entered.is_kept
        )
    return total
