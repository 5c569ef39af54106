"""Write a payment history into a sandbox's database, in batches."""

from collections.abc import Callable
from datetime import datetime, timedelta
from importlib.resources import files

from payintent.db.driver import Connection, connect, transaction
from payintent.service import Service
from payintent_sandbox.seed.merchants import prepare_merchants

#: The number of payments per transaction. A transaction takes a few seconds.
_BATCH = 20_000
_OPEN_MAX = 2_000
_OPEN_SHARE = 50  # one in 50 payments is open, up to `_OPEN_MAX`
_NO_TIMEOUT = "SET statement_timeout = 0"
_BEGIN_BATCH = "INSERT INTO seed_batch VALUES ($1, $2, $3, $4, $5, $6)"
#: The worker computes the hourly figures from the first payment onwards.
_COUNT_FIGURES = """
UPDATE figure_mark
SET closed_until = least(closed_until, since), counted_until = least(counted_until, since)
FROM (
    SELECT date_trunc('hour', greatest($1::timestamptz, clock() - interval '31 days')) AS since
) one
"""
_MAINTAIN = """
VACUUM (ANALYZE) payment, session, checkout, idempotency, callback, capture, refund, money_case,
    ledger_entry, audit, event, delivery, attempt
"""


class NotASandboxError(Exception):
    """The database is not part of a sandbox. Seeding it would mix generated and real payments."""


async def seed(service: Service, payments: int, days: int, advance: Callable[[int], None]) -> None:
    """Write payments, spread over the last `days`, with all their dependent rows.

    Each batch is a transaction, so an interrupted run writes only complete payments. Raises
    `NotASandboxError` outside a sandbox.
    """
    if not service.settings.sandbox:
        raise NotASandboxError("this installation is not a sandbox: PAYINTENT_SANDBOX is not set")
    connection = await connect(service.settings.database_url)
    try:
        await connection.execute(_NO_TIMEOUT)
        await connection.execute(_read("setup.sql"))
        await prepare_merchants(service, connection)
        await _write(connection, payments, timedelta(days=days), advance)
        await connection.execute(_MAINTAIN)
    finally:
        await connection.close()


async def _write(
    connection: Connection, payments: int, span: timedelta, advance: Callable[[int], None]
) -> None:
    now: datetime = await connection.fetchval("SELECT clock()")
    still_open = min(payments // _OPEN_SHARE, _OPEN_MAX)
    write_batch = _read("batch.sql")
    for first in range(1, payments + 1, _BATCH):
        last = min(first + _BATCH - 1, payments)
        numbers = (first, last, payments, still_open)
        async with transaction(connection):
            await connection.execute(_BEGIN_BATCH, *numbers, now - span, now)
            await connection.execute(write_batch)
        advance(last - first + 1)
    await connection.execute(_COUNT_FIGURES, now - span)


def _read(name: str) -> str:
    return files("payintent_sandbox.seed").joinpath(name).read_text()
