"""Seal payer data that was stored before sealing was enabled, or sealed with an older key.

The sealer scans all payments and events in id order. Its position is not stored: a restarted worker
scans from the start and skips sealed rows. The scan continues with new rows, because a process that
still runs with the old setting may store plain text.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from prometheus_client import Counter

from payintent.db.database import Database, Executor, Tx
from payintent.privacy import seals_store
from payintent.privacy.retention_store import pause_after_batch
from payintent.privacy.seals_store import ScanResult
from payintent.runtime.log import get_logger

_log = get_logger("payer_sealing")
_SCAN_ROWS = 500  # per statement
_SEAL_ROWS = 100  # per transaction, which locks them
_UNREADABLE_MAX = 10_000  # per table; above this, all unreadable rows are retried
_SETTLED_S = 60.0  # newer rows may commit out of id order

SEALED = Counter(
    "payintent_payer_rows_sealed_total", "Rows sealed after they were stored", ["table"]
)


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    scan: Callable[[Executor, UUID, float, int], Awaitable[ScanResult]]
    list_of_other_keys: Callable[[Executor, int], Awaitable[list[UUID]]]
    seal: Callable[[Tx, Sequence[UUID]], Awaitable[list[UUID]]]


_TABLES = (
    _Table(
        "payment",
        seals_store.scan_payments,
        seals_store.list_payments_of_other_keys,
        seals_store.seal_payments,
    ),
    _Table(
        "event",
        seals_store.scan_events,
        seals_store.list_events_of_other_keys,
        seals_store.seal_events,
    ),
)


class PayerDataSealer:
    """Seals payments and events in batches."""

    def __init__(
        self, database: Database, settled_s: float = _SETTLED_S, batch: int = _SEAL_ROWS
    ) -> None:
        self._database = database
        self._settled_s = settled_s
        self._batch = batch
        self._cursors = {table.name: UUID(int=0) for table in _TABLES}
        self._unreadable = {table.name: set[UUID]() for table in _TABLES}

    async def step(self) -> bool:
        """Seal a batch of each table; return whether more may remain."""
        started_s = time.monotonic()
        has_more = False
        for table in _TABLES:
            row_ids = await self._list_of_other_keys(table)
            await self._seal(table, row_ids)
            has_more |= bool(row_ids)
            if self._database.payer_sealing.is_on:
                has_more |= await self._seal_scanned(table)
        if has_more:
            await pause_after_batch(started_s)
        return has_more

    async def _list_of_other_keys(self, table: _Table) -> list[UUID]:
        """List rows that are sealed with older keys, except rows known to be unreadable."""
        unreadable = self._unreadable[table.name]
        if len(unreadable) > _UNREADABLE_MAX:
            unreadable.clear()
        row_ids = await table.list_of_other_keys(self._database, self._batch + len(unreadable))
        return [row_id for row_id in row_ids if row_id not in unreadable][: self._batch]

    async def _seal_scanned(self, table: _Table) -> bool:
        after = self._cursors[table.name]
        scan = await table.scan(self._database, after, self._settled_s, _SCAN_ROWS)
        for begin in range(0, len(scan.stale_ids), self._batch):
            await self._seal(table, scan.stale_ids[begin : begin + self._batch])
        self._cursors[table.name] = scan.last or after
        return scan.last is not None

    async def _seal(self, table: _Table, row_ids: Sequence[UUID]) -> None:
        if not row_ids:
            return
        async with self._database.transaction() as tx:
            sealed = await table.seal(tx, row_ids)
        self._unreadable[table.name].update(set(row_ids).difference(sealed))
        SEALED.labels(table.name).inc(len(sealed))
        _log.info("payer_rows_sealed", table=table.name, count=len(sealed), until=str(row_ids[-1]))
