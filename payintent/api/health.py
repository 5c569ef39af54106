"""Liveness and readiness: `/healthz` and `/readyz`."""

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.context import get_context, json_response
from payintent.domain.errors import ErrorCode
from payintent.version import API_VERSION


async def healthz(request: Request) -> Response:
    """`GET /healthz`: the process answers."""
    del request
    return json_response({"status": "ok", "version": API_VERSION})


async def readyz(request: Request) -> Response:
    """`GET /readyz`: the database of a cell answers and has every migration."""
    state = await get_context(request).readiness.state()
    if state.why_not:
        return json_response(_not_ready(state.why_not), 503)
    away = {"cells_away": state.cells_away} if state.cells_away else {}
    return json_response({"status": "ok", **away})


def _not_ready(message: str) -> dict[str, str]:
    return {"code": ErrorCode.SERVICE_UNAVAILABLE, "message": message}
