"""In which cell a merchant has its new payments, and had them before (table `merchant_cell`).

A place is a merchant's time in one cell. A move closes it, waits for the creates of before in the
old cell, and opens the next one (decision 121).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from payintent.storage.database import Executor, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantPlace:
    """Where a merchant has its new payments; `since` is the place's name, None before any move.

    `formers` are the other cells in which keys of creates may still count, `others` all in which it
    has payments, last left first.
    """

    cell: int
    since: datetime | None = None
    is_open: bool = True  # False: a move has not ended, and creates wait
    formers: tuple[int, ...] = ()
    others: tuple[int, ...] = ()


_NO_MOVE = MerchantPlace(cell=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPlace:
    """A place of a merchant, present or past."""

    cell: int
    since: datetime
    until: datetime | None
    opened_at: datetime | None


async def find_places(database: Executor, merchant_ids: Sequence[int]) -> list[MerchantPlace]:
    """Return where merchants have their new payments, in their order.

    Keys count for 24 hours; an hour more is for clocks that differ.
    """
    rows = await database.fetch(
        """
        SELECT p.merchant_id, p.cell, p.since, p.opened_at IS NOT NULL AS is_open,
            ARRAY(
                SELECT DISTINCT f.cell
                FROM merchant_cell AS f
                WHERE f.merchant_id = p.merchant_id AND f.cell <> p.cell
                    AND f.until > clock() - interval '25 hours'
                ORDER BY f.cell
            ) AS formers,
            ARRAY(
                SELECT f.cell
                FROM merchant_cell AS f
                WHERE f.merchant_id = p.merchant_id AND f.cell <> p.cell
                GROUP BY f.cell
                ORDER BY max(f.since) DESC
            ) AS others
        FROM merchant_cell AS p
        WHERE p.merchant_id = ANY($1::bigint[]) AND p.until IS NULL
        """,
        list(merchant_ids),
    )
    found = {
        row["merchant_id"]: MerchantPlace(
            cell=row["cell"],
            since=row["since"],
            is_open=row["is_open"],
            formers=tuple(row["formers"]),
            others=tuple(row["others"]),
        )
        for row in rows
    }
    return [found.get(merchant_id, _NO_MOVE) for merchant_id in merchant_ids]


async def takes_creates(database: Executor, merchant_id: int, place: MerchantPlace) -> bool:
    """Tell whether a create may be written in a place, and keep it so until this transaction ends.

    The statement of a create asks the same; this is for what takes a key without a payment.
    """
    row = await database.row(
        "SELECT takes_creates($1, $2, $3) AS takes", merchant_id, place.cell, place.since
    )
    return row is not None and row["takes"]


async def list_places(database: Executor, merchant_id: int) -> list[PastPlace]:
    """List all places of a merchant that was moved, oldest first; a move adds one."""
    rows = await database.fetch(
        """
        SELECT cell, since, until, opened_at
        FROM merchant_cell
        WHERE merchant_id = $1
        ORDER BY since
        LIMIT 10000
        """,
        merchant_id,
    )
    return [PastPlace(**row) for row in rows]


async def begin_move(control: Tx, merchant_id: int, to_cell: int) -> None:
    """Close a merchant's place, and write the next one, which is not open yet.

    The caller holds the merchant's row. Before its first move a merchant was in cell 0.
    """
    await control.fetch(
        """
        INSERT INTO merchant_cell (merchant_id, cell, since, opened_at)
        SELECT id, 0, created_at, created_at
        FROM merchant AS m
        WHERE id = $1 AND NOT EXISTS (SELECT FROM merchant_cell WHERE merchant_id = m.id)
        """,
        merchant_id,
    )
    # A clock that was set back makes no place end before it began.
    await control.fetch(
        """
        UPDATE merchant_cell
        SET until = greatest(clock(), since + interval '1 microsecond')
        WHERE merchant_id = $1 AND until IS NULL
        """,
        merchant_id,
    )
    await control.fetch(
        """
        INSERT INTO merchant_cell (merchant_id, cell, since, opened_at)
        SELECT $1, $2, max(until), NULL
        FROM merchant_cell
        WHERE merchant_id = $1
        """,
        merchant_id,
        to_cell,
    )


async def place_beside(control: Tx, merchant_id: int, other_id: int) -> None:
    """Place a new merchant where another one is: a test side is in the cell of its live side."""
    await control.fetch(
        """
        INSERT INTO merchant_cell (merchant_id, cell)
        SELECT $1, p.cell
        FROM merchant_cell AS p
        WHERE p.merchant_id = $2 AND p.until IS NULL
            AND NOT EXISTS (SELECT FROM merchant_cell WHERE merchant_id = $1)
        """,
        merchant_id,
        other_id,
    )


async def wait_for_creates(cell: Tx, merchant_ids: Sequence[int], number: int) -> None:
    """Wait until all creates of merchants that a cell let through have ended.

    Only sound once the cell's own copy says that their places are closed: later ones see that.
    """
    for merchant_id in sorted(merchant_ids):
        await cell.fetch(
            "SELECT pg_advisory_xact_lock(merchant_place_lock($1, $2))", merchant_id, number
        )


async def open_places(control: Executor, merchant_ids: Sequence[int], to_cell: int) -> None:
    """Open the places that a move has written; those that are open stay as they are."""
    await control.fetch(
        """
        UPDATE merchant_cell
        SET opened_at = clock()
        WHERE merchant_id = ANY($1::bigint[]) AND cell = $2 AND until IS NULL
            AND opened_at IS NULL
        """,
        list(merchant_ids),
        to_cell,
    )


async def list_unopened(control: Executor) -> list[tuple[int, int]]:
    """List moves that have not ended: merchants and their new cells."""
    rows = await control.fetch(
        """
        SELECT merchant_id, cell
        FROM merchant_cell
        WHERE until IS NULL AND opened_at IS NULL
        ORDER BY merchant_id
        LIMIT 1000
        """
    )
    return [(row["merchant_id"], row["cell"]) for row in rows]
