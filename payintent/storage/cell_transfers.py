"""What was carried from merchants' former cells to present ones: the same row in both cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from payintent.domain.cell_transfer import CellTransfer
from payintent.storage.database import Executor, Row, Tx

_EVERY_HOURS = 24
_GROUPS_MAX = 1_000_000
_TRANSFERS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class TransferGroup:
    """Which transfers are counted together."""

    merchant_id: int
    currency: str
    chain: str | None
    from_cell: int


@dataclass(frozen=True, slots=True)
class TransferSum:
    """How many transfers a group has, and how much they carried."""

    transfers: int
    amount_minor: int


async def list_owed(database: Executor, after_merchant: int, limit: int) -> list[int]:
    """List merchants of other cells whom this one owes, or who owe it: each once a day.

    Balances are the last statements' and what came since, so that old entries are not read.
    """
    rows = await database.fetch(
        """
        SELECT m.id
        FROM merchant m
        CROSS JOIN installation i
        LEFT JOIN merchant_cell p ON p.merchant_id = m.id AND p.until IS NULL
        LEFT JOIN statement_close c ON c.merchant_id = m.id
        WHERE m.id > $1 AND m.livemode AND coalesce(p.cell, 0) <> i.cell
            AND EXISTS (SELECT FROM ledger_entry e WHERE e.merchant_id = m.id)
            AND NOT EXISTS (SELECT FROM cell_transfer t
                WHERE t.merchant_id = m.id AND t.from_cell = i.cell
                    AND t.created_at > clock() - make_interval(hours => $2))
            AND EXISTS (
                SELECT FROM (
                    (SELECT DISTINCT ON (s.currency, s.chain) s.currency, s.chain,
                        s.closing_minor AS amount
                    FROM statement s
                    WHERE s.merchant_id = m.id
                    ORDER BY s.currency, s.chain, s.number DESC)
                    UNION ALL
                    SELECT e.currency, coalesce(e.chain, ''),
                        CASE e.credit WHEN 'merchant_payable:' || m.id THEN e.amount
                            ELSE -e.amount END
                    FROM ledger_entry e
                    WHERE e.merchant_id = m.id AND e.entry_number >= coalesce(c.next_number, 0)
                        AND (e.entry_number > coalesce(c.closed_number, -1)
                            OR e.created_at >= c.closed_at)
                        AND 'merchant_payable:' || m.id IN (e.debit, e.credit)
                ) parts
                GROUP BY currency, chain
                HAVING sum(amount) <> 0
            )
        ORDER BY m.id
        LIMIT $3
        """,
        after_merchant,
        _EVERY_HOURS,
        limit,
    )
    return [row["id"] for row in rows]


async def add_new(
    tx: Tx, transfer_id: UUID, merchant_id: int, money: tuple[str, str | None], to_cell: int
) -> CellTransfer | None:
    """Begin to carry all that this cell owes in a currency; None where it is nothing now.

    The database says how much it is: whoever comes at the same time waits, and finds nothing.
    """
    row = await tx.row(
        """
        WITH i AS MATERIALIZED (
            SELECT cell FROM installation
        )
        INSERT INTO cell_transfer (id, merchant_id, currency, chain, from_cell, to_cell)
        SELECT $1, $2, $3, $4, i.cell, $5 FROM i
        RETURNING id, merchant_id, amount_minor, currency, chain, from_cell, to_cell
        """,
        transfer_id,
        merchant_id,
        *money,
        to_cell,
    )
    return _transfer(row) if row else None


async def add_half(tx: Tx, transfer: CellTransfer) -> bool:
    """Add a transfer that the other cell has; False where this one has it too."""
    row = await tx.row(
        """
        INSERT INTO cell_transfer
            (id, merchant_id, currency, chain, amount_minor, from_cell, to_cell, arrived_at)
        VALUES ($1, $2, $3, $4, $5::text::numeric, $6, $7, clock())
        ON CONFLICT (id) DO NOTHING
        RETURNING id
        """,
        transfer.id,
        transfer.merchant_id,
        transfer.currency,
        transfer.chain,
        str(transfer.amount_minor),
        transfer.from_cell,
        transfer.to_cell,
    )
    return row is not None


async def mark_arrived(former: Executor, transfer_id: UUID) -> None:
    """Note that the new cell has a transfer."""
    await former.fetch(
        "UPDATE cell_transfer SET arrived_at = clock() WHERE id = $1 AND arrived_at IS NULL",
        transfer_id,
    )


async def list_waiting(database: Executor, limit: int) -> list[CellTransfer]:
    """List the transfers of this cell of which nobody has noted that the other one has them."""
    rows = await database.fetch(
        """
        SELECT id, merchant_id, amount_minor, currency, chain, from_cell, to_cell
        FROM cell_transfer
        WHERE arrived_at IS NULL
        ORDER BY id
        LIMIT $1
        """,
        limit,
    )
    return [_transfer(row) for row in rows]


async def sum_between(
    database: Executor, cells: tuple[int, int], merchant_id: int | None
) -> dict[TransferGroup, TransferSum]:
    """Sum a cell's transfers between it and another cell, of one merchant or of all."""
    rows = await database.fetch(
        """
        SELECT merchant_id, currency, chain, from_cell, count(*) AS transfers,
            sum(amount_minor) AS amount_minor
        FROM cell_transfer
        WHERE from_cell = ANY($1::smallint[]) AND to_cell = ANY($1::smallint[])
            AND ($2::bigint IS NULL OR merchant_id = $2)
        GROUP BY merchant_id, currency, chain, from_cell
        LIMIT $3
        """,
        list(cells),
        merchant_id,
        _GROUPS_MAX,
    )
    return {
        TransferGroup(
            row["merchant_id"], row["currency"], row["chain"], row["from_cell"]
        ): TransferSum(row["transfers"], int(row["amount_minor"]))
        for row in rows
    }


async def list_between(
    database: Executor, cells: tuple[int, int], merchant_ids: Sequence[int]
) -> dict[CellTransfer, float]:
    """List a cell's transfers between it and another one, of some merchants, with their ages."""
    rows = await database.fetch(
        """
        SELECT id, merchant_id, amount_minor, currency, chain, from_cell, to_cell,
            extract(epoch FROM clock() - created_at)::float8 AS age_s
        FROM cell_transfer
        WHERE merchant_id = ANY($2::bigint[])
            AND from_cell = ANY($1::smallint[]) AND to_cell = ANY($1::smallint[])
        ORDER BY id
        LIMIT $3
        """,
        list(cells),
        list(merchant_ids),
        _TRANSFERS_MAX,
    )
    return {_transfer(row): row["age_s"] for row in rows}


def _transfer(row: Row) -> CellTransfer:
    return CellTransfer(
        id=row["id"],
        merchant_id=row["merchant_id"],
        amount_minor=int(row["amount_minor"]),
        currency=row["currency"],
        chain=row["chain"],
        from_cell=row["from_cell"],
        to_cell=row["to_cell"],
    )
