"""Circuit breakers per gateway account and channel, shared by all processes.

A circuit opens after five consecutive failures within 60 seconds. Missing and late responses count
as failures. After a pause, a single request may probe the gateway. A timely response to any request
closes the circuit for all processes.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from prometheus_client import Counter

from payintent.core.texts import mask_card_data
from payintent.db.database import Database, Executor
from payintent.gateways.port import OutcomeUnknown
from payintent.runtime.caches import TtlCache
from payintent.runtime.log import get_logger

_log = get_logger("health")
_OUTAGES_MAX = 10_000
_PROBE_LEASE_S = 20.0  # longer than any gateway timeout
FAILURES_MAX = 5
_FAILURE_PERIOD_S = 60.0
#: A response is too slow after `SLOW_S`, or after `SLOW_WHEN_BUSY_S` if at least `BUSY_CALLS_MIN`
#: other calls to the account are in progress. By then, most buyers have left.
SLOW_S = 10.0
SLOW_WHEN_BUSY_S = 3.0
BUSY_CALLS_MIN = 16
PAUSE_S = 15
_PAUSE_MAX_S = 300
_DETAIL_CHARS_MAX = 300
_DETAIL_READ_CHARS_MAX = 1_000  # longer, so that card numbers are masked before truncation
_CACHE_TTL_S = 1.0

OUTAGE_STARTS = Counter(
    "payintent_gateway_outages_total",
    "Number of times a channel's circuit breaker opened",
    ["channel"],
)

THROTTLED_CALLS = Counter(
    "payintent_gateway_throttled_total",
    "Calls that a gateway rejected with 403 or 429 because of its rate limit",
    ["channel"],
)
SLOW_RESPONSES = Counter(
    "payintent_gateway_slow_answers_total",
    "Gateway responses that arrived too late and counted as failures",
    ["channel"],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOutage:
    account_id: int
    provider: str
    name: str  # account name
    channel: str
    since: datetime
    until: datetime  # when the next probe is allowed
    trips: int  # number of consecutive times the circuit has opened
    detail: str  # of the last failure


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAvailability:
    """Whether a session's gateway is disabled or unresponsive."""

    account_enabled: bool
    provider_enabled: bool
    outage_since: datetime | None  # start of the session channel's outage
    silent_since: datetime | None  # time of the first unanswered request to close the session


async def get_availability(database: Executor, session_id: UUID) -> GatewayAvailability | None:
    """Return the availability of a session's gateway, or None if its account has no credentials."""
    row = await database.row(
        """
        SELECT a.enabled AS account_enabled, coalesce(p.enabled, false) AS provider_enabled,
            o.since AS outage_since, s.silent_since
        FROM session s
        JOIN provider_account a ON a.id = s.account_id AND a.sealed IS NOT NULL
        LEFT JOIN provider p ON p.name = a.provider
        LEFT JOIN gateway_outage o ON o.account_id = a.id AND o.channel = 'sessions'
        WHERE s.id = $1
        """,
        session_id,
    )
    return GatewayAvailability(**row) if row else None


async def list_outages(database: Executor) -> list[GatewayOutage]:
    """List outages, oldest first."""
    rows = await database.fetch(
        """
        SELECT o.account_id, a.provider, a.name, o.channel, o.since, o.until, o.trips,
            o.detail
        FROM gateway_outage o
        JOIN provider_account a ON a.id = o.account_id
        ORDER BY o.since, o.account_id, o.channel
        LIMIT $1
        """,
        _OUTAGES_MAX,
    )
    return [GatewayOutage(**row) for row in rows]


async def open_circuit(database: Executor, account_id: int, channel: str, detail: str) -> bool:
    """Open a circuit. Each pause is twice as long as the previous one, up to five minutes.

    `detail` describes the last failure. Returns False if another process has just opened the
    circuit.
    """
    row = await database.row(
        """
        WITH reopened AS (
            UPDATE gateway_outage o
            SET trips = n.trips + 1, until = n.until, probed_at = NULL, detail = $5
            FROM (
                SELECT account_id, channel, trips,
                    clock() + least($3 * 2 ^ least(trips, 20), $4) * interval '1 second' AS until
                FROM gateway_outage
                WHERE account_id = $1 AND channel = $2 AND until <= clock()
                FOR NO KEY UPDATE
            ) n
            WHERE o.account_id = n.account_id AND o.channel = n.channel
            RETURNING o.account_id
        ), opened AS (
            INSERT INTO gateway_outage (account_id, channel, until, detail)
            SELECT $1, $2, clock() + $3 * interval '1 second', $5
            WHERE NOT EXISTS (SELECT FROM reopened)
            ON CONFLICT (account_id, channel) DO NOTHING
            RETURNING account_id
        )
        SELECT account_id FROM reopened
        UNION ALL
        SELECT account_id FROM opened
        """,
        account_id,
        channel,
        PAUSE_S,
        _PAUSE_MAX_S,
        detail,
    )
    return row is not None


async def claim_probe(database: Executor, account_id: int, channel: str) -> bool:
    """Claim the probe of a channel; return False if it is already claimed or not yet due."""
    row = await database.row(
        """
        UPDATE gateway_outage
        SET probed_at = clock()
        WHERE account_id = $1 AND channel = $2 AND until <= clock()
            AND (probed_at IS NULL OR probed_at <= clock() - $3 * interval '1 second')
        RETURNING account_id
        """,
        account_id,
        channel,
        _PROBE_LEASE_S,
    )
    return row is not None


async def close_circuit(database: Executor, account_id: int, channel: str) -> None:
    await database.fetch(
        "DELETE FROM gateway_outage WHERE account_id = $1 AND channel = $2", account_id, channel
    )


class GatewayChannel(StrEnum):
    SESSIONS = "sessions"
    REFUNDS = "refunds"


_Key = tuple[int, GatewayChannel]
_Circuits = Mapping[_Key, bool]  # True: open; False: a probe is allowed


class GatewayHealth:
    """Counts the failures of this process, and opens and closes the shared circuits."""

    def __init__(self, database: Database, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._monotonic = monotonic
        self._failures: dict[_Key, list[float]] = {}
        self._circuits: TtlCache[_Circuits] = TtlCache(
            lambda _: _read_circuits(database), {}, _CACHE_TTL_S, monotonic
        )

    async def get_unavailable_channels(self) -> frozenset[_Key]:
        """Return the channels with an open circuit. The result may be up to one second old."""
        return frozenset(key for key, is_open in (await self._circuits.get()).items() if is_open)

    async def allows_request(self, account_id: int, channel: GatewayChannel) -> bool:
        """Return whether a request may be sent now. During an outage, only one probe is allowed."""
        is_open = (await self._circuits.get()).get((account_id, channel))
        if is_open is None:
            return True
        return not is_open and await claim_probe(self._database, account_id, channel)

    async def record_result(
        self,
        account_id: int,
        channel: GatewayChannel,
        result: object,
        slow_duration_s: float | None = None,
    ) -> None:
        """Count a request as a success or a failure. Throttled and skipped requests do not count.

        An authentic but inconclusive response counts as a success. Otherwise, buyers who cancel
        could open the circuit. `slow_duration_s` is set if the response was too slow (see
        `is_too_slow`), which counts as a failure.
        """
        key = (account_id, channel)
        if isinstance(result, OutcomeUnknown) and result.is_skipped:
            return
        if isinstance(result, OutcomeUnknown) and result.is_throttled:
            THROTTLED_CALLS.labels(channel).inc()
            _log.warning("gateway_throttles", account=account_id, channel=channel)
            return
        if isinstance(result, OutcomeUnknown) and not result.has_responded:
            await self._count_failure(key, result.detail)
            return
        if slow_duration_s is not None:
            SLOW_RESPONSES.labels(channel).inc()
            await self._count_failure(key, f"responded after {slow_duration_s:.1f} s")
            return
        self._failures.pop(key, None)
        if key in await self._circuits.get():
            await close_circuit(self._database, account_id, channel)
            self._circuits.invalidate()
            _log.warning("gateway_back", account=account_id, channel=channel)

    async def _count_failure(self, key: _Key, detail: str) -> None:
        now = self._monotonic()
        recent = [at for at in self._failures.get(key, ()) if now - at < _FAILURE_PERIOD_S]
        self._failures[key] = [*recent, now][-FAILURES_MAX:]
        circuits = await self._circuits.get()
        count = len(self._failures.get(key, ()))  # re-read: concurrent calls may have cleared it
        if count < FAILURES_MAX and key not in circuits:
            return
        account_id, channel = key
        self._failures.pop(key, None)
        is_new = await open_circuit(self._database, account_id, channel, sanitize_detail(detail))
        self._circuits.invalidate()
        if not is_new:
            return
        OUTAGE_STARTS.labels(channel).inc()
        _log.error("gateway_down", account=account_id, channel=channel)


def is_too_slow(duration_s: float, other_call_count: int) -> bool:
    """Return whether a response is too slow. The limit is lower if many calls were in progress."""
    is_busy = other_call_count >= BUSY_CALLS_MIN
    return duration_s >= (SLOW_WHEN_BUSY_S if is_busy else SLOW_S)


def sanitize_detail(detail: str) -> str:
    """Shorten a gateway's message, and mask card data and unprintable characters."""
    detail_bytes = detail[:_DETAIL_READ_CHARS_MAX].encode(errors="replace")
    masked_detail = mask_card_data(detail_bytes).decode(errors="replace")
    return "".join(
        char if char.isprintable() else "?" for char in masked_detail[:_DETAIL_CHARS_MAX]
    )


async def read_unavailable_channels(database: Executor) -> frozenset[_Key]:
    """Like `get_unavailable_channels`, but uncached and usable inside a transaction."""
    return frozenset(key for key, is_open in (await _read_circuits(database)).items() if is_open)


async def _read_circuits(database: Executor) -> _Circuits:
    """Return the channels with an outage: True if the circuit is open, False if a probe is due."""
    rows = await database.fetch(
        """
        SELECT account_id, channel,
            until > clock() OR coalesce(probed_at > clock() - $2 * interval '1 second', false)
                AS open
        FROM gateway_outage
        LIMIT $1
        """,
        _OUTAGES_MAX,
        _PROBE_LEASE_S,
    )
    return {(row["account_id"], GatewayChannel(row["channel"])): row["open"] for row in rows}
