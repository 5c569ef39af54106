"""The rate limit (GCRA) of gateway calls that buyers cause, per gateway account."""

from payintent.domain.rate_limit import RateLimit
from payintent.storage.database import Executor


async def take(database: Executor, account_id: int, limit: RateLimit, needed: float = 1.0) -> bool:
    """Take a call from the bucket of an account; False if fewer than `needed` are left.

    The bucket is stored as the time at which it will be full, as in `storage/rate_limits.py`.
    """
    row = await database.row(
        """
        INSERT INTO buyer_call_state AS s (account_id, full_at)
        VALUES ($1, extract(epoch FROM clock()) + 1::numeric / $2)
        ON CONFLICT (account_id) DO UPDATE
        -- `excluded.full_at` is one call after now. The bound keeps the bucket at empty at worst if
        -- the clock was set back or the limit was changed.
        SET full_at = least(
            greatest(s.full_at + 1::numeric / $2, excluded.full_at),
            excluded.full_at + $3::numeric / $2
        )
        WHERE s.full_at + ($4::float8::numeric + 1) / $2
            <= excluded.full_at + ($3::numeric + 0.0005) / $2
        RETURNING account_id
        """,
        account_id,
        limit.per_s,
        limit.burst,
        needed,
    )
    return row is not None
