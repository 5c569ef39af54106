"""Liveness and readiness: `/healthz` and `/readyz`."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.api.etag import json_response
from payintent.api.readiness import Readiness
from payintent.domain.errors import ErrorCode
from payintent.version import API_VERSION


async def _get_liveness(request: Request) -> Response:
    del request
    return json_response({"status": "ok", "version": API_VERSION})


#: Served while the service starts, too.
LIVENESS_ROUTE = Route("/healthz", _get_liveness, methods=["GET"])


@dataclass(frozen=True, slots=True)
class HealthRoutes:
    readiness: Readiness

    def routes(self) -> list[Route]:
        return [Route("/readyz", self._get_readiness, methods=["GET"])]

    async def _get_readiness(self, request: Request) -> Response:
        """`GET /readyz`: the database is reachable and has all migrations."""
        del request
        if reason := await self.readiness.unready_reason():
            return json_response({"code": ErrorCode.SERVICE_UNAVAILABLE, "message": reason}, 503)
        return json_response({"status": "ok"})
