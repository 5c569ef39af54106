"""Endpoints whose circuit is open (table `endpoint_outage`), as workers tell operators.

Each worker's breaker is its own: nothing is decided by these rows.
"""

from typing import LiteralString

from payintent.domain.delivery import CircuitReport
from payintent.storage.database import Executor

_DETAIL_CHARS = 300
#: A worker forgets an endpoint, too, whose circuit could have closed so long ago.
_KEPT: LiteralString = "interval '1 hour'"


async def open_circuit(database: Executor, report: CircuitReport) -> None:
    """Store that a worker sends an endpoint nothing for so long, and how often in a row by now."""
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
    """Store that an endpoint has taken a delivery again."""
    await database.fetch("DELETE FROM endpoint_outage WHERE merchant_id = $1", merchant_id)


async def delete_old(database: Executor, limit: int) -> int:
    """Forget, at most `limit` at once, what was not tried again, or by a worker that is gone."""
    rows = await database.fetch(
        """
        DELETE FROM endpoint_outage
        WHERE merchant_id IN (
            SELECT merchant_id
            FROM endpoint_outage
            WHERE until < clock() - """
        + _KEPT
        + """
            LIMIT $1
            FOR UPDATE SKIP LOCKED
        )
        RETURNING merchant_id
        """,
        limit,
    )
    return len(rows)
