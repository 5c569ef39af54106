"""Close past days and turn the changes to each merchant's balance into a statement.

Each day is closed only once. Entries that are committed later or have an earlier time go into the
statement for the next day that is closed, so no ledger entry appears in two statements.
"""

from datetime import timedelta

from payintent.accounting import closing_store
from payintent.accounting import statements_store as statement_store
from payintent.accounting.statement_model import get_end_of_day, get_local_date, sum_movements
from payintent.accounting.statements_store import Statement, StatementEntries
from payintent.db.database import Database, Tx
from payintent.runtime.log import get_logger

_log = get_logger("statements")
_MERCHANTS_MAX = 100
_DAY = timedelta(days=1)


async def close_due_days(database: Database) -> bool:
    """Close the next due day of each merchant; return whether more days may be due."""
    merchant_ids = await closing_store.list_due_merchants(database, _MERCHANTS_MAX)
    if not merchant_ids:
        return False
    watermark = await closing_store.read_watermark(database)
    if watermark is None:
        _log.warning("statements_wait", merchants=len(merchant_ids))
        return False  # a long transaction may be writing entries; retry in the next run
    for merchant_id in merchant_ids:
        async with database.transaction() as tx:
            await close_day(tx, merchant_id, watermark)
    return True


async def close_day(tx: Tx, merchant_id: int, watermark: int) -> None:
    """Close the days up to the first day with entries, or all past days if there are no entries."""
    closing = await closing_store.lock_closing(tx, merchant_id)
    # A concurrent worker may have used a later watermark. Going back would repeat entries.
    watermark = max(watermark, closing.last_closed_entry)
    yesterday = get_local_date(closing.now, closing.time_zone) - _DAY
    if closing.last_day is not None and yesterday <= closing.last_day:
        return  # a concurrent worker has closed the day
    first_at = await closing_store.find_first_pending_time(tx, closing)
    day = yesterday
    if first_at is not None:
        entry_day = get_local_date(first_at, closing.time_zone)
        day = min(
            yesterday,
            entry_day if closing.last_day is None else max(entry_day, closing.last_day + _DAY),
        )
    # Changing the time zone can lengthen a day or leave it empty.
    before = max(get_end_of_day(day, closing.time_zone), closing.closed_at)
    statement_entries = StatementEntries(
        first_entry=closing.next_entry,
        last_entry=watermark,
        created_before=before,
        last_closed_entry=closing.last_closed_entry,
        closed_at=closing.closed_at,
    )
    for sums in await closing_store.sum_pending_entries(tx, closing, watermark, before):
        previous_statement = await statement_store.find_latest(
            tx, merchant_id, sums.currency, sums.chain
        )
        movements = sum_movements(sums.sums)
        opening_minor = 0 if previous_statement is None else previous_statement.closing_minor
        statement = Statement(
            id=tx.id_generator.new_id(),
            merchant_id=merchant_id,
            currency=sums.currency,
            chain=sums.chain,
            token_decimals=None,
            number=1 if previous_statement is None else previous_statement.number + 1,
            day=day,
            time_zone=closing.time_zone,
            opening_minor=opening_minor,
            movements=movements,
            closing_minor=opening_minor + sum(movements.values()),
            entries=statement_entries,
            created_at=closing.now,
        )
        await statement_store.add(tx, statement)
    await closing_store.close_days(tx, closing, day, before, watermark)
