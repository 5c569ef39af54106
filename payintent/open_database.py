"""Open the database of an installation."""

from collections.abc import Callable

from payintent.config import Settings
from payintent.encryption import Encryption
from payintent.operations.keyring import check_encryption_keys
from payintent.storage.availability import wait_for_database
from payintent.storage.database import Database


async def open_database(
    settings: Settings,
    encryption: Encryption,
    process: str,
    wait_s: float | None,
    notice: Callable[[], None] | None = None,
) -> Database:
    """Wait for the database, and check that it belongs to our secrets (`EncryptionKeyError`)."""
    database = Database(settings, process)
    await wait_for_database(database.open, wait_s, notice)
    try:
        await check_encryption_keys(database, encryption)
    except BaseException:
        await database.close()
        raise
    return database
