"""Log merchants' API calls, without bodies, query strings or secrets.

Calls are buffered in memory and written once per second. The buffer holds at most the last
hundred calls of each merchant.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import LiteralString
from uuid import UUID

from prometheus_client import Counter
from starlette.types import Scope

from payintent.core.errors import LockTimeoutError, StorageUnavailableError
from payintent.db.database import Database, Executor
from payintent.db.lists import LAST_ID, KeysetList
from payintent.http.application import ROUTE
from payintent.http.errors import ERROR_CODE
from payintent.http.responses import MERCHANT_ID
from payintent.merchants import access_store

_WRITE_INTERVAL_S = 1.0
_KEY_USES_WRITE_INTERVAL_S = 10.0
_CALLS_MAX = 100  # per merchant and second
_MERCHANTS_MAX = 200
_MICROSECONDS_PER_S = 1_000_000
_LATEST = datetime.max.replace(tzinfo=UTC)
DROPPED_CALLS = Counter(
    "payintent_api_calls_dropped_total",
    "API calls missing from the log because the buffer was full or the database failed",
)

#: Method, route, status, error code, request id, time of the response, and duration.
_Call = tuple[str, str, int, str | None, bytes, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ApiCall:
    method: str
    route: str  # the path template, such as `/v1/payments/{payment_id}`
    status: int
    error_code: str | None
    request_id: str
    duration_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApiCall(_ApiCall):
    merchant_id: int
    age_s: float  # seconds since the response


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCallRecord(_ApiCall):
    id: UUID
    at: datetime


_SELECT: LiteralString = """
    SELECT at, id, method, route, status, error_code, request_id, duration_us
    FROM api_call
"""
_CALLS = KeysetList(_SELECT, "at, id", merchant="merchant_id")
_FAILED_CALLS = KeysetList(_SELECT, "at, id", "status >= 400", merchant="merchant_id")


class CallLog:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._buffers: dict[int, deque[_Call]] = {}

    def record(self, scope: Scope, status: int, request_id: bytes, started_s: float) -> None:
        """Log a response if a merchant's API key authenticated the request."""
        merchant_id: int | None = scope.get(MERCHANT_ID)
        if merchant_id is None:
            return
        calls = self._buffers.get(merchant_id)
        if calls is None:
            if len(self._buffers) >= _MERCHANTS_MAX:
                DROPPED_CALLS.inc()
                return
            self._buffers[merchant_id] = calls = deque[_Call](maxlen=_CALLS_MAX)
        elif len(calls) == _CALLS_MAX:
            DROPPED_CALLS.inc()  # the deque drops its oldest call
        now = self._monotonic()
        route, code = scope.get(ROUTE, ""), scope.get(ERROR_CODE)
        calls.append((scope["method"], route, status, code, request_id, now, now - started_s))

    def drain(self) -> list[NewApiCall]:
        """Remove and return all calls."""
        buffers, self._buffers = self._buffers, {}
        now = self._monotonic()
        return [
            NewApiCall(
                merchant_id=merchant_id,
                method=method,
                route=route,
                status=status,
                error_code=code,
                request_id=request_id.decode(),
                duration_us=min(round(duration_s * _MICROSECONDS_PER_S), 2**31 - 1),
                age_s=now - at,
            )
            for merchant_id, calls in buffers.items()
            for method, route, status, code, request_id, at, duration_s in calls
        ]


class CallLogWriter:
    """Writes the buffered calls once per second, in a single statement."""

    def __init__(self, log: CallLog, database: Database) -> None:
        self._log = log
        self._database = database

    async def flush(self) -> None:
        """Write the buffered calls, or drop them if the database is unreachable."""
        calls = self._log.drain()
        if not calls:
            return
        try:
            await add_api_calls(self._database, calls)
        except (StorageUnavailableError, LockTimeoutError):
            DROPPED_CALLS.inc(len(calls))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_WRITE_INTERVAL_S)
            await self.flush()


class KeyUses:
    """Buffers the API keys that were used. Each key's use is stored at most once per minute."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._public_ids: set[str] = set()

    def record(self, public_id: str) -> None:
        self._public_ids.add(public_id)

    async def flush(self) -> None:
        """Write the buffered uses, or drop them if the database is unreachable."""
        public_ids, self._public_ids = self._public_ids, set()
        if public_ids:
            with suppress(StorageUnavailableError, LockTimeoutError):
                await access_store.record_uses(self._database, sorted(public_ids))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_KEY_USES_WRITE_INTERVAL_S)
            await self.flush()


async def add_api_calls(database: Executor, calls: Sequence[NewApiCall]) -> None:
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


async def list_api_calls(
    database: Executor,
    merchant_id: int,
    limit: int,
    before: tuple[datetime, UUID] | None = None,
    *,
    only_failed: bool = False,
) -> list[ApiCallRecord]:
    """List a merchant's calls, newest first.

    `before` is the time and id of the last call on the previous page. Failed calls have a status of
    400 or more.
    """
    calls = _FAILED_CALLS if only_failed else _CALLS
    position = before or (_LATEST, LAST_ID)
    rows = await calls.page(database, position, limit, merchant_id=merchant_id)
    return [ApiCallRecord(**row) for row in rows]
