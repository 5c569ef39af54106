"""Templates, static files and headers of portal pages."""

from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from payintent.core.money import format_rate
from payintent.http.middleware import ScriptSources, content_security_policy
from payintent.http.pages.static_files import (
    StaticFiles,
    html_response,
    inline_part,
    make_environment,
)

#: Headers of every page. The middleware adds `Cache-Control: no-store`.
HEADERS = {
    "Referrer-Policy": "no-referrer",  # sign-in links are secret
    "Vary": "Accept-Encoding, Cookie",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
    "Cross-Origin-Opener-Policy": "same-origin",
}
PORTAL_FILES = StaticFiles("portal/static", "/merchant/static", ("portal.css", "passkeys.js"))
_STYLE = inline_part(PORTAL_FILES.text("portal.css"))
_templates = make_environment("portal/templates")


def _time(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


_templates.filters["time"] = _time
_templates.filters["rate"] = format_rate
_POLICY = content_security_policy(scripts=ScriptSources(), styles=[_STYLE.source])


def render_portal_page(
    request: Request, template: str, fields: dict[str, Any], status: int = 200
) -> Response:
    common: dict[str, Any] = {"scripts": [], "asset": PORTAL_FILES.url, "style": _STYLE}
    html = _templates.get_template(template).render({**common, **fields})
    headers = {**HEADERS, "Content-Security-Policy": _POLICY}
    return html_response(request, html, headers, status)


def render_sorry(request: Request, message: str, status: int) -> Response:
    fields = {"title": "That did not work", "message": message}
    return render_portal_page(request, "sorry.html", fields, status)
