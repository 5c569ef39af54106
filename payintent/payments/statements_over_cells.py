"""A merchant's statements and what it is owed, in all cells that have money of it.

Each cell has a series of statements by itself, and what it owes. After a move what a former cell
owed is carried to the present one (`cell_transfer`), so their sum stays what the merchant is owed.
"""

from collections.abc import Mapping
from dataclasses import replace

from payintent.storage import statements
from payintent.storage.cells import Cells
from payintent.storage.database import Database
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
    What is carried from one to another while they are read is counted once: both are read, also
    where the merchant had come to a cell a moment ago.
    """
    while True:
        databases = await cells.all_with_money(merchant_id)
        balances = await _sum_balances(databases, merchant_id)
        cells.forget_place(merchant_id)
        if databases.keys() == set(await cells.numbers_with_money(merchant_id)):
            return balances


async def _sum_balances(
    databases: Mapping[int, Database], merchant_id: int
) -> list[MerchantBalance]:
    sums: dict[tuple[str, str], MerchantBalance] = {}
    for database in databases.values():
        for balance in await statements.list_balances(database, merchant_id, [*databases]):
            money = (balance.currency, balance.chain)
            before = sums[money].amount_minor if money in sums else 0
            sums[money] = replace(balance, amount_minor=before + balance.amount_minor)
    return [sums[money] for money in sorted(sums)]
