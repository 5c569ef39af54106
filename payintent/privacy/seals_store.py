"""Seal payer data that is stored in plain text or sealed with an older key.

The sealer scans all payments and events in id order. Its position is not stored: a restarted worker
scans from the start and skips sealed rows. The scan also covers new rows, because a process that
still runs with the old setting may store plain text.
"""

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import LiteralString, TypeVar
from uuid import UUID

from prometheus_client import Counter

from payintent.db.database import Database, Executor, Row, Tx
from payintent.db.lists import make_first_id_sql
from payintent.db.sealing import PayerSealing, report_unreadable
from payintent.privacy.retention_store import pause_after_batch
from payintent.runtime.encryption import EncryptionKeyError
from payintent.runtime.log import get_logger

_log = get_logger("payer_sealing")
_SCAN_ROWS = 500  # per statement
_SEAL_ROWS = 100  # locked and sealed per transaction
_UNREADABLE_MAX = 10_000  # per table; above this, all unreadable rows are retried
_MIN_AGE_S = 60.0  # of scanned rows; newer rows may be committed out of id order
SEALED = Counter(
    "payintent_payer_rows_sealed_total", "Rows sealed after they were stored", ["table"]
)

_SealedValues = TypeVar("_SealedValues")


def _select_old_keys(
    table: LiteralString, is_sealed: LiteralString, text: LiteralString
) -> LiteralString:
    """Select the values that are not sealed with key `$1`, using a partial index on key names."""
    return f"""
        SELECT id FROM {table} WHERE {is_sealed} AND split_part({text}, ':', 2) < $1
        UNION ALL
        SELECT id FROM {table} WHERE {is_sealed} AND split_part({text}, ':', 2) > $1
        LIMIT $2
    """


_OLD_EMAILS = _select_old_keys("payment", "starts_with(payer_email, 'sealed:')", "payer_email")
_OLD_METADATA = _select_old_keys("payment", "json_typeof(metadata) = 'string'", "metadata #>> '{}'")
_OLD_BODIES = _select_old_keys("event", "starts_with(body, 'sealed:')", "body")
_CUTOFF_ID = make_first_id_sql("clock() - $2 * interval '1 second'")


@dataclass(frozen=True, slots=True)
class ScanResult:
    last_id: UUID | None  # the last scanned row; None if there were no more rows
    stale_ids: Sequence[UUID]  # rows that must be sealed or resealed


async def list_payments_with_old_keys(database: Executor, limit: int) -> list[UUID]:
    """List payments with a value that is sealed with an older key."""
    writer = database.payer_sealing.writer
    emails = await database.fetch(_OLD_EMAILS, writer, limit)
    metadata = await database.fetch(_OLD_METADATA, writer, limit)
    return sorted({row["id"] for row in (*emails, *metadata)})[:limit]


async def list_events_with_old_keys(database: Executor, limit: int) -> list[UUID]:
    """List events whose body is sealed with an older key."""
    rows = await database.fetch(_OLD_BODIES, database.payer_sealing.writer, limit)
    return sorted(row["id"] for row in rows)


async def count_values_with_old_keys(database: Executor, limit: int) -> int:
    """Count the values that are sealed with older keys, up to `limit` per column."""
    writer = database.payer_sealing.writer
    emails = await database.value(f"SELECT count(*) FROM ({_OLD_EMAILS}) due", writer, limit)
    metadata = await database.value(f"SELECT count(*) FROM ({_OLD_METADATA}) due", writer, limit)
    bodies = await database.value(f"SELECT count(*) FROM ({_OLD_BODIES}) due", writer, limit)
    return emails + metadata + bodies


async def find_sealing_keys(database: Executor, names: Sequence[str]) -> list[str]:
    """Return those of the named keys with which a value is still sealed."""
    rows = await database.fetch(
        """
        SELECT name
        FROM unnest($1::text[]) AS n (name)
        WHERE EXISTS (SELECT FROM payment
                WHERE starts_with(payer_email, 'sealed:')
                    AND split_part(payer_email, ':', 2) = n.name)
            OR EXISTS (SELECT FROM payment
                WHERE json_typeof(metadata) = 'string'
                    AND split_part(metadata #>> '{}', ':', 2) = n.name)
            OR EXISTS (SELECT FROM event
                WHERE starts_with(body, 'sealed:') AND split_part(body, ':', 2) = n.name)
        """,
        names,
    )
    return [row["name"] for row in rows]


async def scan_payments(
    database: Executor, after: UUID, min_age_s: float, limit: int
) -> ScanResult:
    """Scan payments in id order, except those created in the last `min_age_s` seconds."""
    rows = await database.fetch(
        f"""
        SELECT id, payer_email, metadata
        FROM payment
        WHERE id > $1 AND id < {_CUTOFF_ID}
        ORDER BY id
        LIMIT $3
        """,
        after,
        min_age_s,
        limit,
    )
    return _find_stale(rows, database.payer_sealing, "payer_email", "metadata")


async def scan_events(database: Executor, after: UUID, min_age_s: float, limit: int) -> ScanResult:
    """Scan events in id order, except those created in the last `min_age_s` seconds."""
    rows = await database.fetch(
        f"""
        SELECT id, left(body, 100) AS head
        FROM event
        WHERE id > $1 AND id < {_CUTOFF_ID}
        ORDER BY id
        LIMIT $3
        """,
        after,
        min_age_s,
        limit,
    )
    return _find_stale(rows, database.payer_sealing, "head")


def _find_stale(rows: Sequence[Row], sealing: PayerSealing, *columns: str) -> ScanResult:
    stale_ids = [
        row["id"]
        for row in rows
        if not all(sealing.has_current_form(row[column]) for column in columns)
    ]
    return ScanResult(rows[-1]["id"] if rows else None, stale_ids)


async def seal_payments(tx: Tx, payment_ids: Sequence[UUID]) -> list[UUID]:
    """Seal stale values with the current key; return the payments that are up to date.

    A payment that cannot be decrypted is logged and left unchanged.
    """
    rows = await tx.fetch(
        """
        SELECT id, payer_email, metadata
        FROM payment
        WHERE id = ANY($1::uuid[])
        ORDER BY id
        LIMIT 10000
        FOR NO KEY UPDATE
        """,
        payment_ids,
    )
    sealed_rows = list(_reseal("payment", rows, partial(_reseal_payment, tx.payer_sealing)))
    await tx.fetch(
        """
        UPDATE payment p
        SET payer_email = n.payer_email, metadata = n.metadata
        FROM unnest($1::uuid[], $2::text[], $3::json[]) AS n (id, payer_email, metadata)
        WHERE p.id = n.id
        """,
        [payment_id for payment_id, _ in sealed_rows],
        [email for _, (email, _) in sealed_rows],
        [metadata for _, (_, metadata) in sealed_rows],
    )
    return [payment_id for payment_id, _ in sealed_rows]


async def seal_events(tx: Tx, event_ids: Sequence[UUID]) -> list[UUID]:
    """Seal stale event bodies, as `seal_payments` does for payments."""
    rows = await tx.fetch(
        """
        SELECT id, body
        FROM event
        WHERE id = ANY($1::uuid[])
        ORDER BY id
        LIMIT 10000
        FOR NO KEY UPDATE
        """,
        event_ids,
    )
    sealed_rows = list(_reseal("event", rows, partial(_reseal_body, tx.payer_sealing)))
    await tx.fetch(
        """
        UPDATE event e
        SET body = n.body
        FROM unnest($1::uuid[], $2::text[]) AS n (id, body)
        WHERE e.id = n.id
        """,
        [event_id for event_id, _ in sealed_rows],
        [body for _, body in sealed_rows],
    )
    return [event_id for event_id, _ in sealed_rows]


def _reseal(
    table: str, rows: Sequence[Row], reseal_row: Callable[[Row], _SealedValues]
) -> Iterator[tuple[UUID, _SealedValues]]:
    for row in rows:
        try:
            sealed_values = reseal_row(row)
        except EncryptionKeyError as error:
            report_unreadable(table, row["id"], error)
        else:
            yield row["id"], sealed_values


def _reseal_payment(sealing: PayerSealing, row: Row) -> tuple[str | None, str]:
    payment_id, email, metadata = row["id"], row["payer_email"], row["metadata"]
    if not sealing.has_current_form(email):
        email = sealing.with_sealing().seal_email(
            payment_id, sealing.unseal_email(payment_id, email)
        )
    if not sealing.has_current_form(metadata):
        plaintext = sealing.unseal_metadata(payment_id, metadata)
        metadata = sealing.with_sealing().seal_metadata(payment_id, plaintext)
    return email, metadata


def _reseal_body(sealing: PayerSealing, row: Row) -> str:
    event_id, body = row["id"], row["body"]
    if sealing.has_current_form(body):
        return body
    return sealing.with_sealing().seal_body(event_id, sealing.unseal_body(event_id, body))


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    scan: Callable[[Executor, UUID, float, int], Awaitable[ScanResult]]
    list_with_old_keys: Callable[[Executor, int], Awaitable[list[UUID]]]
    seal: Callable[[Tx, Sequence[UUID]], Awaitable[list[UUID]]]


_TABLES = (
    _Table("payment", scan_payments, list_payments_with_old_keys, seal_payments),
    _Table("event", scan_events, list_events_with_old_keys, seal_events),
)


class PayerDataSealer:
    """Seals payments and events in batches."""

    def __init__(
        self, database: Database, min_age_s: float = _MIN_AGE_S, batch: int = _SEAL_ROWS
    ) -> None:
        self._database = database
        self._settled_s = min_age_s
        self._batch = batch
        self._cursors = {table.name: UUID(int=0) for table in _TABLES}
        self._unreadable = {table.name: set[UUID]() for table in _TABLES}

    async def step(self) -> bool:
        """Seal a batch of each table; return whether more may remain."""
        started_s = time.monotonic()
        has_more = False
        for table in _TABLES:
            row_ids = await self._list_with_old_keys(table)
            await self._seal(table, row_ids)
            has_more |= bool(row_ids)
            if self._database.payer_sealing.is_on:
                has_more |= await self._seal_scanned_rows(table)
        if has_more:
            await pause_after_batch(started_s)
        return has_more

    async def _list_with_old_keys(self, table: _Table) -> list[UUID]:
        """List rows that are sealed with older keys, except rows known to be unreadable."""
        unreadable = self._unreadable[table.name]
        if len(unreadable) > _UNREADABLE_MAX:
            unreadable.clear()
        row_ids = await table.list_with_old_keys(self._database, self._batch + len(unreadable))
        return [row_id for row_id in row_ids if row_id not in unreadable][: self._batch]

    async def _seal_scanned_rows(self, table: _Table) -> bool:
        after = self._cursors[table.name]
        scan = await table.scan(self._database, after, self._settled_s, _SCAN_ROWS)
        for begin in range(0, len(scan.stale_ids), self._batch):
            await self._seal(table, scan.stale_ids[begin : begin + self._batch])
        self._cursors[table.name] = scan.last_id or after
        return scan.last_id is not None

    async def _seal(self, table: _Table, row_ids: Sequence[UUID]) -> None:
        if not row_ids:
            return
        async with self._database.transaction() as tx:
            sealed_ids = await table.seal(tx, row_ids)
        self._unreadable[table.name].update(set(row_ids).difference(sealed_ids))
        SEALED.labels(table.name).inc(len(sealed_ids))
        _log.info(
            "payer_rows_sealed", table=table.name, count=len(sealed_ids), until=str(row_ids[-1])
        )
