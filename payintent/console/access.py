"""Access control for console pages: sessions, form origins and error pages."""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payintent.console.context import ConsoleContext, get_console_context
from payintent.console.rendering import COMMON_HEADERS, render
from payintent.console.sessions import OperatorSession, find_session, make_console_cookie
from payintent.core.errors import (
    BadRequestError,
    ErrorCode,
    InvalidTextError,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.http.address_limits import UnauthorizedError
from payintent.http.application import Handler
from payintent.http.bodies import BodyTooLargeError, read_body
from payintent.http.errors import Failure, render_failures
from payintent.http.exports import ExportTarget
from payintent.http.pages.forms import SignedInVisit
from payintent.operators.operation import Actor, AnyOperation, OperationType, ReadOperation
from payintent.operators.proposals_store import Proposal
from payintent.operators.submit import run_operation, submit
from payintent.runtime.log import get_logger
from payintent.runtime.settings import Settings

R = TypeVar("R")
_log = get_logger("operator")
#: Form field that contains the session's CSRF token.
CSRF_FIELD = "csrf"
SIGN_IN = "/sign-in"
_FORM_TYPE = "application/x-www-form-urlencoded"
_FORM_FIELDS_MAX = 200
_LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
#: Messages that differ from the API's.
_FAILURE_MESSAGES: Mapping[type[Exception], str] = {
    BodyTooLargeError: "the form is too large",
    InvalidTextError: "the form contains text that cannot be stored",
    StorageUnavailableError: "the database is temporarily unavailable",
    Exception: "an internal error occurred; see the log for details",
}


@dataclass(frozen=True, slots=True)
class OperatorVisit(SignedInVisit[ConsoleContext, OperatorSession]):
    @property
    def actor(self) -> Actor:
        return self.session.actor

    @property
    def query(self) -> Mapping[str, str]:
        return {name: value.strip() for name, value in self.request.query_params.items()}

    def allows(self, operation: OperationType) -> bool:
        role = self.actor.role
        return role is not None and role.includes(operation.needs_role)

    async def read(self, operation: ReadOperation[R]) -> R:
        return await run_operation(self.context.operation_context, operation, self.actor)

    async def submit(self, operation: AnyOperation[R], reason: str = "") -> R | Proposal:
        """Submit an operation, and update the queue counts that the result page displays."""
        actor = replace(self.actor, reason=reason)
        result = await submit(self.context.operation_context, operation, actor)
        # The change has been made, and its result may contain a secret that is shown only once.
        with suppress(StorageUnavailableError, LockTimeoutError):
            counts = await self.context.queue_counts.get(is_changed=True)
            self.request.scope["payintent.queue_counts"] = counts
        return result

    def make_export_target(self) -> ExportTarget:
        extension: str = self.request.path_params["extension"]
        return ExportTarget(slots=self.context.exports, owner=self.actor.name, extension=extension)

    def render(self, template: str, /, *, status: int = 200, **fields: Any) -> Response:
        return render(self.request, template, status=status, **fields)


def operator_page(handler: Callable[[OperatorVisit], Awaitable[Response]]) -> Handler:
    """Require a session, or redirect to `/sign-in`.

    Raises `FORBIDDEN` if a form was not issued to the same session.
    """

    @console_page
    @wraps(handler)
    async def respond(request: Request) -> Response:
        context = get_console_context(request)
        check_host(request, context.settings)
        try:
            session = await find_session(context, request)
        except UnauthorizedError:
            session = None
        if session is None:
            return _redirect_to_sign_in(request, context.settings)
        request.scope["payintent.console_session"] = session
        request.scope["payintent.queue_counts"] = await context.queue_counts.get()
        path = request.url.path
        _log.info("operator", who=session.actor.name, method=request.method, path=path)
        form: Mapping[str, str] = {}
        if request.method == "POST":
            form = await _read_form(request, session)
        return await handler(OperatorVisit(request, context, session, form))

    return respond


def console_page(handler: Handler) -> Handler:
    """Render errors as pages. Add the common headers, and the session cookie if it changed."""
    handle = render_failures(_render_failure)(handler)

    @wraps(handler)
    async def respond(request: Request) -> Response:
        response = await handle(request)
        for name, value in COMMON_HEADERS.items():  # exports and redirects do not set them
            response.headers.setdefault(name, value)
        session: OperatorSession | None = request.scope.get("payintent.console_session")
        if session is not None and session.cookie is not None:
            settings = get_console_context(request).settings
            if "set-cookie" not in response.headers:
                make_console_cookie(settings).set(response, session.cookie)
        return response

    return respond


async def _read_form(request: Request, session: OperatorSession) -> Mapping[str, str]:
    fields = await read_same_origin_form(request)
    token = fields.pop(CSRF_FIELD, "")
    if not hmac.compare_digest(token.encode(), session.csrf.encode()):
        raise RefusedError(
            ErrorCode.FORBIDDEN,
            "the form was opened in a different session; reload the page and try again",
        )
    return fields


async def read_same_origin_form(request: Request) -> dict[str, str]:
    """Read a form; raise `FORBIDDEN` if it was sent from another origin. No session is required."""
    settings = get_console_context(request).settings
    check_host(request, settings)
    if request.headers.getlist("origin") != [get_own_origin(request, settings)]:
        raise RefusedError(ErrorCode.FORBIDDEN, "the form was sent from another site")
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != _FORM_TYPE:
        raise BadRequestError(f"the form must be sent as {_FORM_TYPE}")
    body = await read_body(request, settings.body_bytes_max)
    options: Any = {"keep_blank_values": True, "errors": "strict"}
    try:
        pairs = parse_qsl(body.decode(), **options, max_num_fields=_FORM_FIELDS_MAX)
    except ValueError as error:
        raise BadRequestError("the form is malformed") from error
    return dict(pairs)


def check_host(request: Request, settings: Settings) -> None:
    """Require the configured console address, or a loopback address if none is configured.

    This keeps the session cookie off unencrypted networks, and prevents DNS rebinding, in which an
    attacker's host name resolves to loopback.
    """
    host = request.headers.get("host", "").lower()
    if settings.console_base:
        if f"https://{host}" != settings.console_base:
            raise RefusedError(ErrorCode.FORBIDDEN, f"open the console at {settings.console_base}")
    elif _strip_port(host) not in _LOOPBACK_HOSTS:
        raise RefusedError(
            ErrorCode.FORBIDDEN,
            "without TLS, the console is available only at 127.0.0.1 and localhost; use a tunnel,"
            " or set PAYINTENT_CONSOLE_BASE to its URL behind a TLS proxy",
        )


def get_own_origin(request: Request, settings: Settings) -> str:
    return settings.console_base or f"http://{request.headers.get('host', '').lower()}"


def _render_failure(request: Request, failure: Failure) -> Response:
    message = _FAILURE_MESSAGES.get(failure.exception_type, failure.message)
    return render(request, "refused.html", status=failure.status, message=message)


def _redirect_to_sign_in(request: Request, settings: Settings) -> Response:
    query, path = "", request.url.path
    if request.method == "GET" and path != "/":
        next_path = f"{path}?{request.url.query}" if request.url.query else path
        query = "?" + urlencode({"next": next_path})
    response = RedirectResponse(SIGN_IN + query, 303)
    cookie = make_console_cookie(settings)
    # Keep the session if the cookie is missing, because browsers omit it on cross-site links.
    if cookie.read(request) is not None:
        cookie.clear(response)
    return response


def _strip_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
