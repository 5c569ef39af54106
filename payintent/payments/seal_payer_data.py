"""Seals what is of payers and was stored before sealing was on, or under an older key.

A walk over all payments and events, in the order of their ids. It keeps no record of its place: a
row that is sealed tells so, and a worker that begins anew reads over those. It goes on at the end,
so that what a process with the older setting stores meanwhile is sealed too.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from prometheus_client import Counter

from payintent.log import get_logger
from payintent.storage import payer_seals
from payintent.storage.database import Database, Executor, Tx
from payintent.storage.payer_seals import Walked

_log = get_logger("payer_sealing")
_WALKED = 500  # rows that are looked at in one statement
_SEALED = 100  # rows that one transaction locks
_UNREADABLE_MAX = 10_000  # of a table; beyond, those are tried again
_SETTLED_S = 60.0  # what is younger may not have been committed in the order of its ids
#: After a batch, a rest of so many times as long as it took.
_REST = 4
_REST_MAX_S = 2.0

SEALED = Counter("payintent_payer_rows_sealed_total", "Rows that were sealed later", ["table"])


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    walk: Callable[[Executor, UUID, float, int], Awaitable[Walked]]
    list_of_other_keys: Callable[[Executor, int], Awaitable[list[UUID]]]
    seal: Callable[[Tx, Sequence[UUID]], Awaitable[list[UUID]]]


_TABLES = (
    _Table(
        "payment",
        payer_seals.walk_payments,
        payer_seals.list_payments_of_other_keys,
        payer_seals.seal_payments,
    ),
    _Table(
        "event",
        payer_seals.walk_events,
        payer_seals.list_events_of_other_keys,
        payer_seals.seal_events,
    ),
)


class PayerDataSealer:
    """Seals a batch of each table at a time, and remembers how far it looked."""

    def __init__(
        self, database: Database, settled_s: float = _SETTLED_S, batch: int = _SEALED
    ) -> None:
        self._database = database
        self._settled_s = settled_s
        self._batch = batch
        self._looked_to = {table.name: UUID(int=0) for table in _TABLES}
        self._unreadable = {table.name: set[UUID]() for table in _TABLES}

    async def step(self) -> bool:
        """Seal a batch of each table; True where there may be more."""
        begun = time.monotonic()
        plenty = False
        for table in _TABLES:
            found = await self._of_other_keys(table)
            await self._seal(table, found)
            plenty |= bool(found)
            if self._database.payer_sealing.is_on:
                plenty |= await self._walk(table)
        if plenty:
            await asyncio.sleep(min(_REST * (time.monotonic() - begun), _REST_MAX_S))
        return plenty

    async def _of_other_keys(self, table: _Table) -> list[UUID]:
        """List what another key has sealed, but for what was seen not to open."""
        unreadable = self._unreadable[table.name]
        if len(unreadable) > _UNREADABLE_MAX:
            unreadable.clear()
        found = await table.list_of_other_keys(self._database, self._batch + len(unreadable))
        return [row_id for row_id in found if row_id not in unreadable][: self._batch]

    async def _walk(self, table: _Table) -> bool:
        after = self._looked_to[table.name]
        walked = await table.walk(self._database, after, self._settled_s, _WALKED)
        for begin in range(0, len(walked.ids), self._batch):
            await self._seal(table, walked.ids[begin : begin + self._batch])
        self._looked_to[table.name] = walked.last or after
        return walked.last is not None

    async def _seal(self, table: _Table, row_ids: Sequence[UUID]) -> None:
        if not row_ids:
            return
        async with self._database.transaction() as tx:
            sealed = await table.seal(tx, row_ids)
        self._unreadable[table.name].update(set(row_ids).difference(sealed))
        SEALED.labels(table.name).inc(len(sealed))
        _log.info("payer_rows_sealed", table=table.name, count=len(sealed), until=str(row_ids[-1]))
