"""Sign in with an operator's token, sign out, and the sessions that are open."""

from contextlib import suppress
from urllib.parse import urlencode, urlsplit
from uuid import UUID

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payintent.api.authentication_failures import UnauthorizedError
from payintent.api.errors import http_status
from payintent.console.access import SIGN_IN, check_host, read_form, read_own_form, signed_in
from payintent.console.context import get_console_context
from payintent.console.rendering import render
from payintent.console.sessions import console_cookie, end_session, find_session, open_session
from payintent.domain.errors import ErrorCode, NotFoundError, RefusedError
from payintent.storage import console_sessions

_NEXT_MAX = 2_000
_LISTED_MAX = 50
_OIDC = "/sign-in/oidc?"
_EXPLAINED = {
    "oidc_no_role": "The provider knows you, and gives you no role here. Ask whoever manages it.",
    "oidc_blocked": "An operator has blocked you.",
    "oidc_declined": "The provider has signed nobody in.",
}
_NOT_COMPLETED = "The sign-in could not be completed. Please begin again."
_NO_STORE = {"Cache-Control": "no-store"}


async def get_sign_in(request: Request) -> Response:
    """`GET /sign-in`: the form; `next` is the page to go to afterwards.

    A link on another site brings no cookie, so the page opens itself once more from here.
    """
    check_host(request, get_console_context(request).settings)
    onward = onward_path(request.query_params.get("next", ""))
    if request.headers.get("sec-fetch-site") == "cross-site" and onward != "/":
        return render(request, "onward.html", onward=onward)
    return _form(request, onward)


async def post_sign_in(request: Request) -> Response:
    context = get_console_context(request)
    form = await read_own_form(request)
    onward = onward_path(form.get("next", ""))
    try:
        cookie = await open_session(context, request, form.get("token", "").strip())
    except RefusedError as refused:
        return refused_page(request, refused, onward)
    await _end_session_before(request)
    response = RedirectResponse(onward, 303, _NO_STORE)
    console_cookie(context.settings).set(response, cookie)
    return response


def refused_page(request: Request, refused: RefusedError, onward: str) -> Response:
    """Show the form again, with why nobody was signed in."""
    response = _form(request, onward, _explained(refused), http_status(refused))
    if refused.retry_after_s is not None:
        response.headers["Retry-After"] = str(refused.retry_after_s)
    return response


def _form(request: Request, onward: str, refused: str | None = None, status: int = 200) -> Response:
    provider = get_console_context(request).identity_provider
    oidc = None
    if provider is not None:
        oidc = {
            "host": urlsplit(provider.issuer).netloc,
            "href": _OIDC + urlencode({"next": onward}),
        }
    return render(request, "sign_in.html", status=status, onward=onward, refused=refused, oidc=oidc)


async def _end_session_before(request: Request) -> None:
    """End the session that this browser had until now, which no cookie would name any more."""
    context = get_console_context(request)
    with suppress(RefusedError):
        if (before := await find_session(context, request)) is not None:
            await end_session(context, before, before.id)


async def post_sign_out(request: Request) -> Response:
    context = get_console_context(request)
    session = await signed_in(request)
    await read_form(request, session)
    await end_session(context, session, session.id)
    response = RedirectResponse(SIGN_IN, 303, _NO_STORE)
    console_cookie(context.settings).clear(response)
    return response


async def get_sessions(request: Request) -> Response:
    context = get_console_context(request)
    session = await signed_in(request)
    listed = await console_sessions.list_open(context.database, session.holder, _LISTED_MAX)
    return render(request, "sessions.html", sessions=listed)


async def post_end_session(request: Request) -> Response:
    context = get_console_context(request)
    session = await signed_in(request)
    await read_form(request, session)
    try:
        session_id = UUID(request.path_params["session_id"])
    except ValueError:
        raise NotFoundError("no such session") from None
    if not await end_session(context, session, session_id):
        raise NotFoundError("no such session of yours is open")
    return RedirectResponse("/sessions", 303, _NO_STORE)


def onward_path(given: str) -> str:
    """Return the path of our own that a form or link asks for; anything else is `/`."""
    is_path = given.startswith("/") and not given.startswith(("//", "/\\"))
    if not is_path or len(given) > _NEXT_MAX or not given.isprintable() or "\\" in given:
        return "/"
    parts = urlsplit(given)
    return "/" if parts.scheme or parts.netloc or parts.path == SIGN_IN else given


def _explained(refused: RefusedError) -> str:
    if isinstance(refused, UnauthorizedError):
        if refused.reason.startswith("oidc_"):
            return _EXPLAINED.get(refused.reason, _NOT_COMPLETED)
        return "This is no valid token of an operator."
    if refused.code is ErrorCode.RATE_LIMITED:
        return "Too many failed attempts from this address: wait a little, then try again."
    return refused.message
