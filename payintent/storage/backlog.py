"""How much work has been left undone, for the metrics: deliveries, expiries, cases."""

from payintent.storage.database import Executor
from payintent.storage.outbox import WAITING_MERCHANTS

_CASES_MAX = 10_000


async def webhook_overdue_s(database: Executor) -> float:
    """Return for how long the delivery that has been due longest is due; one probe a merchant."""
    row = await database.row(
        WAITING_MERCHANTS
        + """
        SELECT greatest(0, extract(epoch FROM clock() - min(next_at)))::float8 AS overdue_s
        FROM waiting
        """
    )
    return row["overdue_s"] if row else 0.0  # greatest() ignores NULL: 0 where none waits


async def pending_overdue_s(database: Executor) -> float:
    """Return for how long the PENDING payment that should have expired first is overdue, or 0."""
    row = await database.row(
        """
        SELECT extract(epoch FROM clock() - expires_at)::float8 AS overdue_s
        FROM payment
        WHERE status = 'PENDING' AND expires_at < clock()
        ORDER BY expires_at
        LIMIT 1
        """
    )
    return row["overdue_s"] if row else 0.0


async def count_open_cases(database: Executor) -> dict[str, int]:
    """Count open cases by kind, the first 10,000 of them."""
    rows = await database.fetch(
        """
        SELECT kind, count(*) AS cases
        FROM (
            SELECT kind
            FROM money_case
            WHERE status = 'OPEN'
            LIMIT $1
        ) opened
        GROUP BY kind
        """,
        _CASES_MAX,
    )
    return {row["kind"]: row["cases"] for row in rows}
