"""Which cell's records a line of a gateway's list is about, where there are several cells.

Every cell has all lines in its temporary table first, and keeps those that are its own: then it is
compared as the only cell would be. Cell 0 keeps what no cell knows.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from payintent.storage.database import Tx
from payintent.storage.reconciliation import DECIMALS, ReconciliationScope

_BATCH_MAX = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLine:
    """A line about a record of this cell, and of another one that keeps the line."""

    type: str
    reference: str
    our_id: UUID | None


async def create_table(tx: Tx) -> None:
    """Create the table of the lines that cells know, until commit."""
    await tx.fetch(
        """
        CREATE TEMPORARY TABLE provider_known (
            number bigint NOT NULL,
            cell int NOT NULL,
            rank int NOT NULL
        ) ON COMMIT DROP
        """
    )


async def find_known(tx: Tx, cell: int, scope: ReconciliationScope) -> None:
    """Note the lines that this cell knows, and how well; all lines are loaded before."""
    units = list(scope.decimals), list(scope.decimals.values())
    await tx.fetch(_KNOWN, list(scope.accounts), *units, cell)
    await tx.fetch("ANALYZE provider_known")


#: 4: a record says the same; 3: a refund is done, with another amount; 2: there is a record;
#: 1: there is a session whose money was never reported.
_KNOWN = f"""
    INSERT INTO provider_known (number, cell, rank)
    SELECT number, $4, rank
    FROM (
        SELECT l.number, CASE l.type
            WHEN 'payment' THEN coalesce(
                (
                    SELECT max(CASE WHEN c.currency = l.currency
                        AND c.amount_minor * 10::numeric ^ -{DECIMALS} = l.amount
                        THEN 4 ELSE 2 END)
                    FROM capture c
                    LEFT JOIN unnest($2::text[], $3::int[]) AS u (currency, decimals)
                        ON u.currency = c.currency
                    WHERE c.reference = l.reference AND c.account_id = ANY($1::bigint[])
                ),
                (SELECT 1 FROM session WHERE id = l.our_id AND account_id = ANY($1::bigint[]))
            )
            WHEN 'refund' THEN (
                SELECT max(CASE WHEN f.status <> 'SUCCEEDED' THEN 2
                    WHEN c.currency = l.currency
                        AND f.amount_minor * 10::numeric ^ -{DECIMALS} = l.amount THEN 4
                    ELSE 3 END)
                FROM (
                    SELECT * FROM refund WHERE reference = l.reference
                    UNION
                    SELECT * FROM refund WHERE id = l.our_id
                ) f
                JOIN capture c ON c.id = f.capture_id AND c.account_id = ANY($1::bigint[])
                LEFT JOIN unnest($2::text[], $3::int[]) AS u (currency, decimals)
                    ON u.currency = c.currency
            )
            ELSE (
                SELECT max(CASE WHEN d.currency = l.currency
                    AND d.amount_minor * 10::numeric ^ -{DECIMALS} = l.amount THEN 4 ELSE 2 END)
                FROM dispute d
                LEFT JOIN unnest($2::text[], $3::int[]) AS u (currency, decimals)
                    ON u.currency = d.currency
                WHERE d.reference = l.reference AND d.account_id = ANY($1::bigint[])
            )
            END AS rank
        FROM provider_line l
        OFFSET 0
    ) known
    WHERE rank IS NOT NULL
"""


async def read_known(tx: Tx) -> AsyncIterator[list[tuple[int, int, int]]]:
    """Read what a cell knows: number of the line, cell and rank, in batches."""
    after = 0
    while True:
        rows = await tx.fetch(
            """
            SELECT number, cell, rank
            FROM provider_known
            WHERE number > $1
            ORDER BY number
            LIMIT $2
            """,
            after,
            _BATCH_MAX,
        )
        if not rows:
            return
        yield [(row["number"], row["cell"], row["rank"]) for row in rows]
        after = rows[-1]["number"]


async def add_known(tx: Tx, lines: Sequence[tuple[int, int, int]]) -> None:
    """Note in cell 0 what another cell knows."""
    await tx.copy("provider_known", ("number", "cell", "rank"), lines)


async def list_shared(tx: Tx, limit: int) -> list[tuple[int, int]]:
    """List lines whose record several cells have, with each cell that does not keep the line."""
    rows = await tx.fetch(
        """
        SELECT number, cell
        FROM (
            SELECT number, cell, row_number() OVER (PARTITION BY number ORDER BY rank DESC, cell)
                AS place
            FROM provider_known
        ) k
        WHERE place > 1
        ORDER BY number, cell
        LIMIT $1
        """,
        limit,
    )
    return [(row["number"], row["cell"]) for row in rows]


async def keep_own(tx: Tx, shared: Sequence[int]) -> list[SharedLine]:
    """Keep, in another cell than cell 0, what it knows, but for the lines that another one keeps.

    Returns those.
    """
    await tx.fetch(
        """
        DELETE FROM provider_line l
        WHERE NOT EXISTS (SELECT FROM provider_known k WHERE k.number = l.number)
        """
    )
    return await _take_out(tx, shared)


async def keep_rest(tx: Tx, shared: Sequence[int]) -> list[SharedLine]:
    """Keep in cell 0 what it knows, but for lines that another cell keeps, and what none knows.

    Returns those that it knows and another cell keeps.
    """
    found = await _take_out(tx, shared)
    await tx.fetch(
        """
        DELETE FROM provider_line l
        WHERE EXISTS (SELECT FROM provider_known k WHERE k.number = l.number AND k.cell <> 0)
            AND NOT EXISTS (SELECT FROM provider_known k WHERE k.number = l.number AND k.cell = 0)
        """
    )
    return found


async def _take_out(tx: Tx, numbers: Sequence[int]) -> list[SharedLine]:
    rows = await tx.fetch(
        """
        DELETE FROM provider_line
        WHERE number = ANY($1::bigint[])
        RETURNING type, reference, our_id
        """,
        list(numbers),
    )
    return [SharedLine(**row) for row in rows]


async def find_doubled(tx: Tx, scope: ReconciliationScope, shared: Sequence[SharedLine]) -> None:
    """Find records whose line is that of another cell's: the gateway has it once.

    They are missing in the list, whenever they are from; those of its time were found before.
    """
    await tx.fetch(_DOUBLED_PAYMENTS, *_of_type("payment", scope, shared))
    await tx.fetch(_DOUBLED_REFUNDS, *_of_type("refund", scope, shared))
    await tx.fetch(_DOUBLED_DISPUTES, *_of_type("dispute", scope, shared))


def _of_type(
    type_: str, scope: ReconciliationScope, shared: Sequence[SharedLine]
) -> tuple[list[int], list[str], list[int], list[str], list[UUID]]:
    lines = [line for line in shared if line.type == type_]
    return (
        list(scope.accounts),
        list(scope.decimals),
        list(scope.decimals.values()),
        [line.reference for line in lines],
        [line.our_id for line in lines if line.our_id is not None],
    )


_DOUBLED_PAYMENTS = f"""
    WITH doubled AS (
        INSERT INTO provider_difference (type, what, reference, here, here_currency, at,
            merchant_id, payment_id, capture_id)
        SELECT 'payment', 'missing', c.reference,
            c.amount_minor * 10::numeric ^ -{DECIMALS}, c.currency, c.captured_at,
            p.merchant_id, c.payment_id, c.id
        FROM capture c
        LEFT JOIN unnest($2::text[], $3::int[]) AS u (currency, decimals) ON u.currency = c.currency
        LEFT JOIN payment p ON p.id = c.payment_id
        WHERE c.account_id = ANY($1::bigint[]) AND c.reference = ANY($4::text[])
            AND $5::uuid[] IS NOT NULL  -- sessions: the record is found by the reference
            AND NOT EXISTS (SELECT FROM provider_record r WHERE r.fact_id = c.id)
        ORDER BY c.captured_at, c.id
        RETURNING capture_id, here_currency, here
    )
    INSERT INTO provider_record (fact_id, type, currency, amount)
    SELECT capture_id, 'payment', here_currency, here FROM doubled
"""
_DOUBLED_REFUNDS = f"""
    WITH doubled AS (
        INSERT INTO provider_difference (type, what, reference, here, here_currency, at,
            merchant_id, payment_id, refund_id, our_status)
        SELECT 'refund', 'missing', coalesce(r.reference, r.id::text),
            r.amount_minor * 10::numeric ^ -{DECIMALS}, c.currency, r.updated_at,
            r.merchant_id, r.payment_id, r.id, r.status
        FROM refund r
        JOIN capture c ON c.id = r.capture_id
        LEFT JOIN unnest($2::text[], $3::int[]) AS u (currency, decimals) ON u.currency = c.currency
        WHERE c.account_id = ANY($1::bigint[])
            AND (r.reference = ANY($4::text[]) OR r.id = ANY($5::uuid[]))
            AND r.status = 'SUCCEEDED'
            AND NOT EXISTS (SELECT FROM provider_record p WHERE p.fact_id = r.id)
        ORDER BY r.updated_at, r.id
        RETURNING refund_id, here_currency, here
    )
    INSERT INTO provider_record (fact_id, type, currency, amount)
    SELECT refund_id, 'refund', here_currency, here FROM doubled
"""
_DOUBLED_DISPUTES = f"""
    WITH doubled AS (
        INSERT INTO provider_difference (type, what, reference, here, here_currency, at,
            merchant_id, payment_id, capture_id)
        SELECT 'dispute', 'missing', d.reference,
            d.amount_minor * 10::numeric ^ -{DECIMALS}, d.currency, d.created_at, p.merchant_id,
            c.payment_id, d.capture_id
        FROM dispute d
        JOIN capture c ON c.id = d.capture_id
        LEFT JOIN payment p ON p.id = c.payment_id
        LEFT JOIN unnest($2::text[], $3::int[]) AS u (currency, decimals) ON u.currency = d.currency
        WHERE d.account_id = ANY($1::bigint[]) AND d.reference = ANY($4::text[])
            AND d.funds <> 'untouched' AND $5::uuid[] IS NOT NULL
            AND NOT EXISTS (
                SELECT FROM provider_record r WHERE r.fact_id = d.id AND r.type = 'dispute'
            )
        ORDER BY d.created_at, d.id
        RETURNING reference
    )
    INSERT INTO provider_record (fact_id, type, currency, amount)
    SELECT d.id, 'dispute', d.currency, d.amount_minor * 10::numeric ^ -{DECIMALS}
    FROM doubled m
    JOIN dispute d ON d.reference = m.reference AND d.account_id = ANY($1::bigint[])
    LEFT JOIN unnest($2::text[], $3::int[]) AS u (currency, decimals) ON u.currency = d.currency
"""
