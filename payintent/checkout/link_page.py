"""The page of a payment link, on which a buyer creates a payment.

Only a submitted form creates a payment, because link previews and crawlers also open the page. A
cookie identifies the browser's last payment with the link, so that a buyer who comes back continues
the same payment.
"""

import unicodedata
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payintent.checkout import page_fields, rendering
from payintent.checkout.codes import qr_response
from payintent.checkout.context import CheckoutContext, get_checkout_context
from payintent.checkout.languages import Language
from payintent.checkout.static_files import page_style, picture_path
from payintent.core import ids
from payintent.core.addresses import parse_web_origin
from payintent.core.errors import BadRequestError, ErrorCode, RefusedError
from payintent.core.money import CURRENCIES, format_amount
from payintent.fraud.model import FraudDeniedError
from payintent.http.errors import get_http_status
from payintent.http.middleware import content_security_policy
from payintent.http.pages import forms
from payintent.merchants.model import Merchant, accepts_payments
from payintent.payment_links import store as link_store
from payintent.payment_links.model import LinkClosedError, LinkState, PaymentLink, build_link_url
from payintent.payment_links.open_payment import LinkOrder
from payintent.payments.model import OPEN, UNPAID, Payment

_COOKIE = "payintent_link"
_COOKIE_S = 86_400
_FORM_ID_CHARS_MAX = 40
_AMOUNT_CHARS_MAX = 40
#: The Arabic decimal and group separators, and the full-width point and comma.
_SEPARATORS = "\u066b\u066c\uff0e\uff0c"
_CLOSED_KEYS = {
    LinkState.INACTIVE: ("link_inactive", "link_closed_text"),
    LinkState.EXPIRED: ("link_expired", "link_closed_text"),
    LinkState.USED_UP: ("link_used_up", "link_used_up_text"),
}


@dataclass(frozen=True, slots=True)
class _LinkVisit:
    request: Request
    context: CheckoutContext
    link: PaymentLink
    merchant: Merchant
    previous_payment: Payment | None  # the browser's last payment with the link

    @property
    def page_url(self) -> page_fields.PageUrl:
        return page_fields.read_page_url(self.request, f"link/{self.link.token}")

    @property
    def language(self) -> Language:
        return rendering.page_language(self.request, self.merchant.locale)


@rendering.with_error_pages
async def get_link_page(request: Request) -> Response:
    """`GET /c/link/{token}`: the product with a button, or the reason why the link is closed."""
    visit = await _read_visit(request)
    payment = visit.previous_payment
    if payment is not None and payment.status in OPEN:
        return _redirect_to_checkout(visit, payment)
    state = await visit.context.link_payments.find_state(visit.link)
    is_paid = payment is not None and payment.status not in UNPAID
    if payment is not None and is_paid and state is not LinkState.OPEN:
        return _redirect_to_checkout(visit, payment)  # the checkout shows the result
    return _render(visit, state)


@rendering.with_error_pages
async def post_link_page(request: Request) -> Response:
    """`POST /c/link/{token}`: create a payment and redirect to its checkout."""
    visit = await _read_visit(request)
    form = await forms.read_form_fields(request)
    forms.check_request_origin(request, parse_web_origin(_full_url(visit)))
    context = visit.context
    context.address_limiter.take_link_token(context.viewers.get_viewer_address(request))
    try:
        payment = await context.link_payments.open_payment(_read_order(visit, form))
    except LinkClosedError as error:
        return _render(visit, error.state, status=409)
    except FraudDeniedError:
        return _render_denial(visit)
    except RefusedError as refusal:
        return _render_refusal(visit, refusal, form.get("amount", ""))
    response = _redirect_to_checkout(visit, payment)
    response.set_cookie(
        _COOKIE,
        payment.checkout_id,
        max_age=_COOKIE_S,
        path=visit.page_url.path,
        secure=_full_url(visit).startswith("https:"),
        httponly=True,
        samesite="lax",
    )
    return response


@rendering.with_error_pages
async def get_link_qr(request: Request) -> Response:
    return qr_response(_full_url(await _read_visit(request)))


async def _read_visit(request: Request) -> _LinkVisit:
    """Load the requested link; raise `CHECKOUT_NOT_FOUND` if it does not exist."""
    context = get_checkout_context(request)
    context.address_limiter.take_token(context.viewers.get_viewer_address(request))
    token: str = request.path_params["token"]
    link = (
        await link_store.find_by_token(context.database, token)
        if ids.is_link_token(token)
        else None
    )
    if link is None:
        raise RefusedError(ErrorCode.CHECKOUT_NOT_FOUND, "no such payment link")
    merchant = (await context.merchants.get(link.merchant_id)).merchant
    payment = await _find_previous_payment(request, context, link)
    return _LinkVisit(request, context, link, rendering.keep_linkable_urls(merchant), payment)


async def _find_previous_payment(
    request: Request, context: CheckoutContext, link: PaymentLink
) -> Payment | None:
    checkout_id = forms.read_cookie(request, _COOKIE)
    if checkout_id is None or not ids.is_checkout_id(checkout_id):
        return None
    try:
        snapshot = await context.payment_lookup.find_checkout_payment(checkout_id)
    except RefusedError:
        return None
    payment = snapshot.payment
    token = await link_store.find_token_by_payment(context.database, payment.id)
    return payment if token == link.token else None


def _read_order(visit: _LinkVisit, form: dict[str, str]) -> LinkOrder:
    form_id = form.get("form", "")
    if len(form_id) > _FORM_ID_CHARS_MAX or not (form_id.isascii() and form_id.isalnum()):
        raise BadRequestError("reload the page and try again")
    return LinkOrder(
        link=visit.link,
        form_id=form_id,
        entered_amount=normalize_amount(form.get("amount", ""), visit.language),
        previous_payment=visit.previous_payment,
    )


def normalize_amount(text: str, language: Language) -> str:
    """Convert an amount that a buyer entered in local notation to a plain decimal.

    Digits of any script become ASCII digits. The language's separators are accepted if every group
    has three digits, and a single comma followed by one or two digits is treated as a decimal
    comma. Arabic and full-width separators are also accepted, because some keyboards have no
    others. Other text is returned unchanged, and is later rejected as an amount.
    """
    if len(text) > _AMOUNT_CHARS_MAX:
        return text
    text = text.translate(str.maketrans(_SEPARATORS, f"{language.decimal}{language.group}.,"))
    digits = "".join(_to_ascii_digit(char) for char in text if not char.isspace())
    whole, comma, fraction = digits.partition(",")
    if comma and "." not in digits and fraction.isdecimal() and len(fraction) in {1, 2}:
        return f"{whole}.{fraction}"
    whole, point, fraction = digits.partition(language.decimal)
    first, *groups = whole.split(language.group)
    if groups and 0 < len(first) <= 3 and all(len(group) == 3 for group in groups):  # noqa: PLR2004
        whole = first + "".join(groups)
        return f"{whole}.{fraction}" if point else whole
    return digits


def _to_ascii_digit(char: str) -> str:
    digit = unicodedata.decimal(char, None)
    return char if digit is None else str(digit)


def _redirect_to_checkout(visit: _LinkVisit, payment: Payment) -> Response:
    url = page_fields.read_page_url(visit.request, payment.checkout_id).without_frame
    return RedirectResponse(url, 303, rendering.HEADERS)


def _full_url(visit: _LinkVisit) -> str:
    url = visit.request.url
    base = visit.context.settings.checkout_base or f"{url.scheme}://{url.netloc}/c"
    return build_link_url(base, visit.link.token)


def _render(
    visit: _LinkVisit,
    state: LinkState,
    invalid_amount: str | None = None,
    status: int = 200,
    *,
    is_out_of_service: bool = False,
) -> Response:
    language, terms, merchant = visit.language, visit.link.terms, visit.merchant
    is_closed = state is not LinkState.OPEN
    fields = _page_fields(visit) | {
        "terms": terms,
        "amount": terms.amount_text and language.number(terms.amount_text),
        "bounds": _describe_bounds(visit.link, language),
        "example": language.number(_example_amount(visit.link)),
        "invalid_amount": invalid_amount,
        "form_id": uuid4().hex,
        "closed": _CLOSED_KEYS[state] if is_closed else None,
        "out_of_service": is_out_of_service or not accepts_payments(merchant.activation),
        "language_options": rendering.language_options,
    }
    policy = content_security_policy(styles=[page_style(merchant.accent_colour).csp_source])
    return rendering.render_page(visit.request, "link.html", fields, policy, status)


def _render_refusal(visit: _LinkVisit, refusal: RefusedError, entered_amount: str) -> Response:
    """Show the form again with its error, or a notice that the shop does not accept payments."""
    status = get_http_status(refusal)
    if refusal.code is ErrorCode.INVALID_AMOUNT and visit.link.terms.amount is None:
        return _render(visit, LinkState.OPEN, entered_amount, status)
    if refusal.code in {ErrorCode.UNPROCESSABLE, ErrorCode.UNSUPPORTED_CURRENCY}:
        return _render(visit, LinkState.OPEN, status=status, is_out_of_service=True)
    raise refusal


def _page_fields(visit: _LinkVisit) -> dict[str, Any]:
    language, merchant = visit.language, visit.merchant
    return rendering.common_fields(language) | {
        "title": f"{visit.link.terms.title} · {merchant.name}",
        "merchant": merchant,
        "logo": picture_path(visit.context, merchant.logo_url, merchant.id),
        "is_test": not merchant.livemode,
        "style": page_style(merchant.accent_colour),
        "page_url": visit.page_url,
    }


def _render_denial(visit: _LinkVisit) -> Response:
    """Render a fraud denial. The reason is not disclosed."""
    language = visit.language
    fields = _page_fields(visit) | {
        "heading": language.t("blocked"),
        "message": language.t("blocked_text"),
        "tone": "plain",
        "status": "BLOCKED",
        "retry_url": None,
        "return_url": None,
    }
    policy = content_security_policy(styles=[page_style(visit.merchant.accent_colour).csp_source])
    return rendering.render_page(visit.request, "sorry.html", fields, policy)


def _describe_bounds(link: PaymentLink, language: Language) -> str | None:
    currency = CURRENCIES[link.terms.currency]
    bounds = link.terms.amount_range
    lowest, highest = [
        bound
        and language.money(
            format_amount(bound, currency.amount_decimals, trim=currency.is_crypto), currency.code
        )
        for bound in (bounds.minimum, bounds.maximum)
    ]
    if lowest and highest:
        return language.t("link_amount_between", minimum=lowest, maximum=highest)
    if lowest:
        return language.t("link_amount_min", minimum=lowest)
    return language.t("link_amount_max", maximum=highest) if highest else None


def _example_amount(link: PaymentLink) -> str:
    bounds = link.terms.amount_range
    currency = CURRENCIES[link.terms.currency]
    value = bounds.minimum or bounds.maximum
    if value is None:
        return "100" if currency.amount_decimals == 0 else "100.00"
    return format_amount(value, currency.amount_decimals, trim=currency.is_crypto)
