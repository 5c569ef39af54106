"""Payouts: what the operator paid to its merchants; never more than a merchant is owed."""

from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from payintent.domain.ledger import Payout
from payintent.storage.database import Executor, Row, Tx

#: The first number of our advisory locks on what merchants are owed; a trigger has it too.
_PAYABLE_LOCKS = 7_002
_LAST = UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PayoutRecord:
    """A payout as it was recorded."""

    payout: Payout
    token_decimals: int | None
    reference: str
    paid_on: date
    recorded_by: str
    created_at: datetime
    reversed_at: datetime | None
    reversed_by: str | None
    reversal_note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPayout:
    """A payout that is to be recorded."""

    payout: Payout
    reference: str
    paid_on: date | None  # None: today, in UTC
    recorded_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PayoutFilter:
    """Which payouts to list; `before` is where the last page ended."""

    merchant_id: int | None = None
    currency: str | None = None
    before: UUID | None = None


async def lock_payable(tx: Tx, merchant_id: int) -> None:
    """Let one transaction after the other record payouts of a merchant."""
    await tx.fetch(
        "SELECT pg_advisory_xact_lock($1::int, hashint8($2))", _PAYABLE_LOCKS, merchant_id
    )


async def get_payable(
    database: Executor, merchant_id: int, currency: str, chain: str | None
) -> int:
    """Return what a merchant is owed, in smallest units; less than 0: it owes."""
    row = await database.row(
        "SELECT merchant_payable($1, $2, $3) AS payable", merchant_id, currency, chain
    )
    assert row is not None  # noqa: S101 - a function gives one row
    return int(row["payable"])


async def find_token_decimals(database: Executor, chain: str, symbol: str) -> int | None:
    """Return the decimals of a token of ours on a chain; None where there is none."""
    row = await database.row(
        "SELECT decimals FROM chain_token WHERE chain = $1 AND symbol = $2", chain, symbol
    )
    return None if row is None else row["decimals"]


async def add(tx: Tx, new: NewPayout) -> None:
    """Add a payout; its merchant is owed as much, or a constraint fails."""
    await tx.fetch(
        """
        INSERT INTO payout
            (id, merchant_id, currency, chain, amount_minor, reference, paid_on, recorded_by)
        VALUES ($1, $2, $3, $4, $5::text::numeric, $6,
            coalesce($7, (clock() AT TIME ZONE 'UTC')::date), $8)
        """,
        new.payout.id,
        new.payout.merchant_id,
        new.payout.currency,
        new.payout.chain,
        str(new.payout.amount_minor),
        new.reference,
        new.paid_on,
        new.recorded_by,
    )


async def reverse(tx: Tx, payout_id: UUID, who: str, note: str) -> None:
    """Mark a payout that stands as reversed."""
    await tx.fetch(
        "UPDATE payout SET reversed_at = clock(), reversed_by = $2, reversal_note = $3"
        " WHERE id = $1",
        payout_id,
        who,
        note,
    )


async def get(database: Executor, payout_id: UUID) -> PayoutRecord | None:
    """Return a payout, reversed or not; None where there is none of this id."""
    row = await database.row(_SELECT + "WHERE p.id = $1", payout_id)
    return None if row is None else _record(row)


async def lock(tx: Tx, payout_id: UUID) -> None:
    """Lock a payout until the transaction ends."""
    await tx.fetch("SELECT id FROM payout WHERE id = $1 FOR UPDATE", payout_id)


async def find_standing(
    database: Executor, merchant_id: int, reference: str
) -> PayoutRecord | None:
    """Return the payout of a merchant with the bank's reference that is not reversed."""
    row = await database.row(
        _SELECT + "WHERE p.merchant_id = $1 AND p.reference = $2 AND p.reversed_at IS NULL",
        merchant_id,
        reference,
    )
    return None if row is None else _record(row)


async def list_payouts(database: Executor, wanted: PayoutFilter, limit: int) -> list[PayoutRecord]:
    """List payouts, newest first."""
    rows = await database.fetch(
        _SELECT
        + """
        WHERE p.id < $1 AND (p.merchant_id = $2 OR $2::bigint IS NULL)
            AND (p.currency = $3 OR $3::text IS NULL)
        ORDER BY p.id DESC
        LIMIT $4
        """,
        wanted.before or _LAST,
        wanted.merchant_id,
        wanted.currency,
        limit,
    )
    return [_record(row) for row in rows]


_SELECT = """
    SELECT p.id, p.merchant_id, p.currency, p.chain, p.amount_minor, p.reference, p.paid_on,
        p.recorded_by, p.created_at, p.reversed_at, p.reversed_by, p.reversal_note,
        t.decimals AS token_decimals
    FROM payout p
    LEFT JOIN chain_token t ON t.chain = p.chain AND t.symbol = p.currency
"""


def _record(row: Row) -> PayoutRecord:
    return PayoutRecord(
        payout=Payout(
            id=row["id"],
            merchant_id=row["merchant_id"],
            amount_minor=int(row["amount_minor"]),
            currency=row["currency"],
            chain=row["chain"],
        ),
        token_decimals=row["token_decimals"],
        reference=row["reference"],
        paid_on=row["paid_on"],
        recorded_by=row["recorded_by"],
        created_at=row["created_at"],
        reversed_at=row["reversed_at"],
        reversed_by=row["reversed_by"],
        reversal_note=row["reversal_note"],
    )
