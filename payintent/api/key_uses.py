"""The last use of merchants' keys, collected in memory and written in the background."""

import asyncio
from contextlib import suppress

from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.storage import api_keys
from payintent.storage.database import Database

_WRITE_INTERVAL_S = 10.0


class KeyUses:
    """The keys used since the last write; a key's use is stored at most once a minute."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._public_ids: set[str] = set()

    def note(self, public_id: str) -> None:
        self._public_ids.add(public_id)

    async def flush(self) -> None:
        """Write the uses; drop them if the database is unavailable."""
        public_ids, self._public_ids = self._public_ids, set()
        if public_ids:
            with suppress(StorageUnavailableError, LockTimeoutError):
                await api_keys.note_uses(self._database, sorted(public_ids))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_WRITE_INTERVAL_S)
            await self.flush()
