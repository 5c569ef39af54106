"""The circuit breaker of each gateway account and channel, shared by all processes.

The circuit opens after five consecutive failures within 60 seconds. A missing answer is a failure,
and so is a late one. After a pause a single request may probe the gateway. Any answer in time, to
any request, closes the circuit for all processes.
"""

import time
from collections.abc import Callable, Mapping
from enum import StrEnum

from prometheus_client import Counter

from payintent.domain.card_data import mask_card_data
from payintent.domain.gateway import OutcomeUnknown
from payintent.log import get_logger
from payintent.storage import gateway_outages
from payintent.storage.database import Database, Executor
from payintent.ttl_cache import TtlCache

_log = get_logger("health")
FAILURES_MAX = 5
_WITHIN_S = 60.0
#: An answer is too slow after `SLOW_S` if `CROWD` callers wait for the same account, because
#: they pile up. A slow gateway with few callers still works, up to `SLOW_ALONE_S`: by then most
#: buyers have left.
SLOW_S = 3.0
CROWD = 16
SLOW_ALONE_S = 10.0
PAUSE_S = 15
_LONGEST_PAUSE_S = 300
_PAUSES = gateway_outages.CircuitPauses(PAUSE_S, _LONGEST_PAUSE_S)
_DETAIL_CHARS_MAX = 300
_DETAIL_READ_CHARS_MAX = 1_000  # longer, so that no card number is cut before it is masked
_CACHED_S = 1.0

OUTAGES = Counter(
    "payintent_gateway_outages_total",
    "Number of times the circuit breaker of a channel opened",
    ["channel"],
)

THROTTLED = Counter(
    "payintent_gateway_throttled_total",
    "Calls that a gateway rejected with 403 or 429 because of its rate limit",
    ["channel"],
)
SLOW = Counter(
    "payintent_gateway_slow_answers_total",
    "Answers that came too late and counted as failures",
    ["channel"],
)


class GatewayChannel(StrEnum):
    SESSIONS = "sessions"
    REFUNDS = "refunds"


_Key = tuple[int, GatewayChannel]
_OpenCircuits = Mapping[_Key, bool]  # False: a probe is allowed


class GatewayHealth:
    """Counts the failures of this process, and opens and closes the shared circuits."""

    def __init__(self, database: Database, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._monotonic = monotonic
        self._failures: dict[_Key, list[float]] = {}
        self._channels: TtlCache[_OpenCircuits] = TtlCache(
            self._load_channels, {}, _CACHED_S, monotonic
        )

    async def unavailable_channels(self) -> frozenset[_Key]:
        """Return the channels with an open circuit, up to a second old."""
        return frozenset(key for key, is_open in (await self._channels.get()).items() if is_open)

    async def allows(self, account_id: int, channel: GatewayChannel) -> bool:
        """Return True if a request may be made now; during an outage, a single probe at a time."""
        is_open = (await self._channels.get()).get((account_id, channel))
        if is_open is None:
            return True
        return not is_open and await gateway_outages.try_probe(self._database, account_id, channel)

    async def record_answer(
        self,
        account_id: int,
        channel: GatewayChannel,
        answer: object,
        slow_s: float | None = None,
    ) -> None:
        """Count an answer or its absence; throttling and neutral outcomes are not counted.

        An authentic answer counts as success even if it is inconclusive: buyers can cancel, and
        must not be able to open the circuit. `slow_s` is the duration of an answer that came too
        late (`is_too_slow`), which counts as a failure.
        """
        key = (account_id, channel)
        if isinstance(answer, OutcomeUnknown) and answer.neutral:
            return
        if isinstance(answer, OutcomeUnknown) and answer.throttled:
            THROTTLED.labels(channel).inc()
            _log.warning("gateway_throttles", account=account_id, channel=channel)
            return
        if isinstance(answer, OutcomeUnknown) and not answer.answered:
            await self._count_failure(key, answer.detail)
            return
        if slow_s is not None:
            SLOW.labels(channel).inc()
            await self._count_failure(key, f"answered after {slow_s:.1f} s")
            return
        self._failures.pop(key, None)
        if key in await self._channels.get():
            await gateway_outages.close_circuit(self._database, account_id, channel)
            self._channels.invalidate()
            _log.warning("gateway_back", account=account_id, channel=channel)

    async def _count_failure(self, key: _Key, detail: str) -> None:
        now = self._monotonic()
        recent = [at for at in self._failures.get(key, ()) if now - at < _WITHIN_S]
        self._failures[key] = [*recent, now][-FAILURES_MAX:]
        channels = await self._channels.get()
        count = len(self._failures.get(key, ()))  # read again: concurrent calls may have cleared it
        if count < FAILURES_MAX and key not in channels:
            return
        account_id, channel = key
        self._failures.pop(key, None)
        self._channels.invalidate()
        if not await gateway_outages.open_circuit(
            self._database, account_id, channel, _PAUSES, storable_detail(detail)
        ):
            return
        OUTAGES.labels(channel).inc()
        _log.error("gateway_down", account=account_id, channel=channel)

    async def _load_channels(self, previous: _OpenCircuits) -> _OpenCircuits:
        del previous
        return await _read_channels(self._database)


def is_too_slow(took_s: float, other_callers: int) -> bool:
    """Return True if an answer counts as a failure; `other_callers` waited when it started."""
    return took_s >= SLOW_ALONE_S or (took_s >= SLOW_S and other_callers >= CROWD)


def storable_detail(detail: str) -> str:
    """Shorten a gateway's message, and mask card data and unprintable characters."""
    raw = detail[:_DETAIL_READ_CHARS_MAX].encode(errors="replace")
    masked = mask_card_data(raw).decode(errors="replace")
    return "".join(char if char.isprintable() else "?" for char in masked[:_DETAIL_CHARS_MAX])


async def read_unavailable_channels(database: Executor) -> frozenset[_Key]:
    """Read the channels with an open circuit within a transaction."""
    return frozenset(key for key, is_open in (await _read_channels(database)).items() if is_open)


async def _read_channels(database: Executor) -> _OpenCircuits:
    states = await gateway_outages.list_channel_states(database)
    return {(state.account_id, GatewayChannel(state.channel)): state.open for state in states}
