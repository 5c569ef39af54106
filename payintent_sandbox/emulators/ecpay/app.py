"""HTTP routes of the ECPay emulator: the buyer's page, the merchant API and the tester's view."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from payintent_sandbox.emulators.ecpay import credit
from payintent_sandbox.emulators.ecpay.cards import CARDS, offered_cards
from payintent_sandbox.emulators.ecpay.machine import EcpayEmulator
from payintent_sandbox.emulators.ecpay.model import Account, RefusalError, Trade
from payintent_sandbox.emulators.ecpay.notices import result

BODY_BYTES_MAX = 64 * 1024
FIELDS_MAX = 100
_FORM = "application/x-www-form-urlencoded"
_PAGE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

Handler = Callable[[EcpayEmulator, Request, dict[str, str]], Awaitable[Response]]

_pages = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "pages"),
    autoescape=True,
    undefined=StrictUndefined,
)


def make_app(accounts: Sequence[Account], *, time_scale: float = 1.0) -> Starlette:
    """Build the emulator's HTTP application."""
    emulator = EcpayEmulator(accounts, time_scale)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with emulator.notifier.running():
            yield

    return Starlette(routes=_routes(emulator), lifespan=lifespan, max_body_size=BODY_BYTES_MAX)


def _routes(emulator: EcpayEmulator) -> list[Route]:
    def route(path: str, method: str, handler: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                return await handler(emulator, request, await _fields(request))
            except RefusalError as refusal:
                return PlainTextResponse(f"{refusal.code}|{refusal.message}")

        return Route(path, endpoint, methods=[method])

    return [
        route("/Cashier/AioCheckOut/V5", "POST", _check_out),
        route("/Cashier/QueryTradeInfo/V5", "POST", _inquire),
        route("/CreditDetail/DoAction", "POST", _act),
        route("/CreditDetail/QueryTrade/V2", "POST", _detail),
        route("/pay/{page_id}", "POST", _pay),
        route("/_ecpay/trades/{trade_no}", "GET", _show_trade),
        route("/_ecpay/trades/{trade_no}/close", "POST", _close_day),
        route("/_ecpay/log", "GET", _show_log),
        route("/healthz", "GET", _healthz),
    ]


async def _check_out(emulator: EcpayEmulator, _: Request, fields: dict[str, str]) -> Response:
    try:
        trade = emulator.open(fields)
    except RefusalError as refusal:
        return _page("refused.html", code=refusal.code, message=refusal.message)
    return _card_page(trade)


async def _pay(emulator: EcpayEmulator, request: Request, fields: dict[str, str]) -> Response:
    trade = emulator.page(request.path_params["page_id"])
    if trade is None:
        return _page("refused.html", status=404, code="10200047", message="no such trade")
    card = CARDS.get(fields.get("card", "").replace(" ", "").replace("-", ""))
    if card is None or card not in offered_cards(trade.order):
        return _card_page(trade, error="This is not one of the test cards below.", status=422)
    outcome = emulator.pay(trade, card)
    if outcome is None:
        return _page("refused.html", code="10300028", message="The trade allows only one attempt.")
    return _outcome_page(trade, *outcome, returns=not card.union_pay)


async def _inquire(emulator: EcpayEmulator, _: Request, fields: dict[str, str]) -> Response:
    return Response(urlencode(emulator.inquire(fields)), media_type=_FORM)


async def _act(emulator: EcpayEmulator, _: Request, fields: dict[str, str]) -> Response:
    return Response(urlencode(emulator.act(fields)), media_type=_FORM)


async def _detail(emulator: EcpayEmulator, _: Request, fields: dict[str, str]) -> Response:
    return JSONResponse(emulator.detail(fields))


async def _show_trade(emulator: EcpayEmulator, request: Request, _: dict[str, str]) -> Response:
    trade = emulator.by_trade_no(request.path_params["trade_no"])
    if trade is None:
        return JSONResponse({"error": "no such trade"}, 404)
    paid = trade.credit
    values: dict[str, int | str] = (
        {"given_back": paid.given_back, "closing": paid.status.value} if paid else {}
    )
    values["merchant_trade_no"] = trade.order["MerchantTradeNo"]
    return JSONResponse({"status": trade.status.value, "amount": trade.amount} | values)


async def _close_day(emulator: EcpayEmulator, request: Request, _: dict[str, str]) -> Response:
    trade = emulator.by_trade_no(request.path_params["trade_no"])
    if trade is None or trade.credit is None:
        return JSONResponse({"error": "no such payment"}, 404)
    credit.close_day(trade.credit)
    return JSONResponse({"closing": trade.credit.status.value})


async def _show_log(emulator: EcpayEmulator, _: Request, __: dict[str, str]) -> Response:
    return JSONResponse(list(emulator.notices.log))


async def _healthz(_: EcpayEmulator, __: Request, ___: dict[str, str]) -> Response:
    return JSONResponse({"status": "ok"})


async def _fields(request: Request) -> dict[str, str]:
    if request.method == "GET":
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip() != _FORM:
        raise RefusalError("10200001", "Content-Type Error")
    try:
        text = (await request.body()).decode()
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError:
        raise RefusalError("10200001", "the form cannot be read") from None
    if len({name for name, _ in pairs}) < len(pairs):
        raise RefusalError("10200001", "a parameter occurs twice")
    return dict(pairs)


def _card_page(trade: Trade, *, error: str = "", status: int = 200) -> Response:
    cards, link = offered_cards(trade.order), trade.order.get("ClientBackURL", "")
    return _page("card.html", status=status, trade=trade, cards=cards, error=error, link=link)


def _outcome_page(trade: Trade, code: str, message: str, *, returns: bool) -> Response:
    """Send the buyer back with a POST to `OrderResultURL`, or show a link if the order has none.

    A UnionPay buyer gets only the link, because `OrderResultURL` does not apply to UnionPay.
    """
    back = trade.order.get("OrderResultURL", "") if returns else ""
    fields = result(trade, code, message) if back else {}
    link = trade.order.get("ClientBackURL", "")
    return _page("outcome.html", code=code, message=message, back=back, fields=fields, link=link)


def _page(name: str, *, status: int = 200, **values: object) -> Response:
    text = _pages.get_template(name).render(values)
    return HTMLResponse(text, status_code=status, headers=_PAGE_HEADERS)
