"""The hosted checkout page: complete without JavaScript, forms and links only."""

from collections.abc import Awaitable, Callable
from functools import wraps
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payintent.api import checkout, shapes
from payintent.api.body import read_raw
from payintent.api.card_step import card_step
from payintent.api.context import Context, context
from payintent.api.errors import RETRY_AFTER_S, status_of
from payintent.api.wallet_step import wallet_step
from payintent.domain.errors import Code, LockTimeout, Refused, StorageDown
from payintent.domain.fraud import Denied
from payintent.domain.market import COUNTRIES, COUNTRY_NAMES
from payintent.lifecycle.select_quote import Selected, Selection, origin
from payintent.lifecycle.views import next_action_fields, offer_fields
from payintent.log import get
from payintent.storage import sessions
from payintent.storage.payments import Seen

Handler = Callable[[Request], Awaitable[Response]]

_log = get("page")
_templates = Environment(
    loader=PackageLoader("payintent", "web"), autoescape=True, undefined=StrictUndefined
)
_FORM_BYTES_MAX = 16 * 1024
_FORM_FIELDS_MAX = 20
_STATIC = {
    "checkout.css": "text/css",
    "card.js": "text/javascript",
    "onchain.js": "text/javascript",
    "wallet.js": "text/javascript",
} | {f"flags/{country.lower()}.svg": "image/svg+xml" for country in COUNTRIES}
_STATIC_HEADERS = {
    "Cache-Control": "public, max-age=3600",
    "Content-Security-Policy": "default-src 'none'",  # an image that is opened is a document
    "X-Content-Type-Options": "nosniff",
}
_HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
}
_CSP = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'self'{gateway}{script}"
)


def _for_people(handler: Handler) -> Handler:
    """Answer a refusal with a page: whoever opens these addresses is a person."""

    @wraps(handler)
    async def answered(request: Request) -> Response:
        try:
            return await handler(request)
        except Refused as refused:
            answer = _sorry(refused.message, status_of(refused))
            if refused.retry_after_s is not None:
                answer.headers["Retry-After"] = str(refused.retry_after_s)
            return answer
        except Denied:
            return _sorry("it was stopped by fraud screening", 200)
        except StorageDown as down:
            _log.warning("storage_down", why=str(down))
            return _later("we cannot be reached just now", 503)
        except LockTimeout:
            return _later("something else is happening to it just now", 409)

    return answered


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
        selected = await checkout.select(here, seen, request, await _chosen(here, form, request))
    except Refused as refused:
        return await _page(
            request, here, await checkout.again(request), refused, form.get("country")
        )
    return _onward(here, seen, selected)


@_for_people
async def cancel(request: Request) -> Response:
    """`POST /c/{checkout_id}/cancel`: the buyer gives up."""
    here = context(request)
    seen = await checkout.read(request)
    try:
        await checkout.cancel_checkout(here, seen)
    except Refused as refused:
        return await _page(request, here, await checkout.again(request), refused)
    return _back_to(here, seen)


@_for_people
async def returned(request: Request) -> Response:
    """`GET` and `POST /c/{checkout_id}/return`: the gateway sends the buyer back here.

    Nothing that comes along is believed: the janitor is told to ask the provider at once.
    """
    here = context(request)
    seen = await checkout.read(request)
    if seen.session is not None:
        await sessions.ask_now(here.service.database, seen.session.id)
    return _back_to(here, seen)


async def static(request: Request) -> Response:
    """`GET /c/static/{name}`: the page's own files, and the countries' flags."""
    name: str = request.path_params["name"]
    if name not in _STATIC:
        raise Refused(Code.NOT_FOUND, "no such file")
    content = (resources.files("payintent") / "web" / name).read_bytes()
    return Response(content, 200, _STATIC_HEADERS, _STATIC[name])


def _later(message: str, status: int) -> Response:
    answer = _sorry(f"{message}; please try again in a moment", status)
    answer.headers["Retry-After"] = str(RETRY_AFTER_S)
    return answer


def _sorry(message: str, status: int) -> Response:
    html = _templates.get_template("sorry.html").render(message=message)
    headers = _HEADERS | {"Content-Security-Policy": _CSP.format(gateway="", script="")}
    return Response(html, status, headers, "text/html")


async def _form(request: Request) -> dict[str, str]:
    raw = await read_raw(request, _FORM_BYTES_MAX)
    try:
        fields = parse_qsl(raw.decode(), max_num_fields=_FORM_FIELDS_MAX)
    except ValueError as error:
        raise Refused(Code.BAD_REQUEST, "the form cannot be read") from error
    return {name: value.strip() for name, value in fields if value.strip()}


async def _chosen(here: Context, form: dict[str, str], request: Request) -> Selection:
    method = form.get("payment_method_id", "")
    if not (method.isascii() and method.isdecimal()) or len(method) > 18:  # noqa: PLR2004
        raise Refused(Code.PAYMENT_METHOD_NOT_FOUND, "please choose a way to pay")
    shapes.check_email(form.get("payer_email"))
    return Selection(
        payment_method_id=int(method),
        country=form.get("country"),
        viewer_country=here.edge.viewer_country(request),
        restrictions=await here.service.policies.restrictions(),
        currency=form.get("currency"),
        payer_email=form.get("payer_email"),
        expected_total_amount=form.get("expected_total_amount"),
    )


def _back_to(here: Context, seen: Seen) -> Response:
    base = here.service.settings.checkout_base or "/c"
    return RedirectResponse(f"{base}/{seen.payment.checkout_id}", 303, _HEADERS)


def _onward(here: Context, seen: Seen, selected: Selected) -> Response:
    base = here.service.settings.checkout_base
    action = next_action_fields(selected.payment, selected.session, base)
    if action["type"] == "redirect" and action["redirect"]["method"] == "GET":
        return RedirectResponse(action["redirect"]["url"], 303, _HEADERS)
    return _back_to(here, seen)


async def _page(
    request: Request,
    here: Context,
    seen: Seen,
    refused: Refused | None = None,
    country: str | None = None,
) -> Response:
    view = await checkout.view(here, seen)
    country = country or request.query_params.get("country")
    chosen = country if country in COUNTRIES else None
    offered: list[dict[str, Any]] = []
    place = ""
    gateways: set[str] = set()
    if view["can"]["select"]:
        quotes = await checkout.quotes(here, seen, request, chosen, None)
        place = quotes.place.country
        offered = [offer_fields(offer) for offer in quotes.offers]
        gateways = await _origins(here, {offer.account_id for offer in quotes.offers})
    wallet = await wallet_step(here, view["next_action"])
    card = card_step(view["next_action"])
    html = _templates.get_template("checkout.html").render(
        view=view,
        wallet=wallet,
        card=card,
        quotes=offered,
        country=place,
        chosen=chosen,
        countries=sorted(COUNTRY_NAMES.items(), key=lambda item: item[1]),
        problem=refused.message if refused else None,
    )
    gateways |= _posts_to(view["next_action"])
    gateway = "".join(f" {one}" for one in sorted(gateways))
    step = wallet or card
    policy = _CSP.format(gateway=gateway, script=step.policy if step else "")
    headers = _HEADERS | {"Content-Security-Policy": policy}
    return Response(html, status_of(refused) if refused else 200, headers, "text/html")


def _posts_to(action: dict[str, Any]) -> set[str]:
    """Name where the buyer's next step posts a form, if it does."""
    redirect: dict[str, Any] = action.get("redirect", {})
    return {origin(redirect["url"])} if redirect.get("method") == "POST" else set()


async def _origins(here: Context, account_ids: set[int]) -> set[str]:
    """Name where a form may lead: a browser blocks a redirect to any other origin, silently."""
    opened = [await here.service.accounts.open(account_id) for account_id in account_ids]
    return {origin(account.page_url) for account in opened if account is not None} - {""}
