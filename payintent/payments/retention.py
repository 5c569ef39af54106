"""Delete expired data in batches that leave the database's capacity to payments."""

import asyncio
import time
from collections.abc import Mapping

from prometheus_client import Counter

from payintent.domain.retention import RetentionRule
from payintent.log import get_logger
from payintent.storage import retention
from payintent.storage.database import Database

_log = get_logger("retention")
_PAUSE_RATIO = 4
_PAUSE_MAX_S = 2.0  # bounds the time that a worker needs to stop

PRUNED = Counter("payintent_retention_rows_total", "Rows deleted by retention", ["rule"])


async def pause_after_batch(started_s: float) -> None:
    """Pause for four times as long as the batch took, up to two seconds.

    So background work uses at most a fifth of one connection.
    """
    elapsed_s = time.monotonic() - started_s
    await asyncio.sleep(min(_PAUSE_RATIO * elapsed_s, _PAUSE_MAX_S))


async def prune_step(database: Database, days: Mapping[RetentionRule, int], limit: int) -> bool:
    """Prune a batch by each rule; True if there may be more. A period of 0 days means never."""
    started_s = time.monotonic()
    has_more = False
    for rule, period in days.items():
        if period == 0:
            continue
        pruned = await retention.prune(database, rule, period, limit)
        if pruned:
            PRUNED.labels(rule).inc(pruned)
            _log.info("retention_pruned", rule=rule, count=pruned, days=period)
        has_more |= pruned == limit
    if has_more:
        await pause_after_batch(started_s)
    return has_more
