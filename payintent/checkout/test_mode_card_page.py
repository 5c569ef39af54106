"""The test gateway's card page, with test cards and a 3-D Secure challenge.

Buyers are redirected to this page and back, as with any other gateway.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payintent.checkout.context import CheckoutContext, get_checkout_context
from payintent.checkout.languages import Language, load_language, negotiate_language
from payintent.checkout.rendering import HEADERS, common_fields, render_page, with_error_pages
from payintent.checkout.static_files import page_style
from payintent.core import ids
from payintent.core.addresses import parse_web_origin
from payintent.core.errors import ErrorCode, RefusedError
from payintent.http.middleware import content_security_policy
from payintent.http.pages.forms import read_form_fields
from payintent.merchants.model import Merchant
from payintent.payments import sessions_store as session_store
from payintent.payments import store as payment_store
from payintent.payments.model import Session
from payintent.test_mode import model as test_mode
from payintent.test_mode import store as test_mode_store
from payintent.test_mode.buyer_simulator import SessionAction

#: Heading translation keys for sessions that no longer accept a card.
_HEADING_KEYS: Mapping[test_mode.TestSessionStatus, str] = {
    test_mode.TestSessionStatus.DECIDING: "test_card_deciding",
    test_mode.TestSessionStatus.PAID: "paid",
    test_mode.TestSessionStatus.DECLINED: "failed",
    test_mode.TestSessionStatus.CANCELLED: "cancelled",
    test_mode.TestSessionStatus.CLOSED: "test_card_closed",
}


@dataclass(frozen=True, slots=True)
class _CardPage:
    """The test gateway's session, and our own session with the same id."""

    test_session: test_mode.TestSession
    session: Session
    merchant: Merchant
    return_url: str


@with_error_pages
async def get_card_page(request: Request) -> Response:
    context = get_checkout_context(request)
    return _render(request, await _load_page(request, context))


@with_error_pages
async def post_card_page(request: Request) -> Response:
    """`POST /c/test/card/{session_id}`: submit a card or a 3-D Secure response, or cancel."""
    context = get_checkout_context(request)
    page = await _load_page(request, context)
    action = _read_action(await read_form_fields(request))
    if action is None:
        return _render(request, page, "test_card_unknown")
    try:
        new_session = await context.buyer_simulator.apply_card_action(page.session.id, action)
    except RefusedError as refusal:
        if refusal.code is not ErrorCode.INVALID_CHECKOUT_STATE:
            raise
        return RedirectResponse(request.url.path, 303, HEADERS)  # the page shows the current state
    next_url = request.url.path
    if new_session.status is not test_mode.TestSessionStatus.CHALLENGE:
        next_url = page.return_url or next_url
    return RedirectResponse(next_url, 303, HEADERS)


def _read_action(form: dict[str, str]) -> SessionAction | None:
    """Return the state change that the buyer requests; None if the card number is unknown."""
    if "challenge" in form:
        approved = form["challenge"] == "approve"
        return lambda session, _now: test_mode.complete_challenge(session, approved=approved)
    if "cancel" in form:
        return lambda session, _now: test_mode.cancel_for_buyer(session)
    number = "".join(form.get("card", "").split())
    if number not in test_mode.TEST_CARDS:
        return None
    return lambda session, now: test_mode.enter_test_card(session, number, now)


async def _load_page(request: Request, context: CheckoutContext) -> _CardPage:
    """Load the session in the path; raise `CHECKOUT_NOT_FOUND` if it does not exist."""
    context.address_limiter.take_token(context.viewers.get_viewer_address(request))
    session_id = ids.parse_id(ids.SESSION, request.path_params["session_id"])
    database = context.database
    test_session = await test_mode_store.find_session(database, session_id) if session_id else None
    session = await session_store.get(database, test_session.session_id) if test_session else None
    snapshot = await payment_store.get(database, session.payment_id) if session else None
    if test_session is None or session is None or snapshot is None:
        raise RefusedError(ErrorCode.CHECKOUT_NOT_FOUND, "no such session")
    setup = await context.merchants.get(snapshot.payment.merchant_id)
    base, return_url = context.settings.checkout_base, test_session.return_url
    path = return_url.find(f"/{snapshot.payment.checkout_id}/return")  # -1: not a hosted page
    if base and path >= 0:
        return_url = base + return_url[path:]
    return _CardPage(test_session, session, setup.merchant, return_url)


def _page_language(request: Request, page: _CardPage) -> Language:
    """Return the checkout's language, given by the `lang` parameter of the return URL."""
    requested_locale = parse_qs(urlsplit(page.return_url).query).get("lang", [None])[0]
    accept_language = request.headers.get("accept-language", "")
    locale = negotiate_language(requested_locale, accept_language, page.merchant.locale)
    return load_language(locale)


def _render(request: Request, page: _CardPage, problem: str | None = None) -> Response:
    """Render the page. `problem` is the translation key of an error message."""
    language = _page_language(request, page)
    merchant, price = page.merchant, page.session.quote.price
    style = page_style(merchant.accent_colour)
    fields = common_fields(language) | {
        "title": f"{language.t('method_test_card')} · {merchant.name}",
        "merchant": merchant,
        "amount": language.money(price.total_amount, price.currency),
        "style": style,
        "status": page.test_session.status,
        "heading": _HEADING_KEYS.get(page.test_session.status),
        "return_url": page.return_url,
        "cards": list(test_mode.TEST_CARDS.values()),
        "problem": language.t(problem) if problem else None,
        "page_path": request.url.path,
    }
    policy = _make_policy(page, style.csp_source)
    return render_page(request, "test_card.html", fields, policy, 400 if problem else 200)


def _make_policy(page: _CardPage, style_source: str) -> str:
    return content_security_policy(
        frame_ancestors=page.merchant.origins,
        form_targets=[parse_web_origin(page.return_url)],
        styles=[style_source],
    )
