"""Liveness and readiness: `/healthz` and `/readyz`."""

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.context import get_context
from payintent.api.etag import json_response
from payintent.domain.errors import ErrorCode
from payintent.version import API_VERSION


async def healthz(request: Request) -> Response:
    del request
    return json_response({"status": "ok", "version": API_VERSION})


async def readyz(request: Request) -> Response:
    """`GET /readyz`: the database answers and has every migration."""
    if why_not := await get_context(request).readiness.why_not():
        return json_response({"code": ErrorCode.SERVICE_UNAVAILABLE, "message": why_not}, 503)
    return json_response({"status": "ok"})
