"""Count each merchant's recent payments by payment method."""

import time
from collections.abc import Callable, Mapping

from payintent.db.database import Executor
from payintent.runtime.caches import TtlMap

_CACHE_TTL_S = 600.0
_CACHE_SIZE = 1_000  # merchants
_PAYMENTS_MIN = 20  # fewer payments are not representative


class MethodUsage:
    """Counts the paid payments among a merchant's latest 500, and caches the counts."""

    def __init__(self, database: Executor, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._counts: TtlMap[int, Mapping[int, int]] = TtlMap(_CACHE_TTL_S, _CACHE_SIZE, monotonic)

    async def get(self, merchant_id: int) -> Mapping[int, int]:
        """Return the number of payments by method, or {} if there are fewer than 20 in total."""
        counts = self._counts.get(merchant_id)
        if counts is None:
            counts = await _count_recent_methods(self._database, merchant_id)
            self._counts.set(merchant_id, counts)
        return counts


async def _count_recent_methods(database: Executor, merchant_id: int) -> Mapping[int, int]:
    rows = await database.fetch(
        """
        SELECT s.payment_method_id, count(*) AS payments
        FROM (
            SELECT session_id, status
            FROM payment
            WHERE merchant_id = $1
            ORDER BY created_at DESC, id DESC
            LIMIT 500
        ) p
        JOIN session s ON s.id = p.session_id
        WHERE p.status IN ('PAID', 'PARTIALLY_REFUNDED', 'REFUNDED')
        GROUP BY s.payment_method_id
        LIMIT 500
        """,
        merchant_id,
    )
    counts = {row["payment_method_id"]: row["payments"] for row in rows}
    return counts if sum(counts.values()) >= _PAYMENTS_MIN else {}
