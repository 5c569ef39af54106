"""Close a sandbox merchant's current day, so that its statement is available immediately.

Only the closing transaction sees the later time; all other clocks are unchanged.
"""

import base64

from payintent.accounting import closing_store
from payintent.accounting.close_statements import close_day
from payintent.db.database import Database, Tx
from payintent.runtime.settings import Settings

_UNUSED = base64.b64encode(bytes(32)).decode()  # any key; closing a day does not read secrets


async def end_day(database_url: str, merchant_id: int) -> None:
    """Close the merchant's day: today, or the next day if today is closed."""
    values = {"database_url": database_url, "pepper": _UNUSED, "keyring": f"demo:{_UNUSED}"}
    settings = Settings.model_validate(values)
    database = Database(settings, "payintent demo")
    await database.open()
    try:
        watermark = await closing_store.read_watermark(database)
        if watermark is None:
            raise ValueError("a long transaction is still writing ledger entries")
        async with database.transaction() as tx:
            await _turn_clock_on(tx, merchant_id)
            await close_day(tx, merchant_id, watermark)
            await tx.fetch("DROP SCHEMA later CASCADE")
    finally:
        await database.close()


async def _turn_clock_on(tx: Tx, merchant_id: int) -> None:
    """Set `clock()` in this transaction to the day after the day that will be closed."""
    await tx.fetch("CREATE SCHEMA later")
    await tx.fetch(
        "CREATE FUNCTION later.clock() RETURNS timestamptz LANGUAGE sql STABLE RETURN"
        " public.clock() + current_setting('later.days')::int * interval '1 day'"
    )
    await tx.fetch(
        """
        SELECT set_config('later.days', greatest(1, coalesce(
            nullif(c.day, '-infinity') - (clock() AT TIME ZONE m.time_zone)::date + 2, 1
        ))::text, true)
        FROM merchant m
        LEFT JOIN statement_close c ON c.merchant_id = m.id
        WHERE m.id = $1
        """,
        merchant_id,
    )
    await tx.fetch("SET LOCAL search_path = later, public")
