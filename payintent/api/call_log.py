"""The log of merchants' API calls: collected by this process, and written apart from any request.

Its memory is bounded, and so is what it writes: the last hundred calls of each merchant a second.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping

from prometheus_client import Counter
from starlette.types import Scope

from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.storage import api_calls
from payintent.storage.api_calls import NewApiCall
from payintent.storage.database import Database

#: Keys of a request's scope: the merchant of the key that it carries, and the code of a refusal.
MERCHANT = "payintent.merchant_id"
ERROR_CODE = "payintent.error_code"
_EVERY_S = 1.0
_OF_MERCHANT_MAX = 100  # in memory; more than the page shows is of no use
_MERCHANTS_MAX = 200
_US = 1_000_000
DROPPED = Counter(
    "payintent_api_calls_dropped_total",
    "API calls that are not in the log of merchants' calls, because there were too many, or "
    "because they could not be stored",
)

#: Method, handler, status, code, request id, when it was answered, and how long it took.
_Noted = tuple[str, object, int, str | None, bytes, float, float]


class CallLog:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._by_merchant: dict[int, deque[_Noted]] = {}

    def note(self, scope: Scope, status: int, request_id: bytes, began_s: float) -> None:
        """Note an answer to a request whose key was accepted; other requests are left out."""
        merchant_id: int | None = scope.get(MERCHANT)
        if merchant_id is None:
            return
        calls = self._by_merchant.get(merchant_id)
        if calls is None:
            if len(self._by_merchant) >= _MERCHANTS_MAX:
                DROPPED.inc()
                return
            self._by_merchant[merchant_id] = calls = deque[_Noted](maxlen=_OF_MERCHANT_MAX)
        elif len(calls) == _OF_MERCHANT_MAX:
            DROPPED.inc()  # the oldest
        now = self._monotonic()
        handler, code = scope.get("endpoint"), scope.get(ERROR_CODE)
        calls.append((scope["method"], handler, status, code, request_id, now, now - began_s))

    def take(self, routes: Mapping[object, str]) -> list[NewApiCall]:
        taken, self._by_merchant = self._by_merchant, {}
        now = self._monotonic()
        return [
            NewApiCall(
                merchant_id=merchant_id,
                method=method,
                route=routes.get(handler, ""),
                status=status,
                error_code=code,
                request_id=request_id.decode(),
                duration_us=min(round(took_s * _US), 2**31 - 1),
                age_s=now - at,
            )
            for merchant_id, calls in taken.items()
            for method, handler, status, code, request_id, at, took_s in calls
        ]


class CallLogWriter:
    """Writes the log of calls every second, in one statement."""

    def __init__(self, log: CallLog, database: Database, routes: Mapping[object, str]) -> None:
        self._log = log
        self._database = database
        self._routes = routes

    async def flush(self) -> None:
        """Write the calls since the last write; drop them if the database is unreachable."""
        calls = self._log.take(self._routes)
        if not calls:
            return
        try:
            await api_calls.add(self._database, calls)
        except (StorageUnavailableError, LockTimeoutError):
            DROPPED.inc(len(calls))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            await self.flush()
