"""Who may open a page of the console: the session of a request, and forms that are its own."""

import hmac
from collections.abc import Mapping
from functools import wraps
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payintent.api.application import Handler
from payintent.api.authentication_failures import UnauthorizedError
from payintent.api.errors import Failure, answer_failures
from payintent.api.request_body import BodyTooLargeError, read_raw
from payintent.config import Settings
from payintent.console.context import get_console_context
from payintent.console.rendering import HEADERS_OF_ALL, render
from payintent.console.sessions import OperatorSession, console_cookie, find_session
from payintent.domain.errors import (
    BadRequestError,
    ErrorCode,
    InvalidTextError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.log import get_logger

_log = get_logger("operator")
#: Name of the field that carries the token of a session in each of its forms.
CSRF_FIELD = "csrf"
SIGN_IN = "/sign-in"
_FORM_TYPE = "application/x-www-form-urlencoded"
_FORM_FIELDS_MAX = 200
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
#: The console's own words for failures that the API answers with others.
_FAILURES: Mapping[type[Exception], str] = {
    BodyTooLargeError: "the form is too large",
    InvalidTextError: "the form holds text that cannot be stored",
    StorageUnavailableError: "the database is away for the moment",
    Exception: "the service has failed here: its log says how",
}


class SignInNeededError(Exception):
    """The request has no session that counts."""


async def signed_in(request: Request) -> OperatorSession:
    """Return the session of the signed-in operator; without one the page leads to `/sign-in`."""
    context = get_console_context(request)
    check_host(request, context.settings)
    try:
        session = await find_session(context, request)
    except UnauthorizedError:
        session = None
    if session is None:
        raise SignInNeededError
    request.scope["payintent.console_session"] = session
    _log.info("operator", who=session.actor.who, method=request.method, path=request.url.path)
    return session


async def read_form(request: Request, session: OperatorSession) -> Mapping[str, str]:
    """Read a form that a page of this session sent (`FORBIDDEN` for any other).

    The form must come from our own origin and carry the token of the session.
    """
    fields = await read_own_form(request)
    token = fields.pop(CSRF_FIELD, "")
    if not hmac.compare_digest(token.encode(), session.csrf.encode()):
        raise RefusedError(
            ErrorCode.FORBIDDEN, "the form is of another session: open its page again"
        )
    return fields


async def read_own_form(request: Request) -> dict[str, str]:
    """Read a form that was sent from our own origin, which any session may have sent."""
    settings = get_console_context(request).settings
    check_host(request, settings)
    if request.headers.getlist("origin") != [own_origin(request, settings)]:
        raise RefusedError(ErrorCode.FORBIDDEN, "the form was sent from another site")
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != _FORM_TYPE:
        raise BadRequestError(f"a form is sent as {_FORM_TYPE}")
    raw = await read_raw(request, settings.body_bytes_max)
    try:
        pairs = parse_qsl(
            raw.decode(),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_FORM_FIELDS_MAX,
        )
    except ValueError as error:
        raise BadRequestError("the form cannot be read") from error
    return dict(pairs)


def check_host(request: Request, settings: Settings) -> None:
    """Refuse an address that the cookie must not travel to: neither loopback nor the one with TLS.

    It also stops names of other sites that resolve to loopback.
    """
    host = request.headers.get("host", "").lower()
    if settings.console_base:
        if f"https://{host}" != settings.console_base:
            raise RefusedError(ErrorCode.FORBIDDEN, f"the console is at {settings.console_base}")
    elif _without_port(host) not in _LOOPBACK:
        raise RefusedError(
            ErrorCode.FORBIDDEN,
            "without TLS the console is open at 127.0.0.1 and localhost alone: open it through a"
            " tunnel, or set PAYINTENT_CONSOLE_BASE to its address behind a proxy with TLS",
        )


def console_page(handler: Handler) -> Handler:
    """Answer refusals and failures with pages; set common headers, and a rotated cookie."""

    @answer_failures(_failure_page)
    async def opened(request: Request) -> Response:
        try:
            return await handler(request)
        except SignInNeededError:
            return _to_sign_in(request)

    @wraps(handler)
    async def answered(request: Request) -> Response:
        response = await opened(request)
        for name, value in HEADERS_OF_ALL.items():  # also of exports, and of what leads on
            response.headers.setdefault(name, value)
        session: OperatorSession | None = request.scope.get("payintent.console_session")
        if session is not None and session.cookie is not None:
            settings = get_console_context(request).settings
            if "set-cookie" not in response.headers:
                console_cookie(settings).set(response, session.cookie)
        return response

    return answered


def _failure_page(request: Request, failure: Failure) -> Response:
    message = _FAILURES.get(failure.kind, failure.message)
    return render(request, "refused.html", status=failure.status, message=message)


def _to_sign_in(request: Request) -> Response:
    query = ""
    if request.method == "GET" and request.url.path != "/":
        query = "?" + urlencode({"next": _own_path(request)})
    response = RedirectResponse(SIGN_IN + query, 303)
    cookie = console_cookie(get_console_context(request).settings)
    # A link from another site brings no cookie.
    if cookie.read(request) is not None:
        cookie.clear(response)
    return response


def _own_path(request: Request) -> str:
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


def own_origin(request: Request, settings: Settings) -> str:
    return settings.console_base or f"http://{request.headers.get('host', '').lower()}"


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
