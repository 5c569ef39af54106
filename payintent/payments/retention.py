"""What is forgotten after a time, in batches that leave the database to payments."""

import asyncio
import time
from collections.abc import Mapping

from prometheus_client import Counter

from payintent.domain.retention import RetentionRule
from payintent.log import get_logger
from payintent.storage import retention
from payintent.storage.database import Database

_log = get_logger("retention")
#: After a batch that has more behind it, a rest of so many times as long as it took.
_REST = 4
_REST_MAX_S = 2.0  # a worker that stops waits no longer for it

PRUNED = Counter("payintent_retention_rows_total", "Rows that retention took away", ["rule"])


async def prune_step(database: Database, days: Mapping[RetentionRule, int], limit: int) -> bool:
    """Take away a batch by each rule that has a time; True where there may be more.

    A fifth of one connection is kept busy at most, however much there is.
    """
    begun = time.monotonic()
    plenty = False
    for rule, kept in days.items():
        if kept == 0:
            continue
        pruned = await retention.prune(database, rule, kept, limit)
        if pruned:
            PRUNED.labels(rule).inc(pruned)
            _log.info("retention_pruned", rule=rule, count=pruned, days=kept)
        plenty |= pruned == limit
    if plenty:
        await asyncio.sleep(min(_REST * (time.monotonic() - begun), _REST_MAX_S))
    return plenty
