"""A merchant's statements and what it is owed, in all cells that have money of it.

Each cell has a series of statements by itself, and what it owes. After a move what a former cell
owed is carried to the present one (`cell_transfer`), so their sum stays what the merchant is owed.
"""

from dataclasses import replace

from payintent.storage import statements
from payintent.storage.cells import Cells
from payintent.storage.merge_lists import CellList, merge_lists
from payintent.storage.statements import MerchantBalance, Statement, StatementFilter


async def list_statements_over_cells(
    cells: Cells, wanted: StatementFilter, limit: int
) -> CellList[Statement]:
    """List statements of one merchant, newest first; a cell that is away is named, and lacks."""
    assert wanted.merchant_id is not None  # noqa: S101 - else all cells have some
    return await merge_lists(
        await cells.all_with_money(wanted.merchant_id),
        lambda cell: statements.list_statements(cell, wanted, limit),
        limit,
        key=lambda statement: statement.id,
    )


async def list_balances(cells: Cells, merchant_id: int) -> list[MerchantBalance]:
    """Return what a merchant is owed in each currency, by all its cells together.

    Raises `StorageUnavailableError` where one of them is away: a part of it would be no answer.
    They are read one after the other, the present one first: what is carried is taken from a former
    cell before it comes there, so that nothing is ever counted twice.
    """
    sums: dict[tuple[str, str], MerchantBalance] = {}
    for database in (await cells.all_with_money(merchant_id)).values():
        for balance in await statements.list_balances(database, merchant_id):
            money = (balance.currency, balance.chain)
            before = sums[money].amount_minor if money in sums else 0
            sums[money] = replace(balance, amount_minor=before + balance.amount_minor)
    return [sums[money] for money in sorted(sums)]
