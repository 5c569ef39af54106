"""The console's own files, by a hash of them all."""

from functools import cache

from starlette.requests import Request
from starlette.responses import Response

from payintent.web.inline_part import InlinePart, inline_part
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


@cache
def console_style(name: str) -> InlinePart:
    return inline_part(_FILES.text(name))


def style_sources() -> list[str]:
    return [console_style(name).source for name in _NAMES if name.endswith(".css")]


def console_file_url(name: str) -> str:
    return _FILES.url(name)


async def get_console_file(request: Request) -> Response:
    """`GET /static/{mark}/{name}`: styles; any other mark gets the present file."""
    return await _FILES.get(request)
