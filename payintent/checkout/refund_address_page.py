"""The page where a buyer enters the address for the refund of a deposit."""

from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payintent.checkout.context import CheckoutContext, get_checkout_context
from payintent.checkout.rendering import (
    HEADERS,
    common_fields,
    keep_linkable_urls,
    page_language,
    render_page,
    with_error_pages,
)
from payintent.checkout.static_files import page_style
from payintent.core.errors import ErrorCode, RefusedError
from payintent.core.languages import LOCALES
from payintent.evm.abi import parse_address, to_checksum_address
from payintent.http.middleware import content_security_policy
from payintent.http.pages.forms import read_form_fields
from payintent.refunds import address_store
from payintent.refunds.address_store import RefundAddressRequest
from payintent.refunds.destination import enter_buyer_address
from payintent.refunds.model import RefundStatus


@with_error_pages
async def get_refund_address(request: Request) -> Response:
    """`GET /c/refund/{code}`: the form, or the state of the refund."""
    context = get_checkout_context(request)
    return await _render(request, context, await _load(request, context))


@with_error_pages
async def post_refund_address(request: Request) -> Response:
    """`POST /c/refund/{code}`: set the address, or correct it once."""
    context = get_checkout_context(request)
    refund = await _load(request, context)
    address = "".join((await read_form_fields(request)).get("address", "").split())
    try:
        async with context.database.transaction() as tx:
            await enter_buyer_address(tx, refund.id, address)
    except RefusedError as refusal:
        if refusal.code not in {ErrorCode.BAD_REQUEST, ErrorCode.CONFLICT}:
            raise
        if refusal.code is ErrorCode.BAD_REQUEST:
            return await _render(request, context, refund, invalid_address=address)
    return RedirectResponse(_page_url(request), 303, HEADERS)  # the page shows the current state


async def _load(request: Request, context: CheckoutContext) -> RefundAddressRequest:
    """Load the refund that the code identifies; raise `CHECKOUT_NOT_FOUND` for an invalid code."""
    context.address_limiter.take_token(context.viewers.get_viewer_address(request))
    refund_id = context.refund_address_links.parse_code(request.path_params["code"])
    refund = refund_id and await address_store.get_request(context.database, refund_id)
    if not refund:
        raise RefusedError(ErrorCode.CHECKOUT_NOT_FOUND, "no such refund")
    return refund


async def _render(
    request: Request,
    context: CheckoutContext,
    refund: RefundAddressRequest,
    invalid_address: str | None = None,
) -> Response:
    merchant = (await context.merchants.get(refund.merchant_id)).merchant
    language = page_language(request, merchant.locale)
    style = page_style(merchant.accent_colour)
    fields: dict[str, Any] = common_fields(language) | {
        "title": f"{language.t('refund_address')} · {merchant.name}",
        "merchant": keep_linkable_urls(merchant),
        "amount": language.money(refund.amount, refund.token),
        "chain": refund.chain_name,
        "address": refund.destination and _format_address(refund.destination),
        "is_done": refund.status is RefundStatus.SUCCEEDED,
        "has_failed": refund.status is RefundStatus.FAILED,
        "can_enter": refund.can_enter,
        "invalid_address": invalid_address,
        "style": style,
        "transaction": refund.reference,
        "page_url": _page_url(request),
    }
    policy = content_security_policy(styles=[style.csp_source])
    return render_page(
        request, "refund_address.html", fields, policy, 200 if invalid_address is None else 400
    )


def _page_url(request: Request) -> str:
    """Return the page's URL, preserving a valid `lang` parameter."""
    path, locale = request.url.path, request.query_params.get("lang")
    return f"{path}?{urlencode({'lang': locale})}" if locale in LOCALES else path


def _format_address(destination: str) -> str:
    return to_checksum_address(parse_address(destination))
