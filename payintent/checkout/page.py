"""The hosted checkout page, built from forms and links so that it works without JavaScript."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payintent.chains import store as chain_store
from payintent.chains.store import DEPOSIT_PROVIDER, TEST_DEPOSIT_PROVIDER, ChainRecord
from payintent.checkout import page_fields, rendering, visits
from payintent.checkout.codes import full_page_url
from payintent.checkout.context import CheckoutContext
from payintent.checkout.fields import (
    fee_and_tax_lines,
    make_bill,
    next_action_fields,
    quote_fields,
    shop_price_lines,
)
from payintent.checkout.languages import Language
from payintent.checkout.methods.groups import group_methods
from payintent.checkout.methods.icons import draw_chain_icon, draw_quote_icon
from payintent.checkout.methods.names import chain_name, method_name
from payintent.checkout.methods.order import MethodPreferences, order_quotes
from payintent.checkout.methods.preferences import read_preferences, remember_method
from payintent.checkout.static_files import offer_script, page_style, picture_path
from payintent.checkout.steps import (
    DepositStep,
    WalletStep,
    api_url,
    card_step,
    describe_deposit,
    wallet_step,
)
from payintent.checkout.visits import CheckoutVisit
from payintent.core.addresses import parse_web_origin
from payintent.core.countries import COUNTRIES
from payintent.core.errors import ErrorCode, RefusedError
from payintent.http.errors import get_http_status
from payintent.http.middleware import ScriptSources
from payintent.http.pages.forms import read_form_fields
from payintent.merchants.model import Merchant, Quote, accepts_payments
from payintent.payment_links import store as link_store
from payintent.payment_sessions.inquire import inquire_on_return
from payintent.payment_sessions.open_session import SelectedSession
from payintent.payment_sessions.select_quote import QuoteSelection
from payintent.payments import captures_store as capture_store
from payintent.payments import sessions_store as session_store
from payintent.payments.model import OPEN, PaymentStatus
from payintent.refunds import address_store
from payintent.refunds.model import RefundStep
from payintent.runtime.http_session import encode_invalid_characters
from payintent.runtime.json_format import format_timestamp

_ID_DIGITS_MAX = 18
_SELECTED = "selected"  # query parameter added after a selection
_STEP_SCRIPTS = {"wallet": ("onchain.js",), "deposit": ("deposit.js",), "card": ("card.js",)}
#: Scripts of the wallet and deposit steps, which are prefetched if a token is offered.
_WALLET_SCRIPTS = ("onchain.js", "wallet.js")
_DEPOSIT_SCRIPTS = ("deposit.js", "derive.js")
#: An approval and a payment together use 126,204 gas; a transfer uses 57,692.
_CONTRACT_GAS_RATIO = Decimal("2.2")
_PAID = (PaymentStatus.PAID, PaymentStatus.PARTIALLY_REFUNDED, PaymentStatus.REFUNDED)


@rendering.with_error_pages
@visits.checkout_route
async def get_page(visit: CheckoutVisit) -> Response:
    return await _render_page(visit)


@rendering.with_error_pages
@visits.checkout_route
async def post_select(visit: CheckoutVisit) -> Response:
    """`POST /c/{checkout_id}/select`: freeze the quote and redirect to the gateway."""
    form = await read_form_fields(visit.request)
    try:
        selection = _read_selection(visit, form)
        selected = await visits.select_for_buyer(visit, selection)
    except RefusedError as refusal:
        return await _render_page(await visits.read_visit(visit.request), refusal, form)
    response = await _redirect_to_gateway(visit, selected)
    quote = selected.session.quote
    remember_method(response, visit.context, quote, is_deposit=_is_deposit(quote))
    return response


@rendering.with_error_pages
@visits.checkout_route
async def post_cancel_form(visit: CheckoutVisit) -> Response:
    try:
        await visits.cancel_checkout(visit)
    except RefusedError as refusal:
        return await _render_page(await visits.read_visit(visit.request), refusal)
    return _redirect_to_page(visit)


@rendering.with_error_pages
@visits.checkout_route
async def get_return(visit: CheckoutVisit) -> Response:
    """`GET` and `POST /c/{checkout_id}/return`: the buyer returns from the gateway.

    The parameters are not trusted. The gateway is queried instead.
    """
    context, session = visit.context, visit.snapshot.session
    if session is not None:
        merchant_id = visit.payment.merchant_id
        await inquire_on_return(context.database, context.accounts, merchant_id, session)
    return _redirect_to_page(visit)


@rendering.with_error_pages
@visits.checkout_route
async def get_receipt(visit: CheckoutVisit) -> Response:
    """`GET /c/{checkout_id}/receipt`: a printable receipt.

    Redirects to the checkout page if the payment is not paid.
    """
    payment = visit.payment
    if payment.status not in _PAID or payment.paid_at is None:
        return _redirect_to_page(visit)
    page = await _load_page(visit)
    refunded = payment.refunded_amount and page_fields.refunded_text(payment, page.language)
    fields = page.fields | {
        "title": f"{page.language.t('receipt')} · {page.merchant.name}",
        "paid_at": format_timestamp(payment.paid_at),
        "parts": fee_and_tax_lines(page.view["selected"], page.language),
        "refunded": refunded,
        "scripts": ["checkout.js"],
    }
    policy = rendering.merchant_policy(visit.context, page.merchant)
    return rendering.render_page(visit.request, "receipt.html", fields, policy)


@dataclass(frozen=True, slots=True)
class _Page:
    """Values from which the checkout page and the receipt are rendered."""

    merchant: Merchant
    language: Language
    view: dict[str, Any]
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _AvailableMethods:
    quotes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    country: str = ""
    #: Origins of the gateways' pages.
    gateway_origins: set[str | None] = field(default_factory=set[str | None])
    preferences: MethodPreferences = field(default_factory=MethodPreferences)


async def _load_page(visit: CheckoutVisit) -> _Page:
    context, merchant, session = visit.context, await visit.merchant(), visit.snapshot.session
    page_url = page_fields.read_page_url(visit.request, visit.payment.checkout_id)
    language = rendering.page_language(visit.request, merchant.locale)
    view = await visits.checkout_view(visit)
    fields = rendering.common_fields(language) | {
        "title": language.t("title", merchant=merchant.name),
        "view": view,
        "selected_name": method_name(session.quote, language) if session else "",
        "page_url": page_url,
        "current_url": page_url.current,
        "link": page_url.subpage,
        "embed": page_fields.embedding_frame(page_url, merchant),
        "api_url": api_url(context.settings)[0],
        "style": page_style(merchant.accent_colour),
        "offer_script": offer_script(language.locale),
        "picture": picture_path(context, view.get("product", {}).get("image"), merchant.id),
        "is_test": not merchant.livemode,
        "logo": picture_path(context, merchant.logo_url, merchant.id),
        "bill": make_bill(view, language),
        "result": None,
        "return_url": page_fields.make_return_link(visit.snapshot, merchant),
        "out_of_service": not accepts_payments(merchant.activation),
    }
    return _Page(merchant, language, view, fields)


async def _render_page(
    visit: CheckoutVisit,
    refusal: RefusedError | None = None,
    form: dict[str, str] | None = None,
) -> Response:
    """Render the page. After a failed form submission, show the error and the form values."""
    context, page = visit.context, await _load_page(visit)
    view, language, embed = page.view, page.language, page.fields["embed"]
    country = _requested_country(visit.request, form)
    methods = _AvailableMethods()
    try:
        if view["can"]["select"]:
            methods = await _load_methods(visit, country, language)
    except RefusedError as error:  # the payment has since ended
        refusal = refusal or error
    wallet = await wallet_step(context, view["next_action"])
    card = card_step(view["next_action"])
    step = page_fields.next_step(view["next_action"], wallet, card, embed)
    if step["kind"] not in {"wallet", "deposit"} and not view["can"]["select"]:
        step = {"kind": "closed"}  # money sent now would arrive too late
    if step["kind"] == "redirect":
        step = await _gateway_step(visit, step, methods)
    fields = page.fields | {
        "wallet": wallet,
        "card": card,
        "step": step,
        "has_selection": visit.payment.status is PaymentStatus.PROCESSING and "selected" in view,
        "is_open": visit.payment.status in OPEN,
        "requested_country": country,
        "problem": page_fields.problem_text(refusal, view, page.merchant, language),
        "is_email_invalid": page_fields.is_about_email(refusal),
        "absolute_url": full_page_url(visit),
        "scripts": ["checkout.js", *_STEP_SCRIPTS.get(step["kind"], ())],
        "returns_automatically": page_fields.returns_to_shop(visit.snapshot),
        **_form_fields(methods, form, page),
        "prefetch_scripts": _prefetch_scripts(step, methods),
        **_selected_fields(view, wallet, language),
        **await _result_fields(visit, page),
        "refund_links": await _list_refund_links(visit, language),
    }
    scripts = card.sources if card else _script_sources(step, language)
    policy = rendering.merchant_policy(context, page.merchant, scripts, methods.gateway_origins)
    status = get_http_status(refusal) if refusal else 200
    return rendering.render_page(visit.request, "checkout.html", fields, policy, status)


def _requested_country(request: Request, form: dict[str, str] | None) -> str | None:
    country = (form or {}).get("country") or request.query_params.get("country")
    return country if country in COUNTRIES else None


async def _gateway_step(
    visit: CheckoutVisit, step: dict[str, Any], methods: _AvailableMethods
) -> dict[str, Any]:
    """Return the step that redirects to the gateway.

    A gateway accepts its form only once, so the form is shown only right after a selection. A
    buyer who returns later must select the method again, if it is still offered.
    """
    session = visit.snapshot.session
    if step["method"] == "POST" and session is not None:
        method_id = session.quote.payment_method_id
        is_offered = any(quote["payment_method_id"] == method_id for quote in methods.quotes)
        if is_offered and not (
            _SELECTED in visit.request.query_params
            and await session_store.record_form_display(visit.context.database, session.id)
        ):
            return {"kind": "reselect"}
    methods.gateway_origins.add(parse_web_origin(step["url"]))
    return step


def _script_sources(step: dict[str, Any], language: Language) -> ScriptSources:
    """Allow our own scripts and, in the wallet step, the inline script."""
    if step["kind"] != "wallet":
        return rendering.OWN_SCRIPTS
    return ScriptSources(inline_hashes=(offer_script(language.locale).csp_source,))


def _prefetch_scripts(step: dict[str, Any], methods: _AvailableMethods) -> tuple[str, ...]:
    if step["kind"] in {"wallet", "deposit"}:
        return ()
    tokens = [quote for quote in methods.quotes if quote["kind"] == "onchain"]
    deposits = [quote for quote in tokens if quote["is_deposit"]]
    wallet_scripts = _WALLET_SCRIPTS if len(tokens) > len(deposits) else ()
    return (*wallet_scripts, *(_DEPOSIT_SCRIPTS if deposits else ()))


def _form_fields(
    methods: _AvailableMethods, form: dict[str, str] | None, page: _Page
) -> dict[str, Any]:
    """Return the fields of the payment method form, with the values of a failed submission."""
    language, view = page.language, page.view
    groups = group_methods(methods.quotes, language, methods.preferences)
    totals = page_fields.list_totals(methods.quotes, language)
    return {
        "totals": totals,
        "shows_totals": totals != [language.money(view["amount"], view["currency"])],
        "groups": groups,
        "fee_and_tax_lines": fee_and_tax_lines,
        "shop_price_lines": shop_price_lines,
        "selected_value": page_fields.preselected_method(groups, form),
        "form_values": form or {},
        "country": methods.country,
        "country_options": rendering.country_options,
        "language_options": rendering.language_options,
    }


def _selected_fields(
    view: dict[str, Any], wallet: WalletStep | None, language: Language
) -> dict[str, Any]:
    """Return the selected method's fields. Once a transfer is detected, the method is locked."""
    quote = view.get("selected")
    is_deposit = isinstance(wallet, DepositStep)
    return {
        "deposit_status": describe_deposit(wallet.session, language) if is_deposit else "",
        "can_change": not (wallet and wallet.is_detected),
        "selected_icon": draw_quote_icon(quote) if quote else "",
        "chain_icon": draw_chain_icon(wallet.session["chain"]["slug"]) if wallet else "",
    }


async def _result_fields(visit: CheckoutVisit, page: _Page) -> dict[str, Any]:
    payment = visit.payment
    if payment.status in OPEN:
        return {}
    return_url = page.fields["return_url"]
    if payment.status not in page_fields.UNPAID_HEADINGS:
        result = page_fields.paid_result(payment, page.merchant, page.language)
    else:
        link_url = await _find_link_url(visit)
        result = page_fields.unpaid_result(
            visit.snapshot,
            page.language,
            has_arrived=await capture_store.has_captures(visit.context.database, payment.id),
            return_link=link_url or return_url,
        )
        if link_url and result.offers_retry:
            return_url = link_url
    return {
        "return_url": return_url,
        "result": result,
        "title": f"{page.language.t(result.title)} · {page.merchant.name}",
        "may_be_refunded": page_fields.is_deposit(visit.snapshot.session)
        and payment.status not in _PAID,
    }


async def _find_link_url(visit: CheckoutVisit) -> str | None:
    """Return the payment's link for another attempt; None without a link or with a cancel URL."""
    if visit.payment.cancel_url is not None:
        return None
    token = await link_store.find_token_by_payment(visit.context.database, visit.payment.id)
    return token and page_fields.read_page_url(visit.request, f"link/{token}").without_frame


async def _list_refund_links(visit: CheckoutVisit, language: Language) -> list[tuple[str, bool]]:
    """Return links to a deposit's refunds, and whether each refund is waiting for an address."""
    payment, context = visit.payment, visit.context
    session = visit.snapshot.session
    if payment.status in OPEN or session is None or session.quote.provider != DEPOSIT_PROVIDER:
        return []
    steps = await address_store.list_steps(context.database, payment.id)
    build_url, query = context.refund_address_links.build_url, f"?lang={language.locale}"
    return [(build_url(id_) + query, step is RefundStep.ADDRESS) for id_, step in steps.items()]


async def _load_methods(
    visit: CheckoutVisit, country: str | None, language: Language
) -> _AvailableMethods:
    quote_list = await visits.price_checkout(visit, country, None)
    accounts = {quote.account_id for quote in quote_list.quotes}
    origins = {await visit.context.accounts.get_page_origin(account_id) for account_id in accounts}
    fields = await _list_method_fields(visit.context, quote_list.quotes, language)
    merchant_id = visit.payment.merchant_id
    preferences = await read_preferences(visit.request, visit.context, merchant_id)
    country = quote_list.quote_country.country
    return _AvailableMethods(order_quotes(fields, preferences), country, origins, preferences)


async def _list_method_fields(
    context: CheckoutContext, quotes: Sequence[Quote], language: Language
) -> list[dict[str, Any]]:
    has_tokens = any(quote.chain for quote in quotes)
    chain_list = await chain_store.list_chains(context.database) if has_tokens else []
    chains = {chain.slug: chain for chain in chain_list}
    return [
        _method_fields(quote, chains.get(quote.chain or ""), language)
        | _card_brand_fields(context, quote)
        for quote in quotes
    ]


def _card_brand_fields(context: CheckoutContext, quote: Quote) -> dict[str, Any]:
    capabilities = context.accounts.capabilities(quote.provider)
    if quote.kind != "card" or capabilities is None:
        return {}
    return {"card_brands": capabilities.card_brands}


def _is_deposit(quote: Quote) -> bool:
    return quote.provider in {DEPOSIT_PROVIDER, TEST_DEPOSIT_PROVIDER}


def _method_fields(quote: Quote, chain: ChainRecord | None, language: Language) -> dict[str, Any]:
    """Return a quote's fields, display names and, for tokens, the usual duration and cost."""
    fields = quote_fields(quote) | {
        "name": method_name(quote, language),
        "chain_name": chain_name(quote, chain, language),
        "is_deposit": _is_deposit(quote),
    }
    if chain is None:
        return fields
    return fields | {"typical_s": chain.typical_s, "network_fee": _network_fee(quote, chain)}


def _network_fee(quote: Quote, chain: ChainRecord) -> Decimal:
    """Return the usual network fee for the buyer in US dollars; 0 if it is unknown."""
    needs_approval = quote.provider != DEPOSIT_PROVIDER and quote.token != chain.coin_symbol
    return chain.transfer_fee_usd * (_CONTRACT_GAS_RATIO if needs_approval else 1)


def _read_selection(visit: CheckoutVisit, form: dict[str, str]) -> QuoteSelection:
    method, _, rest = form.get("method", "").partition("|")
    currency, _, total = rest.partition("|")
    if not (method.isascii() and method.isdecimal()) or len(method) > _ID_DIGITS_MAX:
        raise RefusedError(ErrorCode.PAYMENT_METHOD_NOT_FOUND, "choose a payment method")
    has_language = bool(visit.request.query_params.get("lang"))
    selection = QuoteSelection(
        payment_method_id=int(method),
        country=form.get("country"),
        currency=currency or None,
        payer_email=form.get("payer_email"),
        locale=rendering.page_language(visit.request, "en").locale if has_language else None,
        expected_total_amount=total or None,
    )
    selection.check()
    return selection


def _redirect_to_page(visit: CheckoutVisit) -> Response:
    page_url = page_fields.read_page_url(visit.request, visit.payment.checkout_id).current
    return RedirectResponse(page_url, 303, rendering.HEADERS)


async def _redirect_to_gateway(visit: CheckoutVisit, selected: SelectedSession) -> Response:
    """Redirect to the gateway's page, or to our page with a link to it.

    After a form submission, browsers follow redirects only to origins listed in `form-action`. If
    the gateway's page is not at the origin that its adapter declares, the buyer needs the link.
    """
    context, payment, session = visit.context, selected.payment, selected.session
    action = next_action_fields(payment, session, context.urls)
    if action["type"] == "redirect" and action["redirect"].get("method", "GET") == "GET":
        url: str = action["redirect"]["url"]
        if parse_web_origin(url) == await context.accounts.get_page_origin(
            session.quote.account_id
        ):
            return Response(
                None, 303, {**rendering.HEADERS, "Location": encode_invalid_characters(url)}
            )
    page_url = page_fields.read_page_url(visit.request, payment.checkout_id).current
    if action["type"] == "redirect" and action["redirect"].get("method") == "POST":
        page_url += f"{'&' if '?' in page_url else '?'}{_SELECTED}=1"
    return RedirectResponse(page_url, 303, rendering.HEADERS)
