"""Open the database of an installation."""

from collections.abc import Callable

from payintent.db.availability import wait_for_database
from payintent.db.database import Database
from payintent.privacy.keyring_operations import check_encryption_keys
from payintent.runtime.encryption import Encryption
from payintent.runtime.settings import Settings


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
