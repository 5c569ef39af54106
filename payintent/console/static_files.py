"""Static files of the console."""

from functools import cache

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
CONSOLE_FILES = StaticFiles("console/static", "/static", _NAMES)


@cache
def console_style(name: str) -> InlinePart:
    return inline_part(CONSOLE_FILES.text(name))


def style_sources() -> list[str]:
    return [console_style(name).source for name in _NAMES if name.endswith(".css")]
