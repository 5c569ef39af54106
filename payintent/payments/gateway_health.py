"""The circuit breaker of each gateway account and channel, shared by all processes.

The circuit opens after five consecutive failures within 60 seconds: requests without an answer, or
with one that came too late. After a pause one request may probe; any answer in time, to any
request, closes the circuit for all processes.
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
#: An answer is too slow after so long while so many other callers wait for the same account: there
#: callers pile up. A gateway that is slow and has few callers still sells.
SLOW_S = 3.0
CROWD = 16
#: And after so long however few wait: hardly a buyer is still there.
SLOW_ALONE_S = 10.0
PAUSE_S = 15
_LONGEST_PAUSE_S = 300
_PAUSES = gateway_outages.CircuitPauses(PAUSE_S, _LONGEST_PAUSE_S)
_DETAIL_CHARS_MAX = 300
_DETAIL_READ_CHARS_MAX = 1_000  # more than is kept: no number is cut before it is masked
_KEPT_S = 1.0

OUTAGES = Counter(
    "payintent_gateway_outages_total",
    "Times that a gateway's channel was given a rest",
    ["channel"],
)

THROTTLED = Counter(
    "payintent_gateway_throttled_total",
    "Calls that a gateway answered with 403 or 429 because there are too many",
    ["channel"],
)
SLOW = Counter(
    "payintent_gateway_slow_answers_total",
    "Answers of a gateway that counted as failures because they took too long",
    ["channel"],
)


class GatewayChannel(StrEnum):
    SESSIONS = "sessions"
    REFUNDS = "refunds"


_Key = tuple[int, GatewayChannel]
_Known = Mapping[_Key, bool]  # True: no request may be made yet


class GatewayHealth:
    """What this process counts of gateways' failures, and the outages that all share."""

    def __init__(self, database: Database, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._monotonic = monotonic
        self._failures: dict[_Key, list[float]] = {}
        self._channels: TtlCache[_Known] = TtlCache(self._read, {}, _KEPT_S, monotonic)

    async def unavailable_channels(self) -> frozenset[_Key]:
        """Return the channels whose circuit is open; a second old at most."""
        return frozenset(key for key, shut in (await self._channels.get()).items() if shut)

    async def allows(self, account_id: int, channel: GatewayChannel) -> bool:
        """Tell whether to make a request now; after an outage, one probe at a time."""
        shut = (await self._channels.get()).get((account_id, channel))
        if shut is None:
            return True
        return not shut and await gateway_outages.try_probe(self._database, account_id, channel)

    async def record_answer(
        self,
        account_id: int,
        channel: GatewayChannel,
        answer: object,
        slow_s: float | None = None,
    ) -> None:
        """Count an answer or its absence; a gateway that limits our requests is no outage.

        An authentic answer counts as one even if it decides nothing: otherwise buyers who cancel
        could switch a gateway off. A neutral outcome counts as neither. `slow_s` is how long an
        answer took that came too late (`is_too_slow`): it counts as a failure.
        """
        key = (account_id, channel)
        if isinstance(answer, OutcomeUnknown) and answer.neutral:
            return
        if isinstance(answer, OutcomeUnknown) and answer.throttled:
            THROTTLED.labels(channel).inc()
            _log.warning("gateway_throttles", account=account_id, channel=channel)
            return
        if isinstance(answer, OutcomeUnknown) and not answer.answered:
            await self._failed(key, answer.detail)
            return
        if slow_s is not None:
            SLOW.labels(channel).inc()
            await self._failed(key, f"answered after {slow_s:.1f} s")
            return
        self._failures.pop(key, None)
        if key in await self._channels.get():
            await gateway_outages.close_circuit(self._database, account_id, channel)
            self._channels.invalidate()
            _log.warning("gateway_back", account=account_id, channel=channel)

    async def _failed(self, key: _Key, detail: str) -> None:
        now = self._monotonic()
        recent = [at for at in self._failures.get(key, ()) if now - at < _WITHIN_S]
        self._failures[key] = [*recent, now][-FAILURES_MAX:]
        channels = await self._channels.get()
        counted = len(self._failures.get(key, ()))  # other calls may have begun anew
        if counted < FAILURES_MAX and key not in channels:
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

    async def _read(self, previous: _Known) -> _Known:
        del previous
        return await _read_channels(self._database)


def is_too_slow(took_s: float, other_callers: int) -> bool:
    """Tell whether an answer counts as a failure, by how many others waited when it was begun."""
    return took_s >= SLOW_ALONE_S or (took_s >= SLOW_S and other_callers >= CROWD)


def storable_detail(detail: str) -> str:
    """Shorten what may be a gateway's own words, without card data and what PostgreSQL refuses."""
    read = detail[:_DETAIL_READ_CHARS_MAX].encode(errors="replace")
    masked = mask_card_data(read).decode(errors="replace")
    return "".join(char if char.isprintable() else "?" for char in masked[:_DETAIL_CHARS_MAX])


async def read_unavailable_channels(database: Executor) -> frozenset[_Key]:
    """Read the channels whose circuit is open now; for use within a transaction."""
    return frozenset(key for key, shut in (await _read_channels(database)).items() if shut)


async def _read_channels(database: Executor) -> _Known:
    found = await gateway_outages.list_channel_states(database)
    return {(state.account_id, GatewayChannel(state.channel)): state.open for state in found}
