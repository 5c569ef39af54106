"""The console's own files, by a hash of them all."""

from starlette.requests import Request
from starlette.responses import Response

from payintent.web.static_files import StaticFiles

_NAMES = (
    "console.css",
    "figures.css",
    "lists.css",
    "times.js",
    "today.js",
    "uPlot.iife.min.js",
    "uPlot.min.css",
)
_FILES = StaticFiles("console/static", "/static", _NAMES)


def console_file_url(name: str) -> str:
    """Return the present address of one of our files."""
    return _FILES.url(name)


async def get_console_file(request: Request) -> Response:
    """`GET /static/{mark}/{name}`: styles; any other mark gets the present file."""
    return await _FILES.get(request)
