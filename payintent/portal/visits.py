"""Requests from signed-in members: sessions, rights, forms, page templates and error pages."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Any, cast
from urllib.parse import quote, urlencode
from uuid import UUID

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payintent.core.addresses import parse_web_origin
from payintent.core.errors import (
    ConflictError,
    ErrorCode,
    InvalidTextError,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.core.money import (
    format_display_amount,
    format_display_number,
    format_rate,
    group_thousands,
)
from payintent.http.application import Handler
from payintent.http.bodies import BodyTooLargeError
from payintent.http.errors import Failure, render_failures
from payintent.http.exports import ExportTarget
from payintent.http.middleware import ScriptSources, content_security_policy
from payintent.http.pages import forms
from payintent.http.pages.static_files import (
    StaticFiles,
    html_response,
    make_environment,
    make_inline_block,
)
from payintent.http.pagination import write_id_cursor
from payintent.members import sessions_store as session_store
from payintent.members.model import SESSION_HOURS, MemberRight, has_right
from payintent.members.operations import member_actor
from payintent.members.sessions_store import MemberSession
from payintent.operators.operation import Actor
from payintent.portal.context import PortalContext, get_portal_context
from payintent.runtime.encryption import Encryption, EncryptionKeyError
from payintent.runtime.settings import Settings

#: Headers of every page. The middleware adds `Cache-Control: no-store`.
HEADERS = {
    "Referrer-Policy": "no-referrer",  # sign-in links are secret
    "Vary": "Accept-Encoding, Cookie",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
    "Cross-Origin-Opener-Policy": "same-origin",
}
PORTAL_FILES = StaticFiles(
    "portal/static", "/merchant/static", ("portal.css", "passkeys.js", "copy.js")
)
_STYLE = make_inline_block(PORTAL_FILES.text("portal.css"))
_templates = make_environment("portal/templates")
SIGN_IN = "/merchant/sign-in"
OVERVIEW = "/merchant/overview"
#: The pages in the navigation, with the right that each page requires.
_NAVIGATION: Sequence[tuple[str, str, MemberRight | None]] = (
    (OVERVIEW, "Overview", None),
    ("/merchant/payments", "Payments", None),
    ("/merchant/payment-links", "Payment links", MemberRight.MANAGE_PAYMENT_LINKS),
    ("/merchant/refunds", "Refunds", None),
    ("/merchant/cases", "Cases", None),
    ("/merchant/statements", "Statements", MemberRight.SEE_STATEMENTS),
    ("/merchant/events", "Events", None),
    ("/merchant/catalog", "Catalog", None),
    ("/merchant/settings", "Settings", None),
    ("/merchant/keys", "API keys", MemberRight.SEE_KEYS),
    ("/merchant/calls", "API calls", MemberRight.SEE_CALLS),
)
#: Rows per page in lists.
PAGE_ROWS = 25
_FAILURE_MESSAGES: Mapping[type[Exception], str] = {
    BodyTooLargeError: "The form is too large.",
    InvalidTextError: "The text contains characters that cannot be stored.",
    StorageUnavailableError: "The portal is temporarily unavailable. Try again in a few seconds.",
    LockTimeoutError: "Another request is changing the same data. Try again.",
    EncryptionKeyError: "The page cannot be displayed. Contact your payment service provider.",
    Exception: "Something went wrong. Try again, or contact your payment service provider.",
}
_VISITOR_S = 3_600
_NEXT_CHARS_MAX = 500


def _format_time(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


cast("dict[str, Any]", _templates.filters).update(
    time=_format_time,
    rate=format_rate,
    amount=group_thousands,
    money=format_display_amount,
    number=format_display_number,
)
_POLICY = content_security_policy(scripts=ScriptSources(), styles=[_STYLE.csp_source])


def render_portal_page(
    request: Request, template: str, fields: dict[str, Any], status: int = 200
) -> Response:
    common_fields: dict[str, Any] = {"scripts": [], "asset": PORTAL_FILES.url, "style": _STYLE}
    html = _templates.get_template(template).render({**common_fields, **fields})
    headers = {**HEADERS, "Content-Security-Policy": _POLICY}
    return html_response(request, html, headers, status)


@dataclass(frozen=True, slots=True)
class MemberVisit(forms.SignedInVisit[PortalContext, MemberSession]):
    """A request from a signed-in member. Every query must be restricted to `merchant_id`."""

    @property
    def merchant_id(self) -> int:
        """The merchant whose data the member views: the test merchant on the test side."""
        return self.session.viewed_merchant_id

    @property
    def in_test(self) -> bool:
        return self.session.in_test

    @property
    def actor(self) -> Actor:
        """The member as an actor. Its name contains the live merchant's number on both sides."""
        return member_actor(self.session.merchant_id, self.session.email)

    @property
    def form_token(self) -> str:
        """The token of the forms on this page, which are valid only on the current side."""
        holder = _name_form_holder(self.session, in_test=self.session.in_test)
        return forms.make_form_token(self.context.encryption, holder)

    @property
    def pages(self) -> list[tuple[str, str]]:
        """The paths and names of the pages in the navigation."""
        return [
            (path, name)
            for path, name, right in _NAVIGATION
            if right is None or has_right(self.session.role, right)
        ]

    @property
    def page_path(self) -> str:
        """The page in the navigation to which the current page belongs."""
        section = "/".join(self.request.url.path.split("/")[:3])
        return section if section in dict(self.pages) else OVERVIEW

    @property
    def can_switch_side(self) -> bool:
        """Whether the merchant has a test side, or the member may create one."""
        session = self.session
        return session.livemode and (
            session.test_merchant_id is not None or self.may(MemberRight.MANAGE_TEST)
        )

    @property
    def contact(self) -> str:
        """The operator's email address or support URL; empty if it is not configured."""
        return self.context.settings.operator_contact

    @property
    def contact_link(self) -> str:
        return self.contact if "://" in self.contact else f"mailto:{self.contact}"

    def may(self, right: str) -> bool:
        return has_right(self.session.role, MemberRight(right))

    def make_export_target(self) -> ExportTarget:
        owner = (self.session.merchant_id, self.session.email)
        return ExportTarget(slots=self.context.exports, owner=owner, headers=HEADERS)

    def render(self, template: str, title: str, /, *, status: int = 200, **fields: Any) -> Response:
        common_fields: dict[str, Any] = {"title": title, "visit": self, "session": self.session}
        return render_portal_page(self.request, template, common_fields | fields, status)


MemberHandler = Callable[[MemberVisit], Awaitable[Response]]


def make_session_cookie(settings: Settings) -> forms.SignInCookie:
    return forms.SignInCookie("payintent_merchant", _is_secure(settings), SESSION_HOURS * 3_600)


def make_visitor_cookie(settings: Settings) -> forms.SignInCookie:
    """Return the cookie that binds forms and challenges to a browser before the user signs in."""
    return forms.SignInCookie("payintent_visitor", _is_secure(settings), _VISITOR_S)


def compute_session_digest(encryption: Encryption, token: str) -> bytes:
    return encryption.digest(f"member session:{token}")


def _render_failure_page(request: Request, failure: Failure) -> Response:
    message = _FAILURE_MESSAGES.get(failure.exception_type, failure.message)
    fields = {"title": "Something went wrong", "message": message}
    return render_portal_page(request, "error.html", fields, failure.status)


#: Decorates routes that do not require a session; renders errors as pages.
portal_page = render_failures(_render_failure_page)


def member_page(
    right: MemberRight | None = None, *, any_side: bool = False
) -> Callable[[MemberHandler], Handler]:
    """Require a session and, if set, `right`. Forms must have been issued to the same session.

    A form must also have been issued on the current side (live or test), unless `any_side` is set.
    Otherwise, a page that was opened before the member switched sides would change the other side's
    data.
    """

    def decorate(handler: MemberHandler) -> Handler:
        @portal_page
        @wraps(handler)
        async def respond(request: Request) -> Response:
            context = get_portal_context(request)
            token = make_session_cookie(context.settings).read(request)
            session = await find_member_session(context, token)
            if session is None or token is None:
                return _redirect_to_sign_in(request)
            if right is not None and not has_right(session.role, right):
                raise RefusedError(
                    ErrorCode.FORBIDDEN, f"Your role ({session.role}) does not allow this."
                )
            form: Mapping[str, str] = {}
            if request.method == "POST":
                form = await _read_member_form(request, context, session, any_side=any_side)
            response = await handler(MemberVisit(request, context, session, form))
            if session.is_rotation_due and request.method == "GET":
                await _rotate(context, session, token, response)
            return response

        return respond

    return decorate


async def take_change_token(visit: MemberVisit) -> None:
    """Limit the rate of changes on the test side. Raises `RATE_LIMITED`."""
    await visit.context.limiter.take_change_token(visit.merchant_id)


async def find_member_session(context: PortalContext, token: str | None) -> MemberSession | None:
    if token is None:
        return None
    digest = compute_session_digest(context.encryption, token)
    return await session_store.find(context.database, digest)


def redirect(url: str) -> Response:
    return RedirectResponse(url, 303, HEADERS)


async def read_portal_form(
    request: Request, context: PortalContext, *holders: str
) -> Mapping[str, str]:
    """Read a form; raise `FORBIDDEN` unless one of our pages issued it to one of the `holders`."""
    form = await forms.read_form_fields(request)
    forms.check_request_origin(request, parse_web_origin(context.settings.portal_address))
    forms.check_form_token(form, context.encryption, *holders)
    return form


async def _read_member_form(
    request: Request, context: PortalContext, session: MemberSession, *, any_side: bool
) -> Mapping[str, str]:
    holders = [_name_form_holder(session, in_test=in_test) for in_test in (False, True)]
    form = await read_portal_form(request, context, *holders)
    current_holder = holders[session.in_test]
    if not any_side and not forms.has_form_token(form, context.encryption, current_holder):
        sides = ("test", "live") if session.in_test else ("live", "test")
        raise ConflictError(
            f"You have switched to the {sides[0]} side since you opened this page. Nothing was "
            f"changed. Switch back to the {sides[1]} side and try again."
        )
    return form


def _name_form_holder(session: MemberSession, *, in_test: bool) -> str:
    return f"{session.id}:{'test' if in_test else 'live'}"


def get_safe_next_path(text: str | None) -> str:
    """Return `text` if it is the path of a portal page, otherwise the path of the overview."""
    if text is None or not text.startswith("/merchant/") or len(text) > _NEXT_CHARS_MAX:
        return OVERVIEW
    is_safe = text.isascii() and text.isprintable() and "\\" not in text
    return text if is_safe else OVERVIEW


def format_next_query(ids: Sequence[UUID], query: Mapping[str, str]) -> str | None:
    """Return the next page's query string; None if there are at most `PAGE_ROWS` rows."""
    if len(ids) <= PAGE_ROWS:
        return None
    return urlencode({**query, "cursor": write_id_cursor(ids[PAGE_ROWS - 1])})


def _redirect_to_sign_in(request: Request) -> Response:
    if request.method != "GET":
        return redirect(SIGN_IN)
    query = f"?{request.url.query}" if request.url.query else ""
    return redirect(f"{SIGN_IN}?next={quote(request.url.path + query, safe='')}")


async def _rotate(
    context: PortalContext, session: MemberSession, token: str, response: Response
) -> None:
    """Replace the session cookie. The previous value remains valid for one minute."""
    new_token = forms.make_token()
    digests = [compute_session_digest(context.encryption, value) for value in (token, new_token)]
    if await session_store.rotate(context.database, session.id, *digests):
        make_session_cookie(context.settings).set(response, new_token)


def _is_secure(settings: Settings) -> bool:
    return settings.portal_address.startswith("https:")
