"""Whether this process is ready; the database is queried once a second at most."""

import time

from payintent.config import Settings
from payintent.domain.errors import StorageUnavailableError
from payintent.storage import migrations_runner
from payintent.ttl_cache import TtlCache

_STOPPING = "the process is about to end"


class Readiness:
    """Caches why the process is not ready; concurrent callers share one query."""

    def __init__(self, settings: Settings) -> None:
        self.is_stopping = False
        self._url = settings.direct_url
        self._why: TtlCache[str] = TtlCache(
            self._look, "", settings.readiness_cache_s, time.monotonic
        )

    async def why_not(self) -> str:
        """Return why the process is not ready; empty where it is ready."""
        return _STOPPING if self.is_stopping else await self._why.get()

    async def _look(self, _: str) -> str:
        try:
            missing = await migrations_runner.pending(self._url)
        except StorageUnavailableError:
            return "the database is away"
        return f"{len(missing)} migrations are missing" if missing else ""
