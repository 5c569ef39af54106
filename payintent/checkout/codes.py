"""QR codes for a checkout, and links that open its page in a wallet's browser."""

from io import BytesIO

import segno
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payintent.checkout.context import get_checkout_context
from payintent.checkout.fields import next_action_fields
from payintent.checkout.page_fields import read_page_url
from payintent.checkout.rendering import HEADERS, with_error_pages
from payintent.checkout.steps import DepositStep, wallet_step
from payintent.checkout.visits import CheckoutVisit, checkout_route
from payintent.core.errors import ErrorCode, RefusedError
from payintent.db.database import get_current_time
from payintent.payments import sessions_store as session_store
from payintent.payments import store as payment_store


@with_error_pages
@checkout_route
async def get_page_qr(visit: CheckoutVisit) -> Response:
    return qr_response(full_page_url(visit))


@with_error_pages
@checkout_route
async def get_wallet_qr(visit: CheckoutVisit) -> Response:
    """`GET /c/{checkout_id}/wallet.svg`: a QR code of the EIP-681 payment request."""
    action = next_action_fields(visit.payment, visit.snapshot.session, visit.context.urls)
    step = await wallet_step(visit.context, action)
    links: dict[str, str] = step.session["links"] if step and step.accepts_payment else {}
    if "eip681" not in links:
        raise RefusedError(ErrorCode.CHECKOUT_NOT_FOUND, "no payment request for a wallet")
    return qr_response(links["eip681"])


@with_error_pages
@checkout_route
async def get_address_qr(visit: CheckoutVisit) -> Response:
    """`GET /c/{checkout_id}/address.svg`: a QR code of the bare deposit address."""
    action = next_action_fields(visit.payment, visit.snapshot.session, visit.context.urls)
    step = await wallet_step(visit.context, action)
    if not isinstance(step, DepositStep) or not step.accepts_payment:
        raise RefusedError(ErrorCode.CHECKOUT_NOT_FOUND, "no deposit address to pay to")
    return qr_response(step.session["deposit_address"])


@with_error_pages
async def get_wallet_handoff(request: Request) -> Response:
    """`GET /c/wallet/open/{code}`: redirect a wallet's browser to the checkout page."""
    context = get_checkout_context(request)
    context.address_limiter.take_token(context.viewers.get_viewer_address(request))
    now = await get_current_time(context.database)
    session_id = context.wallet_handoff.parse_code(request.path_params["code"], now)
    session = await session_store.get(context.database, session_id) if session_id else None
    snapshot = await payment_store.get(context.database, session.payment_id) if session else None
    if snapshot is None:
        raise RefusedError(ErrorCode.CHECKOUT_NOT_FOUND, "this link has expired")
    url = read_page_url(request, snapshot.payment.checkout_id)
    return RedirectResponse(url.current, 303, HEADERS)


def full_page_url(visit: CheckoutVisit) -> str:
    url = visit.request.url
    base = visit.context.settings.checkout_base or f"{url.scheme}://{url.netloc}/c"
    return f"{base}/{visit.payment.checkout_id}"


def qr_response(text: str) -> Response:
    svg = BytesIO()
    code = segno.make(text, error="m")
    code.save(svg, kind="svg", border=2, dark="#000", light="#fff", xmldecl=False)
    headers = {**HEADERS, "Content-Security-Policy": "default-src 'none'"}
    return Response(svg.getvalue(), 200, headers, "image/svg+xml")
