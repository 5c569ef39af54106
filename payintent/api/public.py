"""Routes that anybody may read: is the process up, is it ready."""

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.context import context, json_answer
from payintent.domain.errors import Code, StorageDown
from payintent.storage import migrate
from payintent.version import API_VERSION


async def healthz(request: Request) -> Response:
    """`GET /healthz`: the process answers."""
    del request
    return json_answer({"status": "ok", "version": API_VERSION})


async def readyz(request: Request) -> Response:
    """`GET /readyz`: the database answers and has every migration."""
    settings = context(request).service.settings
    try:
        missing = await migrate.pending(settings.database_direct_url or settings.database_url)
    except StorageDown:
        return json_answer(_not_ready("the database is away"), 503)
    if missing:
        return json_answer(_not_ready(f"{len(missing)} migrations are missing"), 503)
    return json_answer({"status": "ok"})


def _not_ready(message: str) -> dict[str, str]:
    return {"code": Code.SERVICE_UNAVAILABLE, "message": message}
