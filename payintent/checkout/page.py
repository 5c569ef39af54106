"""The hosted checkout page: complete without JavaScript, forms and links only."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from io import BytesIO
from typing import Any
from urllib.parse import parse_qsl

import segno
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payintent.api import checkout, schemas
from payintent.api.content_security_policy import Sources, write_policy
from payintent.api.context import Context, context
from payintent.api.errors import RETRY_AFTER_S, status_of
from payintent.api.request_body import TooLarge, read_raw
from payintent.checkout.card_step import card_step
from payintent.checkout.languages import Texts
from payintent.checkout.page_fields import (
    Address,
    address_of,
    back_to,
    chosen_of,
    embed_of,
    is_about_email,
    is_taken_back,
    picture_of,
    problem_of,
    refunded,
    result_of,
    step_of,
    words_for,
)
from payintent.checkout.rendering import HEADERS, answer, common, language, sorry
from payintent.checkout.wallet_step import api_of, wallet_step
from payintent.domain.currencies import COUNTRIES
from payintent.domain.errors import Code, LockTimeout, Refused, StorageDown
from payintent.domain.fraud import Denied
from payintent.domain.merchant import Merchant
from payintent.domain.payment import OPEN, Status
from payintent.domain.web_origin import web_origin
from payintent.log import get
from payintent.payments.inquire_sessions import ask_on_return
from payintent.payments.lookup import checkout_for, merchant_of, next_action_fields, offer_fields
from payintent.payments.select_quote import Selected, Selection
from payintent.payments.serialization import timestamp
from payintent.storage.payments import Seen

Handler = Callable[[Request], Awaitable[Response]]

_log = get("page")
_FORM_BYTES_MAX = 16 * 1024
_FORM_FIELDS_MAX = 20
_ID_DIGITS_MAX = 18
_OURS = Sources()
_STEP_SCRIPTS = {"wallet": ("onchain.js",), "card": ("card.js",)}
_PAID = (Status.PAID, Status.PARTIALLY_REFUNDED, Status.REFUNDED)
_SORRY = {
    Code.CHECKOUT_NOT_FOUND: "sorry_not_found",
    Code.RATE_LIMITED: "sorry_many",
}


def _for_people(handler: Handler) -> Handler:
    """Answer a refusal with a page: whoever opens these addresses is a person."""

    @wraps(handler)
    async def answered(request: Request) -> Response:
        try:
            return await _answered(handler, request)
        except StorageDown as down:
            _log.warning("storage_down", why=str(down))
            return _later(request, "sorry_later", 503, RETRY_AFTER_S)
        except LockTimeout:
            return _later(request, "sorry_busy", 409, RETRY_AFTER_S)

    return answered


async def _answered(handler: Handler, request: Request) -> Response:
    try:
        return await handler(request)
    except TooLarge:
        return sorry(request, "sorry_other", 413)
    except Denied:
        return await _blocked(request)
    except Refused as refused:
        key = _SORRY.get(refused.code, "sorry_other")
        if refused.code is Code.CHECKOUT_NOT_FOUND:
            return sorry(request, key, status_of(refused))
        return _later(request, key, status_of(refused), refused.retry_after_s)


def _later(request: Request, key: str, status: int, wait_s: int | None) -> Response:
    address = address_of(request, request.path_params["checkout_id"])
    told = sorry(request, key, status, again=address.here)
    if wait_s is not None:
        told.headers["Retry-After"] = str(wait_s)
    return told


@_for_people
async def show(request: Request) -> Response:
    """`GET /c/{checkout_id}`: what to pay and how, or how it ended."""
    here = context(request)
    return await _page(request, here, await checkout.read(request))


@_for_people
async def select(request: Request) -> Response:
    """`POST /c/{checkout_id}/select`: freezes the quote and sends the buyer to the gateway."""
    here = context(request)
    seen = await checkout.read(request)
    form = await _form(request)
    try:
        chosen = await _chosen(here, form, request)
        selected = await checkout.select(here, seen, request, chosen)
    except Refused as refused:
        return await _page(request, here, await checkout.again(request), refused, form)
    return _onward(request, here, selected)


@_for_people
async def cancel(request: Request) -> Response:
    """`POST /c/{checkout_id}/cancel`: the buyer gives up."""
    here = context(request)
    seen = await checkout.read(request)
    try:
        await checkout.cancel_checkout(here, seen)
    except Refused as refused:
        return await _page(request, here, await checkout.again(request), refused)
    return _to_page(request, seen)


@_for_people
async def returned(request: Request) -> Response:
    """`GET` and `POST /c/{checkout_id}/return`: the gateway sends the buyer back here.

    Nothing that comes along is believed: the janitor is told to ask the provider at once.
    """
    here = context(request)
    seen = await checkout.read(request)
    if seen.session is not None:
        await ask_on_return(here.service.database, here.service.accounts, seen.session)
    return _to_page(request, seen)


@_for_people
async def receipt(request: Request) -> Response:
    """`GET /c/{checkout_id}/receipt`: what was paid, to print; nothing of it before it was."""
    here = context(request)
    seen = await checkout.read(request)
    payment = seen.payment
    if payment.status not in _PAID or payment.paid_at is None:
        return _to_page(request, seen)
    page = await _open(request, here, seen)
    shown = refunded(payment, page.texts) if payment.refunded_amount else None
    fields = page.fields | {
        "title": f"{page.texts.t('receipt')} · {page.merchant.name}",
        "paid_at": timestamp(payment.paid_at),
        "refunded": shown,
        "scripts": ["checkout.js"],
    }
    policy = write_policy(framed_by=page.merchant.origins, runs=_asking(here))
    return answer(request, "receipt.html", fields, policy)


@_for_people
async def qr(request: Request) -> Response:
    """`GET /c/{checkout_id}/qr.svg`: a code that opens the page, for the phone at hand."""
    here = context(request)
    seen = await checkout.read(request)
    drawn = BytesIO()
    code = segno.make(_address(here, seen, request), error="m")
    code.save(drawn, kind="svg", border=2, dark="#000", light="#fff", xmldecl=False)
    headers = {**HEADERS, "Content-Security-Policy": "default-src 'none'"}
    return Response(drawn.getvalue(), 200, headers, "image/svg+xml")


@dataclass(frozen=True, slots=True)
class _Opened:
    """One page on its way: whose it is, in which language, and what all its templates read."""

    merchant: Merchant
    texts: Texts
    address: Address
    view: dict[str, Any]
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Offered:
    """The ways to pay on a page, for where, and the origins of their gateways."""

    quotes: list[dict[str, Any]]
    country: str
    gateways: set[str | None]


async def _open(request: Request, here: Context, seen: Seen) -> _Opened:
    merchant = await merchant_of(here.service.database, seen.payment)
    address = address_of(request, seen.payment.checkout_id)
    spoken = language(request, merchant.locale)
    view = await checkout.view(here, seen)
    settings = here.service.settings
    fields = common(spoken) | {
        "title": spoken.t("title", merchant=merchant.name),
        "view": view,
        "address": address,
        "here": address.here,
        "link": address.link,
        "embed": embed_of(address, merchant),
        "api": api_of(settings)[0],
        "picture": picture_of(view, merchant, sandbox=settings.sandbox),
        "logo": merchant.logo_url,
    }
    return _Opened(merchant, spoken, address, view, fields)


async def _page(
    request: Request,
    here: Context,
    seen: Seen,
    refused: Refused | None = None,
    typed: dict[str, str] | None = None,
) -> Response:
    """Write the page; `refused` and what was `typed` are of a form that was sent just now."""
    page = await _open(request, here, seen)
    view, spoken, embed = page.view, page.texts, page.fields["embed"]
    asked = (typed or {}).get("country") or request.query_params.get("country")
    country = asked if asked in COUNTRIES else None
    try:
        offered = await _offered(request, here, seen, country, can=view["can"]["select"])
    except Refused as error:  # it has ended this moment
        refused, offered = refused or error, _Offered([], "", set())
    wallet = await wallet_step(here, view["next_action"])
    card = card_step(view["next_action"])
    step = step_of(view["next_action"], wallet, card, embed)
    if step["kind"] == "redirect" and not view["can"]["select"]:
        step = {"kind": "wait"}  # the time is over: whoever still pays there pays too late
    if step["kind"] == "redirect":
        offered.gateways.add(web_origin(step["url"]))
    fields = page.fields | {
        "wallet": wallet,
        "card": card,
        "step": step,
        "present": seen.payment.status is Status.PROCESSING and "selected" in view,
        "live": seen.payment.status in OPEN,
        "back": back_to(view),
        "chosen_country": country,
        "problem": problem_of(refused, spoken) if refused else None,
        "bad_email": is_about_email(refused),
        "anywhere": _address(here, seen, request),
        "words": words_for(spoken, step["kind"], embed),
        "scripts": ["checkout.js", *_STEP_SCRIPTS.get(step["kind"], ())],
        "taken_back": is_taken_back(seen),
        **_form_fields(offered, typed, spoken),
        **_end_fields(seen, page),
    }
    policy = write_policy(
        shows=(page.fields["picture"], page.fields["logo"]),
        framed_by=page.merchant.origins,
        leads_to=offered.gateways,
        runs=_asking(here, card.sources if card else _OURS),
    )
    return answer(request, "checkout.html", fields, policy, status_of(refused) if refused else 200)


def _form_fields(offered: _Offered, typed: dict[str, str] | None, spoken: Texts) -> dict[str, Any]:
    """Give what the form of the ways to pay reads, which also keeps what was typed."""
    return {
        "quotes": offered.quotes,
        "checked": chosen_of(offered.quotes, typed),
        "typed": typed or {},
        "country": offered.country,
        "countries": spoken.countries.items(),
    }


def _end_fields(seen: Seen, page: _Opened) -> dict[str, Any]:
    if seen.payment.status in OPEN:
        return {}
    result = result_of(seen.payment, page.merchant, page.texts)
    return {"result": result, "title": f"{page.texts.t(result.title)} · {page.merchant.name}"}


async def _offered(
    request: Request, here: Context, seen: Seen, country: str | None, *, can: bool
) -> _Offered:
    if not can:
        return _Offered([], "", set())
    quotes = await checkout.quotes(here, seen, request, country, None)
    accounts = {offer.account_id for offer in quotes.offers}
    opened = [await here.service.accounts.open(one) for one in accounts]
    gateways = {web_origin(account.page_url) for account in opened if account is not None}
    return _Offered([offer_fields(one) for one in quotes.offers], quotes.place.country, gateways)


def _asking(here: Context, step: Sources = _OURS) -> Sources:
    """Add that the page asks the API, which may have an origin of its own."""
    api = api_of(here.service.settings)[1]
    return Sources(step.scripts, step.frames, (*step.asks, *([api] if api else ())))


async def _blocked(request: Request) -> Response:
    """Tell a buyer whom fraud screening denies no more than that, and the way back."""
    here = context(request)
    seen = await checkout_for(
        here.service.database, here.service.mint, request.path_params["checkout_id"]
    )
    merchant = await merchant_of(here.service.database, seen.payment)
    spoken = language(request, merchant.locale)
    fields = common(spoken) | {
        "title": spoken.t("blocked"),
        "heading": spoken.t("blocked"),
        "message": spoken.t("blocked_text"),
        "mood": "plain",
        "status": "BLOCKED",
        "again": None,
        "merchant": merchant,
        "embed": embed_of(address_of(request, seen.payment.checkout_id), merchant),
        "scripts": ["checkout.js"],
    }
    policy = write_policy(framed_by=merchant.origins, runs=_asking(here))
    return answer(request, "sorry.html", fields, policy)


async def _form(request: Request) -> dict[str, str]:
    raw = await read_raw(request, _FORM_BYTES_MAX)
    try:
        fields = parse_qsl(raw.decode(), max_num_fields=_FORM_FIELDS_MAX)
    except ValueError as error:
        raise Refused(Code.BAD_REQUEST, "the form cannot be read") from error
    return {name: value.strip() for name, value in fields if value.strip()}


async def _chosen(here: Context, form: dict[str, str], request: Request) -> Selection:
    """Read the form: the method with the currency and the total that the buyer saw beside it."""
    method, _, rest = form.get("method", "").partition("|")
    currency, _, total = rest.partition("|")
    if not (method.isascii() and method.isdecimal()) or len(method) > _ID_DIGITS_MAX:
        raise Refused(Code.PAYMENT_METHOD_NOT_FOUND, "please choose a way to pay")
    schemas.check_email(form.get("payer_email"))
    asked = request.query_params.get("lang")
    return Selection(
        payment_method_id=int(method),
        country=form.get("country"),
        viewer_country=here.edge.viewer_country(request),
        restrictions=await here.service.policies.restrictions(),
        currency=currency or None,
        payer_email=form.get("payer_email"),
        locale=language(request, "en").locale if asked else None,
        expected_total_amount=total or None,
    )


def _to_page(request: Request, seen: Seen) -> Response:
    """Go to the page itself; on the address that the buyer is on, whatever its host is."""
    return RedirectResponse(address_of(request, seen.payment.checkout_id).here, 303, HEADERS)


def _address(here: Context, seen: Seen, request: Request) -> str:
    """Give the page's address for another device."""
    base = here.service.settings.checkout_base
    base = base or f"{request.url.scheme}://{request.url.netloc}/c"
    return f"{base}/{seen.payment.checkout_id}"


def _onward(request: Request, here: Context, selected: Selected) -> Response:
    payment, session = selected.payment, selected.session
    action = next_action_fields(payment, session, here.service.settings.checkout_base)
    if action["type"] == "redirect" and action["redirect"].get("method", "GET") == "GET":
        return RedirectResponse(action["redirect"]["url"], 303, HEADERS)
    return RedirectResponse(address_of(request, payment.checkout_id).here, 303, HEADERS)
