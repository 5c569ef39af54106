"""Templates, navigation and headers of console pages."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from payintent.console.results import find_link, is_amount, label, show_value, table_columns
from payintent.console.sessions import OperatorSession
from payintent.core.money import format_rate
from payintent.http.middleware import ScriptSources, content_security_policy
from payintent.http.pages.static_files import (
    InlinePart,
    StaticFiles,
    html_response,
    inline_part,
    make_environment,
)
from payintent.operators.fields import summarize
from payintent.operators.operation import OperationType
from payintent.runtime.json_format import format_timestamp

#: Navigation labels and their paths.
NAVIGATION = {
    "Today": "/",
    "Payments": "/payments",
    "Cases": "/cases",
    "Refunds": "/refunds",
    "Disputes": "/disputes",
    "Webhooks": "/webhooks",
    "Merchants": "/merchants",
    "Approvals": "/approvals",
    "Gateways": "/gateways",
    "Chains": "/chains",
    "Audit": "/audit",
    "Operations": "/operations",
}


def is_current(entry: str, path: str) -> bool:
    return path == entry or (entry != "/" and path.startswith(f"{entry}/"))


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


#: Headers of every response. With `no-referrer`, browsers would send forms with origin `null`.
COMMON_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
#: Headers of every page and page fragment.
HEADERS = COMMON_HEADERS | {
    "Content-Security-Policy": content_security_policy(
        scripts=ScriptSources(), styles=style_sources()
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding, Cookie",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex, nofollow",
}
_LONG_CHARS = 40
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))
_WORDS_OF_TONES = {
    "good": "PAID SUCCEEDED ACTIVE APPROVED DELIVERED ENABLED OK HEALTHY RESOLVED WON",
    "warn": "WAITING PENDING PROCESSING OPEN SUSPENDED APPROVAL LAPSED LATE PARTIALLY_REFUNDED",
    "bad": "FAILED REJECTED DEAD REVOKED EXPIRED DISABLED HALTED LOST",
    "info": "REFUNDED QUEUED SENT NEW REQUESTED VALIDATED",
}
_TONES = {word: tone for tone, words in _WORDS_OF_TONES.items() for word in words.split()}
_templates = make_environment("console/templates")


def render(
    request: Request, template_name: str, /, *, status: int = 200, **fields: Any
) -> Response:
    """Render a template with `fields`, and with the navigation if an operator is signed in."""
    session: OperatorSession | None = request.scope.get("payintent.console_session")
    html = _templates.get_template(template_name).render(_common_fields(request, session) | fields)
    return html_response(request, html, HEADERS, status)


def render_part(template_name: str, **fields: Any) -> str:
    """Render a page fragment that is independent of the request and the operator."""
    return _templates.get_template(template_name).render(fields)


def _common_fields(request: Request, session: OperatorSession | None) -> dict[str, Any]:
    path = request.url.path
    entries = NAVIGATION.items() if session else ()
    return {
        "asset": CONSOLE_FILES.url,
        "navigation": [(label, entry, is_current(entry, path)) for label, entry in entries],
        "path": path,
        "session": session,
        "style": console_style,
    }


def format_moment(moment: datetime) -> str:
    """Format a time in UTC, as `2026-01-31 09:30:00`."""
    return format_timestamp(moment)[:19].replace("T", " ")


def tone(word: str) -> str:
    return _TONES.get(word.upper(), "")


def summary(kind: OperationType) -> str:
    return " ".join(summarize(kind).replace("`", "").split())


def is_long(value: object) -> bool:
    return isinstance(value, list | dict) or (isinstance(value, str) and len(value) > _LONG_CHARS)


def clock(text: str) -> str:
    return text[:19].replace("T", " ")


def format_age(at: datetime, now: datetime) -> str:
    seconds = max(0, int((now - at).total_seconds()))
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def list_names(fields: Mapping[str, object]) -> str:
    return ", ".join(map(label, fields))


cast("dict[str, Any]", _templates.filters).update(
    age=format_age,
    clock=clock,
    columns=table_columns,
    is_amount=is_amount,
    is_long=is_long,
    keys=list_names,
    label=label,
    link=find_link,
    moment=format_moment,
    rate=format_rate,
    shown=show_value,
    summary=summary,
    timestamp=format_timestamp,
    tone=tone,
)
