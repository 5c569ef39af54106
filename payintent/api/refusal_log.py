"""Requests refused because the database is unavailable: counted, and logged once a second."""

import asyncio
from contextvars import Context

from prometheus_client import Counter

from payintent.domain.errors import ErrorCode
from payintent.log import get_logger

PERIOD_S = 1.0

_log = get_logger("api")

REFUSALS = Counter(
    "payintent_database_refusals_total",
    "Requests refused because the database was unavailable",
    ["code"],
)


class RefusalLog:
    """Logs the first refusal for a reason at once, and further refusals as a count per second."""

    def __init__(self, period_s: float = PERIOD_S) -> None:
        self._period_s = period_s
        self._counts: dict[tuple[ErrorCode, str], int] = {}  # not logged yet

    def note(self, code: ErrorCode, why: str) -> None:
        REFUSALS.labels(code).inc()
        if (code, why) in self._counts:
            self._counts[code, why] += 1
        else:
            self._write(code, why, 1)

    def flush(self) -> None:
        """Log the counts since the last line, when the process stops."""
        counts, self._counts = self._counts, {}
        for (code, why), count in counts.items():
            if count:
                _log.error("storage_down", code=code, why=why, count=count)

    def _write(self, code: ErrorCode, why: str, count: int) -> None:
        _log.error("storage_down", code=code, why=why, count=count)
        self._counts[code, why] = 0
        # In an empty context, because this log line does not belong to a request.
        asyncio.get_running_loop().call_later(
            self._period_s, self._end_period, code, why, context=Context()
        )

    def _end_period(self, code: ErrorCode, why: str) -> None:
        count = self._counts.pop((code, why), 0)
        if count:
            self._write(code, why, count)
