"""When merchants' keys are used: collected by this process, and written apart from any request."""

import asyncio
from contextlib import suppress

from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.storage import api_keys
from payintent.storage.database import Database

_EVERY_S = 10.0


class KeyUses:
    """The keys that were used since the last write; each is written once a minute at most."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._used: set[str] = set()

    def note(self, public_id: str) -> None:
        self._used.add(public_id)

    async def flush(self) -> None:
        """Write what was noted; while the database is away it is lost, for a request has failed."""
        used, self._used = self._used, set()
        if used:
            with suppress(StorageUnavailableError, LockTimeoutError):
                await api_keys.note_uses(self._database, sorted(used))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            await self.flush()
