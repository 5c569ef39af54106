"""Sign-in with an operator token, sign-out, and the list of open sessions."""

from contextlib import suppress
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payintent.console import sessions_store as session_store
from payintent.console.access import SIGN_IN, OperatorVisit, check_host, read_same_origin_form
from payintent.console.context import ConsoleContext, get_console_context
from payintent.console.rendering import render
from payintent.console.sessions import end_session, find_session, make_console_cookie, open_session
from payintent.core.errors import ErrorCode, NotFoundError, RefusedError
from payintent.http.address_limits import UnauthorizedError
from payintent.http.application import read_path_uuid
from payintent.http.errors import get_http_status

_NEXT_CHARS_MAX = 2_000
_SESSIONS_MAX = 50
_OIDC_PATH = "/sign-in/oidc?"
_OIDC_MESSAGES = {
    "oidc_no_role": "Your account does not have a role. Ask your administrator for access.",
    "oidc_blocked": "Your account is blocked. Ask your administrator for access.",
    "oidc_declined": "The identity provider declined the sign-in.",
}
_NOT_COMPLETED = "The sign-in was not completed. Try again."
_NO_STORE = {"Cache-Control": "no-store"}


async def get_sign_in(request: Request) -> Response:
    """`GET /sign-in`: the sign-in form. `next` is the path to open afterwards.

    Browsers omit the cookie when they follow a cross-site link. The response is then a page that
    navigates to `next` from our own site, so that the browser sends the cookie.
    """
    check_host(request, get_console_context(request).settings)
    next_path = sanitize_next_path(request.query_params.get("next", ""))
    if request.headers.get("sec-fetch-site") == "cross-site" and next_path != "/":
        return render(request, "onward.html", next_path=next_path)
    return _render_form(request, next_path)


async def post_sign_in(request: Request) -> Response:
    context = get_console_context(request)
    form = await read_same_origin_form(request)
    next_path = sanitize_next_path(form.get("next", ""))
    try:
        cookie = await open_session(context, request, form.get("token", "").strip())
    except RefusedError as refusal:
        return render_sign_in_error(request, refusal, next_path)
    await _end_previous_session(context, request)
    response = RedirectResponse(next_path, 303, _NO_STORE)
    make_console_cookie(context.settings).set(response, cookie)
    return response


def render_sign_in_error(request: Request, refusal: RefusedError, next_path: str) -> Response:
    """Render the sign-in form with the reason for the failure."""
    response = _render_form(request, next_path, _format_error(refusal), get_http_status(refusal))
    if refusal.retry_after_s is not None:
        response.headers["Retry-After"] = str(refusal.retry_after_s)
    return response


def _render_form(
    request: Request, next_path: str, refusal: str | None = None, status: int = 200
) -> Response:
    provider = get_console_context(request).identity_provider
    oidc = None
    if provider is not None:
        oidc = {
            "host": urlsplit(provider.issuer).netloc,
            "href": _OIDC_PATH + urlencode({"next": next_path}),
        }
    return render(
        request, "sign_in.html", status=status, next_path=next_path, refusal=refusal, oidc=oidc
    )


async def _end_previous_session(context: ConsoleContext, request: Request) -> None:
    """End the session whose cookie is about to be replaced."""
    with suppress(RefusedError):
        if (session := await find_session(context, request)) is not None:
            await end_session(context, session, session.id)


async def post_sign_out(visit: OperatorVisit) -> Response:
    await end_session(visit.context, visit.session, visit.session.id)
    response = RedirectResponse(SIGN_IN, 303, _NO_STORE)
    make_console_cookie(visit.context.settings).clear(response)
    return response


async def get_sessions(visit: OperatorVisit) -> Response:
    database, holder = visit.context.database, visit.session.holder
    return visit.render(
        "sessions.html", sessions=await session_store.list_open(database, holder, _SESSIONS_MAX)
    )


async def post_end_session(visit: OperatorVisit) -> Response:
    session_id = read_path_uuid(visit.request, "session_id", "no such session")
    if not await end_session(visit.context, visit.session, session_id):
        raise NotFoundError("this session does not exist or has ended")
    return RedirectResponse("/sessions", 303, _NO_STORE)


def sanitize_next_path(text: str) -> str:
    """Return `text` if it is a path on our own site, otherwise `/`."""
    is_path = text.startswith("/") and not text.startswith(("//", "/\\"))
    if not is_path or len(text) > _NEXT_CHARS_MAX or not text.isprintable() or "\\" in text:
        return "/"
    split_url = urlsplit(text)
    return "/" if split_url.scheme or split_url.netloc or split_url.path == SIGN_IN else text


def _format_error(refusal: RefusedError) -> str:
    if isinstance(refusal, UnauthorizedError):
        if refusal.reason.startswith("oidc_"):
            return _OIDC_MESSAGES.get(refusal.reason, _NOT_COMPLETED)
        return "This operator token is not valid."
    if refusal.code is ErrorCode.RATE_LIMITED:
        return "Too many failed attempts from this address. Wait a moment, then try again."
    return refusal.message
