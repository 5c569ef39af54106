"""HTTP routes of the 2C2P emulator: merchant APIs, the buyer's page and the tester's switches."""

import base64
import html
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from payintent_sandbox.emulators.twoc2p import envelope, maintenance
from payintent_sandbox.emulators.twoc2p.cards import APPROVED, CARDS, IN_PROGRESS, WORDS
from payintent_sandbox.emulators.twoc2p.keys import public_pem, read_public
from payintent_sandbox.emulators.twoc2p.machine import TwoC2pEmulator
from payintent_sandbox.emulators.twoc2p.model import Account, Invoice, Order, RefusalError

BODY_BYTES_MAX = 64 * 1024
_PAGE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

Handler = Callable[["Gateway", Request, bytes], Awaitable[Response]]

#: The response for an invoice without a payment attempt. Unset fields are null.
_UNKNOWN_INVOICE: dict[str, Any] = {
    **dict.fromkeys(("merchantID", "invoiceNo", "amount", "currencyCode", "tranRef")),
    "respCode": "2002",
    "respDesc": WORDS["2002"],
}

_pages = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "pages"),
    autoescape=True,
    undefined=StrictUndefined,
)


class _Envelope(msgspec.Struct):
    payload: str


class _MerchantClaim(msgspec.Struct):
    merchantID: str  # noqa: N815 - the wire's name


class _Inquiry(msgspec.Struct):
    invoiceNo: str = ""  # noqa: N815 - the wire's name


class _Switch(msgspec.Struct):
    status: str


class _PortalRefund(msgspec.Struct):
    amount: str


class Gateway:
    """The state shared by all routes."""

    def __init__(
        self, emulator: TwoC2pEmulator, key: RSAPrivateKey, public_url: str | None
    ) -> None:
        self.emulator = emulator
        self.key = key
        self.public_url = public_url


def make_app(
    accounts: Sequence[Account],
    key: RSAPrivateKey,
    *,
    time_scale: float = 1.0,
    public_url: str | None = None,
) -> Starlette:
    """Build the emulator's application. Buyers use `public_url` if it is set."""
    gateway = Gateway(TwoC2pEmulator(accounts, time_scale), key, public_url)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with gateway.emulator.notifier.running():
            yield

    return Starlette(routes=_routes(gateway), lifespan=lifespan, max_body_size=BODY_BYTES_MAX)


def _routes(gateway: Gateway) -> list[Route]:
    def route(path: str, method: str, handler: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            return await _answer(gateway, request, handler)

        return Route(path, endpoint, methods=[method])

    return [
        route("/payment/4.3/paymentToken", "POST", _payment_token),
        route("/payment/4.3/paymentInquiry", "POST", _payment_inquiry),
        route("/PaymentAction/2.0/action", "POST", _action),
        route("/payment/4.3/token/{token}", "GET", _show_page),
        route("/payment/4.3/token/{token}", "POST", _pay),
        route("/_twoc2p/public-key", "GET", _show_key),
        route("/_twoc2p/refunds", "PUT", _set_refunds),
        route("/_twoc2p/{merchant_id}/{invoice_no}", "GET", _show_invoice),
        route("/_twoc2p/{merchant_id}/{invoice_no}/refunds", "POST", _refund_in_portal),
        route("/_twoc2p/{merchant_id}/{invoice_no}/refunds/{name}", "PUT", _settle_refund),
        route("/_twoc2p/{merchant_id}/{invoice_no}/code", "PUT", _report_code),
        route("/_twoc2p/{merchant_id}/{invoice_no}/chargeback", "PUT", _charge_back),
        route("/healthz", "GET", _healthz),
    ]


async def _answer(gateway: Gateway, request: Request, handler: Handler) -> Response:
    try:
        return await handler(gateway, request, await request.body())
    except RefusalError as refusal:
        fields = {"respCode": refusal.code, "respDesc": str(refusal)}
        return _signed(refusal.signed_for, fields) if refusal.signed_for else JSONResponse(fields)


async def _payment_token(gateway: Gateway, request: Request, body: bytes) -> Response:
    account, content = _opened(gateway, body)
    try:
        order = msgspec.json.decode(content, type=Order)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise RefusalError("9004", signed_for=account) from None
    pages_url = (gateway.public_url or str(request.base_url)).rstrip("/")
    invoice = gateway.emulator.order(account, order, pages_url)
    fields = {"webPaymentUrl": invoice.page_url, "paymentToken": invoice.token}
    return _signed(account, fields | {"respCode": APPROVED, "respDesc": WORDS[APPROVED]})


async def _payment_inquiry(gateway: Gateway, _: Request, body: bytes) -> Response:
    account, content = _opened(gateway, body)
    try:
        inquiry = msgspec.json.decode(content, type=_Inquiry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise RefusalError("9004", signed_for=account) from None
    invoice = gateway.emulator.find(account, inquiry.invoiceNo)
    if invoice is None or invoice.code is None:
        return _signed(account, _UNKNOWN_INVOICE)
    view = invoice.view()
    return _signed(account, view | {"amount": msgspec.Raw(view["amount"].encode())})


async def _action(gateway: Gateway, _: Request, body: bytes) -> Response:
    """Try every merchant's key, because the encrypted request does not name its merchant."""
    for account in gateway.emulator.accounts:
        if not account.merchant_public_key:
            continue
        key = read_public(account.merchant_public_key)
        try:
            content = envelope.unseal(body.decode(errors="replace"), key, gateway.key)
            answer = maintenance.act(gateway.emulator, account, content)
        except (envelope.InvalidEnvelopeError, ValueError):
            continue
        return PlainTextResponse(envelope.seal(answer, key, gateway.key))
    return PlainTextResponse("Unable to decrypt", status_code=400)


async def _show_page(gateway: Gateway, request: Request, _: bytes) -> Response:
    return _page(_paying(gateway, request))


async def _pay(gateway: Gateway, request: Request, body: bytes) -> Response:
    invoice = _paying(gateway, request)
    if invoice is None or not invoice.payable:
        return _page(invoice)
    if _field(body, "cancel"):
        gateway.emulator.give_up(invoice)
        return _page(invoice)
    card = CARDS.get(_field(body, "card").replace(" ", "").replace("-", ""))
    if card is None:
        return _page(invoice, error="This is not one of the test cards below.")
    gateway.emulator.pay(invoice, card)
    return _page(invoice)


async def _show_key(gateway: Gateway, _: Request, __: bytes) -> Response:
    return PlainTextResponse(public_pem(gateway.key))


async def _set_refunds(gateway: Gateway, _: Request, body: bytes) -> Response:
    gateway.emulator.refund_status = _status(body)
    return JSONResponse({})


async def _show_invoice(gateway: Gateway, request: Request, _: bytes) -> Response:
    invoice = _named(gateway, request)
    if invoice is None:
        return JSONResponse({"error": "no such invoice"}, status_code=404)
    names = [refund.name for refund in invoice.refunds]
    refunded = f"{invoice.refunded:.2f}"
    values = {
        "status": invoice.status,
        "code": invoice.code,
        "refunded": refunded,
        "refunds": names,
    }
    return JSONResponse(values)


async def _settle_refund(gateway: Gateway, request: Request, body: bytes) -> Response:
    invoice = _named(gateway, request)
    for refund in invoice.refunds if invoice else []:
        if refund.name == request.path_params["name"] and refund.status == "RP":
            refund.status = _status(body)
            return JSONResponse({})
    return JSONResponse({"error": "no such pending refund"}, status_code=404)


async def _refund_in_portal(gateway: Gateway, request: Request, body: bytes) -> Response:
    """Refund without the merchant's server, as a person in the merchant portal would."""
    invoice = _named(gateway, request)
    amount = msgspec.json.decode(body, type=_PortalRefund).amount
    if invoice is None or not maintenance.refund_in_portal(invoice, amount):
        return JSONResponse({"error": "the invoice cannot be refunded"}, status_code=409)
    return JSONResponse({})


async def _report_code(gateway: Gateway, request: Request, body: bytes) -> Response:
    invoice = _named(gateway, request)
    if invoice is None:
        return JSONResponse({"error": "no such invoice"}, status_code=404)
    gateway.emulator.report(invoice, msgspec.json.decode(body, type=_Switch).status)
    return JSONResponse({})


async def _charge_back(gateway: Gateway, request: Request, body: bytes) -> Response:
    invoice = _named(gateway, request)
    if invoice is None:
        return JSONResponse({"error": "no such invoice"}, status_code=404)
    gateway.emulator.charge_back(invoice, msgspec.json.decode(body, type=_Switch).status)
    return JSONResponse({})


async def _healthz(_: Gateway, __: Request, ___: bytes) -> Response:
    return JSONResponse({"status": "ok"})


def _opened(gateway: Gateway, body: bytes) -> tuple[Account, bytes]:
    """Find a request's merchant, and verify the request with the merchant's secret."""
    try:
        payload = msgspec.json.decode(body, type=_Envelope).payload
        claim = msgspec.json.decode(envelope.peek(payload), type=_MerchantClaim)
    except (msgspec.DecodeError, UnicodeDecodeError, envelope.InvalidEnvelopeError):
        raise RefusalError("9004") from None
    account = gateway.emulator.account(claim.merchantID)
    try:
        return account, envelope.verify(payload, account.secret_key)
    except envelope.InvalidEnvelopeError:
        raise RefusalError("9042") from None


def _signed(account: Account, fields: dict[str, Any]) -> Response:
    content = msgspec.json.encode(fields)
    return JSONResponse({"payload": envelope.sign(content, account.secret_key)})


def _paying(gateway: Gateway, request: Request) -> Invoice | None:
    return gateway.emulator.page(request.path_params["token"])


def _named(gateway: Gateway, request: Request) -> Invoice | None:
    account = gateway.emulator.account(request.path_params["merchant_id"])
    return gateway.emulator.find(account, request.path_params["invoice_no"])


def _status(body: bytes) -> str:
    status = msgspec.json.decode(body, type=_Switch).status
    if status not in {"RF", "RP", "RR"}:
        raise RefusalError("9004")
    return status


def _field(body: bytes, name: str) -> str:
    return parse_qs(body.decode(errors="replace"), max_num_fields=20).get(name, [""])[0]


def _page(invoice: Invoice | None, *, error: str = "") -> Response:
    if invoice is None:
        return HTMLResponse("no such payment", status_code=404, headers=_PAGE_HEADERS)
    order = invoice.order
    values: dict[str, Any] = {
        "order": order,
        "amount": f"{order.amount:f}",
        "description": html.unescape(order.description),  # merchants send it escaped
        "cards": CARDS.values(),
        "error": error,
        "result": WORDS.get(invoice.code, invoice.code)
        if invoice.code
        else "This payment has expired.",
        "response": _front(invoice),
    }
    name = "card.html" if invoice.payable else "result.html"
    text = _pages.get_template(name).render(values)
    return HTMLResponse(text, status_code=422 if error else 200, headers=_PAGE_HEADERS)


def _front(invoice: Invoice) -> str:
    """Encode the result for the buyer's browser as unsigned JSON in base64url."""
    code = IN_PROGRESS if invoice.code in {None, IN_PROGRESS} else "2000"
    fields = {"invoiceNo": invoice.order.invoiceNo, "channelCode": "CC", "respCode": code}
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()
