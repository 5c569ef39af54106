"""Backlogs for the metrics: deliveries, expiries and cases."""

from payintent.storage.database import Executor
from payintent.storage.outbox import WAITING_MERCHANTS

_COUNTED_MAX = 10_000


async def webhook_overdue_s(database: Executor) -> float:
    """Return how long the oldest due delivery is overdue; needs an index probe per merchant."""
    row = await database.row(
        WAITING_MERCHANTS
        + """
        SELECT greatest(0, extract(epoch FROM clock() - min(next_at)))::float8 AS overdue_s
        FROM waiting
        """
    )
    return (
        row["overdue_s"] if row else 0.0
    )  # greatest() ignores NULL, so it is 0 if no delivery is pending


async def pending_overdue_s(database: Executor) -> float:
    """Return how long the oldest due PENDING payment is overdue, or 0."""
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


async def count_open_cases(database: Executor) -> dict[tuple[str, str], int]:
    """Count open cases by kind and the capture's provider (`none` without a capture).

    Only the first 10,000 cases are counted.
    """
    rows = await database.fetch(
        """
        SELECT o.kind, coalesce(a.provider, 'none') AS provider, count(*) AS cases
        FROM (
            SELECT kind, capture_id
            FROM money_case
            WHERE status = 'OPEN'
                AND (merchant_id IS NULL
                    OR merchant_id NOT IN (SELECT id FROM merchant WHERE NOT livemode))
            LIMIT $1
        ) o
        LEFT JOIN capture c ON c.id = o.capture_id
        LEFT JOIN provider_account a ON a.id = c.account_id
        GROUP BY 1, 2
        """,
        _COUNTED_MAX,
    )
    return {(row["kind"], row["provider"]): row["cases"] for row in rows}


async def count_deliveries(database: Executor) -> dict[str, int]:
    """Count undelivered deliveries by state, up to 10,000 per state."""
    rows = await database.fetch(
        """
        SELECT 'pending' AS state, count(*) AS deliveries
        FROM (SELECT FROM delivery WHERE state = 'pending' LIMIT $1) pending
        UNION ALL
        SELECT 'dead', count(*)
        FROM (
            SELECT FROM delivery WHERE state IN ('dead', 'skipped') AND state = 'dead' LIMIT $1
        ) dead
        UNION ALL
        SELECT 'skipped', count(*)
        FROM (
            SELECT FROM delivery WHERE state IN ('dead', 'skipped') AND state = 'skipped' LIMIT $1
        ) skipped
        """,
        _COUNTED_MAX,
    )
    return {row["state"]: row["deliveries"] for row in rows}
