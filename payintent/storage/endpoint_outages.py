"""Store open circuits of webhook endpoints (table `endpoint_outage`) for display to operators.

Each worker has its own circuit breakers; no worker reads this table.
"""

from payintent.domain.delivery import CircuitReport
from payintent.storage.database import Executor

_DETAIL_CHARS = 300


async def open_circuit(database: Executor, report: CircuitReport) -> None:
    """Store an open circuit with its end, and count consecutive openings."""
    await database.fetch(
        """
        INSERT INTO endpoint_outage AS o (merchant_id, until, detail)
        VALUES ($1, clock() + $2 * interval '1 second', $3)
        ON CONFLICT (merchant_id) DO UPDATE
        SET trips = o.trips + 1, until = greatest(o.until, excluded.until),
            detail = excluded.detail
        """,
        report.merchant_id,
        report.open_s,
        report.detail[:_DETAIL_CHARS],
    )


async def close_circuit(database: Executor, merchant_id: int) -> None:
    """Delete the outage of an endpoint that has accepted a delivery again."""
    await database.fetch("DELETE FROM endpoint_outage WHERE merchant_id = $1", merchant_id)


async def delete_old(database: Executor, limit: int) -> int:
    """Delete at most `limit` outages that ended without a new attempt, and return the number.

    After the same hour, a worker discards the state of an idle endpoint, too.
    """
    rows = await database.fetch(
        """
        DELETE FROM endpoint_outage
        WHERE merchant_id IN (
            SELECT merchant_id
            FROM endpoint_outage
            WHERE until < clock() - interval '1 hour'
            LIMIT $1
            FOR UPDATE SKIP LOCKED
        )
        RETURNING merchant_id
        """,
        limit,
    )
    return len(rows)
