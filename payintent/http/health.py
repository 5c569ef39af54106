"""Liveness and readiness: `/healthz` and `/readyz`."""

import time
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.core.errors import ErrorCode, StorageUnavailableError
from payintent.db import migrations_runner
from payintent.http.responses import json_response
from payintent.runtime.caches import TtlCache
from payintent.runtime.settings import Settings
from payintent.runtime.version import API_VERSION, VERSION, read_commit


class Readiness:
    """Caches the readiness of the process. Concurrent callers share a query."""

    def __init__(self, settings: Settings) -> None:
        self.is_stopping = False
        self._url = settings.direct_url
        self._reason: TtlCache[str] = TtlCache(
            self._find_reason, "", settings.readiness_cache_s, time.monotonic
        )

    async def find_unready_reason(self) -> str:
        """Return why the process is not ready, or "" if it is ready."""
        return "the process is stopping" if self.is_stopping else await self._reason.get()

    async def _find_reason(self, _: str) -> str:
        try:
            pending_migrations = await migrations_runner.list_pending_migrations(self._url)
        except StorageUnavailableError:
            return "the database is unreachable"
        return f"pending migrations: {len(pending_migrations)}" if pending_migrations else ""


async def _get_liveness(_: Request) -> Response:
    versions = {"version": VERSION, "api_version": API_VERSION, "commit": read_commit()}
    return json_response({"status": "ok", **versions})


#: Also served while the service is starting.
LIVENESS_ROUTE = Route("/healthz", _get_liveness, methods=["GET"])


@dataclass(frozen=True, slots=True)
class HealthRoutes:
    readiness: Readiness

    def routes(self) -> list[Route]:
        return [Route("/readyz", self._get_readiness, methods=["GET"])]

    async def _get_readiness(self, _: Request) -> Response:
        """`GET /readyz`: check that the database is reachable and fully migrated."""
        if reason := await self.readiness.find_unready_reason():
            return json_response({"code": ErrorCode.SERVICE_UNAVAILABLE, "message": reason}, 503)
        return json_response({"status": "ok"})
