"""The readiness of this process; the database is queried at most once a second."""

import time

from payintent.config import Settings
from payintent.domain.errors import StorageUnavailableError
from payintent.storage import migrations_runner
from payintent.ttl_cache import TtlCache


class Readiness:
    """Caches whether the process is ready; concurrent callers share one query."""

    def __init__(self, settings: Settings) -> None:
        self.is_stopping = False
        self._url = settings.direct_url
        self._reason: TtlCache[str] = TtlCache(
            self._find_reason, "", settings.readiness_cache_s, time.monotonic
        )

    async def unready_reason(self) -> str:
        """Return why the process is not ready; an empty text if it is ready."""
        return "the process is stopping" if self.is_stopping else await self._reason.get()

    async def _find_reason(self, _: str) -> str:
        try:
            missing = await migrations_runner.pending(self._url)
        except StorageUnavailableError:
            return "the database is unreachable"
        return f"{len(missing)} migrations are missing" if missing else ""
