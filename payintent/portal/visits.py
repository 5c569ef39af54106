"""Visits of members: the session of a request, its rights, its form, and refusals as pages."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payintent.api.application import Handler
from payintent.api.errors import Failure, answer_failures
from payintent.api.request_body import BodyTooLargeError
from payintent.config import Settings
from payintent.domain.errors import (
    ErrorCode,
    InvalidTextError,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.domain.member import SESSION_HOURS, MemberRight, has_right
from payintent.domain.web_origin import web_origin
from payintent.encryption import Encryption, EncryptionKeyError
from payintent.portal.context import PortalContext, get_portal_context
from payintent.portal.rendering import HEADERS, render_sorry
from payintent.storage import member_sessions
from payintent.storage.member_sessions import MemberSession
from payintent.web.cookies import SignInCookie, make_token
from payintent.web.forms import (
    check_form_token,
    check_sender,
    make_form_token,
    read_form_fields,
)

SIGN_IN = "/merchant/sign-in"
_FAILURES: Mapping[type[Exception], str] = {
    BodyTooLargeError: "This form is too long.",
    InvalidTextError: "This text cannot be stored.",
    StorageUnavailableError: "This does not work just now. Try again in a few seconds.",
    LockTimeoutError: "Another request is working on this. Try again.",
    EncryptionKeyError: "This cannot be shown: ask those who operate the service.",
    Exception: "The service has failed here. Try again, or ask those who operate it.",
}
_VISITOR_S = 3_600
_NEXT_MAX = 500


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of a member who is signed in; every query is bound to `merchant_id`."""

    request: Request
    context: PortalContext
    session: MemberSession
    form: Mapping[str, str]

    @property
    def merchant_id(self) -> int:
        return self.session.merchant_id

    @property
    def form_token(self) -> str:
        return make_form_token(self.context.encryption, str(self.session.id))

    def may(self, right: str) -> bool:
        return has_right(self.session.role, MemberRight(right))


MemberHandler = Callable[[Visit], Awaitable[Response]]


def session_cookie(settings: Settings) -> SignInCookie:
    return SignInCookie("payintent_merchant", _is_secure(settings), SESSION_HOURS * 3_600)


def visitor_cookie(settings: Settings) -> SignInCookie:
    return SignInCookie("payintent_visitor", _is_secure(settings), _VISITOR_S)


def session_digest(encryption: Encryption, token: str) -> bytes:
    return encryption.digest(f"member session:{token}")


def _failure_page(request: Request, failure: Failure) -> Response:
    message = _FAILURES.get(failure.kind, failure.message)
    return render_sorry(request, message, failure.status)


#: Answers failures with pages; for addresses that need no session.
portal_page = answer_failures(_failure_page)


def member_page(right: MemberRight | None = None) -> Callable[[MemberHandler], Handler]:
    """Need a session, and a right if one is named; a form must be the member's own."""

    def decorated(handler: MemberHandler) -> Handler:
        @portal_page
        @wraps(handler)
        async def answered(request: Request) -> Response:
            context = get_portal_context(request)
            token = session_cookie(context.settings).read(request)
            session = await find_member_session(context, token)
            if session is None or token is None:
                return _to_sign_in(request)
            if right is not None and not has_right(session.role, right):
                raise RefusedError(ErrorCode.FORBIDDEN, f"This is not for the role {session.role}.")
            response = await handler(await _visit(request, context, session))
            if session.is_due and request.method == "GET":
                await _rotate(context, session, token, response)
            return response

        return answered

    return decorated


async def find_member_session(context: PortalContext, token: str | None) -> MemberSession | None:
    if token is None:
        return None
    digest = session_digest(context.encryption, token)
    return await member_sessions.find(context.database, digest)


def redirect(address: str) -> Response:
    return RedirectResponse(address, 303, HEADERS)


async def read_portal_form(
    request: Request, context: PortalContext, holder: str
) -> Mapping[str, str]:
    """Read a form that a page of ours was given to its holder, and that was sent from there."""
    form = await read_form_fields(request)
    check_sender(request, web_origin(context.settings.portal_address))
    check_form_token(form, context.encryption, holder)
    return form


def read_next(raw: str | None) -> str:
    """Return where to go after signing in: a page of the portal, whatever is asked for."""
    is_ours = raw is not None and raw.startswith("/merchant/") and len(raw) <= _NEXT_MAX
    if raw is None or not is_ours or "\\" in raw or not raw.isascii() or not raw.isprintable():
        return "/merchant/payments"
    return raw


async def _visit(request: Request, context: PortalContext, session: MemberSession) -> Visit:
    form: Mapping[str, str] = {}
    if request.method == "POST":
        form = await read_portal_form(request, context, str(session.id))
    return Visit(request, context, session, form)


def _to_sign_in(request: Request) -> Response:
    if request.method != "GET":
        return redirect(SIGN_IN)
    query = f"?{request.url.query}" if request.url.query else ""
    return redirect(f"{SIGN_IN}?next={quote(request.url.path + query, safe='')}")


async def _rotate(
    context: PortalContext, session: MemberSession, token: str, response: Response
) -> None:
    """Give the browser another value of its cookie; the old one works for a minute more."""
    new = make_token()
    digests = [session_digest(context.encryption, value) for value in (token, new)]
    if await member_sessions.rotate(context.database, session.id, *digests):
        session_cookie(context.settings).set(response, new)


def _is_secure(settings: Settings) -> bool:
    return settings.portal_address.startswith("https:")


def fields_of(visit: Visit, title: str, **fields: Any) -> dict[str, Any]:
    return {"title": title, "visit": visit, "session": visit.session, **fields}
