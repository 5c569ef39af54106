"""In which cell a merchant has its new payments, and had them before (table `merchant_cell`).

A place is a merchant's time in one cell. A move closes it, waits for the creates of before in the
old cell, and opens the next one (decision 121).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from payintent.storage.database import Executor, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantPlace:
    """Where a merchant has its new payments; `since` is the place's name, None before any move.

    `formers` are the other cells in which keys of creates may still count, `others` all in which it
    has had payments, last left first.
    """

    cell: int
    since: datetime | None = None
    is_open: bool = True  # False: a move has not ended, and creates wait
    formers: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    has_own_account: bool = False  # at a gateway

    @property
    def with_money(self) -> tuple[int, ...]:
        """Return all cells with money of the merchant, the present one first.

        Where it has an account of its own at a gateway, cell 0 is one of them: it has what that
        account was paid out, and money there that names no payment. Nothing else of a merchant is
        in a cell in which it never was.
        """
        numbers = (self.cell, *self.others)
        return (*numbers, 0) if self.has_own_account and 0 not in numbers else numbers


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
                WHERE f.merchant_id = p.merchant_id AND f.cell <> p.cell AND NOT f.left_empty
                    AND f.until > clock() - interval '25 hours'
                ORDER BY f.cell
            ) AS formers,
            ARRAY(
                SELECT f.cell
                FROM merchant_cell AS f
                WHERE f.merchant_id = p.merchant_id AND f.cell <> p.cell AND NOT f.left_empty
                GROUP BY f.cell
                ORDER BY max(f.since) DESC
            ) AS others,
            EXISTS (SELECT FROM provider_account AS a WHERE a.merchant_id = p.merchant_id)
                AS has_own_account
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
            has_own_account=row["has_own_account"],
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


async def wait_for_creates(cell: Tx, merchant_ids: Collection[int], number: int) -> None:
    """Wait until all creates of merchants that a cell let through have ended.

    Only sound once the cell's own copy says that their places are closed: later ones see that.
    """
    for merchant_id in sorted(merchant_ids):
        await cell.fetch(
            "SELECT pg_advisory_xact_lock(merchant_place_lock($1, $2))", merchant_id, number
        )


async def list_empty(cell: Tx, merchant_ids: Collection[int]) -> list[int]:
    """List the merchants that have neither payments, keys nor entries of the ledger in a cell."""
    rows = await cell.fetch(
        """
        SELECT m.id
        FROM unnest($1::bigint[]) AS m (id)
        WHERE NOT EXISTS (SELECT FROM payment AS p WHERE p.merchant_id = m.id)
            AND NOT EXISTS (SELECT FROM idempotency AS i WHERE i.merchant_id = m.id)
            AND NOT EXISTS (SELECT FROM ledger_entry AS e WHERE e.merchant_id = m.id)
        """,
        list(merchant_ids),
    )
    return [row["id"] for row in rows]


async def leave_empty(control: Executor, places: Mapping[int, datetime]) -> None:
    """Note that merchants had nothing in the place before these, where that was their first one.

    Of a later one a cell with an old copy may still think that it is the present one, and carry
    what it owes there.
    """
    await control.fetch(
        """
        UPDATE merchant_cell AS p
        SET left_empty = true
        FROM unnest($1::bigint[], $2::timestamptz[]) AS m (merchant_id, until)
        WHERE p.merchant_id = m.merchant_id AND p.until = m.until AND NOT p.left_empty
            AND NOT EXISTS (SELECT FROM merchant_cell AS e
                WHERE e.merchant_id = p.merchant_id AND e.since < p.since)
        """,
        list(places),
        list(places.values()),
    )


async def open_places(control: Executor, places: Mapping[int, datetime]) -> None:
    """Open the places that a move has written, by merchant and name; others stay as they are.

    By name: who was slow must not open the place of a later move into the same cell.
    """
    await control.fetch(
        """
        UPDATE merchant_cell AS p
        SET opened_at = clock()
        FROM unnest($1::bigint[], $2::timestamptz[]) AS m (merchant_id, since)
        WHERE p.merchant_id = m.merchant_id AND p.since = m.since AND p.until IS NULL
            AND p.opened_at IS NULL
        """,
        list(places),
        list(places.values()),
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
