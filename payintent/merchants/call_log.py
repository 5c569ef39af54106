"""Log of merchants' API calls, buffered in memory and written in the background.

At most the last hundred calls per merchant and second are buffered and written.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from prometheus_client import Counter
from starlette.types import Scope

from payintent.core.errors import LockTimeoutError, StorageUnavailableError
from payintent.db.database import Database
from payintent.http.application import ROUTE
from payintent.http.errors import ERROR_CODE
from payintent.http.responses import MERCHANT
from payintent.merchants import access_store
from payintent.merchants import calls_store as call_store
from payintent.merchants.calls_store import NewApiCall

_WRITE_INTERVAL_S = 1.0
_CALLS_MAX = 100  # buffered per merchant; the portal does not show more
_MERCHANTS_MAX = 200
_US = 1_000_000
DROPPED = Counter(
    "payintent_api_calls_dropped_total",
    "API calls missing in the log of merchants' calls: there were too many, or storing them failed",
)

#: Method, route, status, error code, request id, time of the response, and duration.
_Call = tuple[str, str, int, str | None, bytes, float, float]


class CallLog:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._by_merchant: dict[int, deque[_Call]] = {}

    def note(self, scope: Scope, status: int, request_id: bytes, started_s: float) -> None:
        """Log a response if a merchant's API key authenticated the request."""
        merchant_id: int | None = scope.get(MERCHANT)
        if merchant_id is None:
            return
        calls = self._by_merchant.get(merchant_id)
        if calls is None:
            if len(self._by_merchant) >= _MERCHANTS_MAX:
                DROPPED.inc()
                return
            self._by_merchant[merchant_id] = calls = deque[_Call](maxlen=_CALLS_MAX)
        elif len(calls) == _CALLS_MAX:
            DROPPED.inc()  # the deque drops its oldest call
        now = self._monotonic()
        route, code = scope.get(ROUTE, ""), scope.get(ERROR_CODE)
        calls.append((scope["method"], route, status, code, request_id, now, now - started_s))

    def drain(self) -> list[NewApiCall]:
        """Remove and return all calls."""
        by_merchant, self._by_merchant = self._by_merchant, {}
        now = self._monotonic()
        return [
            NewApiCall(
                merchant_id=merchant_id,
                method=method,
                route=route,
                status=status,
                error_code=code,
                request_id=request_id.decode(),
                duration_us=min(round(duration_s * _US), 2**31 - 1),
                age_s=now - at,
            )
            for merchant_id, calls in by_merchant.items()
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
            await call_store.add(self._database, calls)
        except (StorageUnavailableError, LockTimeoutError):
            DROPPED.inc(len(calls))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_WRITE_INTERVAL_S)
            await self.flush()


_KEY_USES_WRITE_INTERVAL_S = 10.0


class KeyUses:
    """Keys used since the last write. The use of a key is stored at most once a minute."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._public_ids: set[str] = set()

    def note(self, public_id: str) -> None:
        self._public_ids.add(public_id)

    async def flush(self) -> None:
        """Write the uses, or drop them if the database is unavailable."""
        public_ids, self._public_ids = self._public_ids, set()
        if public_ids:
            with suppress(StorageUnavailableError, LockTimeoutError):
                await access_store.record_uses(self._database, sorted(public_ids))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_KEY_USES_WRITE_INTERVAL_S)
            await self.flush()
