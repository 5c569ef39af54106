"""Merchants' recent API calls, without bodies, query strings or secrets."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from payintent.db.database import Executor


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    method: str
    route: str  # the path template, such as `/v1/payments/{payment_id}`
    status: int
    error_code: str | None
    request_id: str
    duration_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApiCall(ApiCall):
    merchant_id: int
    age_s: float  # seconds since the response


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCallRecord(ApiCall):
    at: datetime


async def add(database: Executor, calls: Sequence[NewApiCall]) -> None:
    await database.fetch(
        """
        INSERT INTO api_call
            (at, merchant_id, method, route, status, error_code, request_id, duration_us)
        SELECT clock() - age_s * interval '1 second', merchant_id, method, route, status,
            error_code, request_id, duration_us
        FROM unnest($1::float8[], $2::bigint[], $3::text[], $4::text[], $5::int[], $6::text[],
            $7::text[], $8::int[])
            AS c (age_s, merchant_id, method, route, status, error_code, request_id, duration_us)
        """,
        [call.age_s for call in calls],
        [call.merchant_id for call in calls],
        [call.method for call in calls],
        [call.route for call in calls],
        [call.status for call in calls],
        [call.error_code for call in calls],
        [call.request_id for call in calls],
        [call.duration_us for call in calls],
    )


async def list_last(
    database: Executor, merchant_id: int, limit: int, *, failed: bool = False
) -> list[ApiCallRecord]:
    """List a merchant's recent calls, newest first; `failed` selects calls that had an error."""
    if failed:
        rows = await database.fetch(
            _COLUMNS + "WHERE merchant_id = $1 AND status >= 400" + _NEWEST, merchant_id, limit
        )
    else:
        rows = await database.fetch(
            _COLUMNS + "WHERE merchant_id = $1" + _NEWEST, merchant_id, limit
        )
    return [ApiCallRecord(**row) for row in rows]


async def delete_old(database: Executor, days: int, limit: int) -> int:
    """Delete up to `limit` calls older than `days` days; return how many were deleted."""
    rows = await database.fetch(
        """
        DELETE FROM api_call c
        USING (
            SELECT at, id
            FROM api_call
            WHERE at < clock() - make_interval(days => $1)
            ORDER BY at
            LIMIT $2
        ) AS old
        WHERE c.at = old.at AND c.id = old.id
        RETURNING 1 AS deleted
        """,
        days,
        limit,
    )
    return len(rows)


_COLUMNS = """
    SELECT at, method, route, status, error_code, request_id, duration_us
    FROM api_call
"""
_NEWEST = """
    ORDER BY at DESC, id DESC
    LIMIT $2
"""
