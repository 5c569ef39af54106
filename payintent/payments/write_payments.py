"""How new payments are written: by one statement, or on Citus by three of one transaction."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from payintent.storage import new_payments, new_payments_in_steps
from payintent.storage.batcher import LOCK_TIMEOUT_MS
from payintent.storage.database import Database, Tx
from payintent.storage.new_payments import NewPayment

Times = tuple[datetime, datetime]  # when a payment was created, and when it expires


async def write(database: Database, new: NewPayment) -> Times | None:
    """Write a payment as `new_payments.create` does."""
    if not await database.is_distributed():
        return await new_payments.create(database, new)
    async with database.transaction() as tx:
        return await new_payments_in_steps.create(tx, new)


async def write_batch(database: Database, batch: Sequence[NewPayment]) -> list[Times | None]:
    """Write payments as `new_payments.create_batch` does."""
    if not await database.is_distributed():
        return await new_payments.create_batch(database, batch)
    async with database.transaction(LOCK_TIMEOUT_MS) as tx:
        return await new_payments_in_steps.create_batch(tx, batch)


async def write_checked(
    database: Database, new: NewPayment, check: Callable[[Tx], Awaitable[None]]
) -> Times | None:
    """Write a payment in one transaction with a check that must hold meanwhile."""
    in_steps = await database.is_distributed()
    async with database.transaction() as tx:
        await check(tx)
        if not in_steps:
            return await new_payments.create(tx, new)
        return await new_payments_in_steps.create(tx, new)
