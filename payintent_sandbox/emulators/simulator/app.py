"""HTTP routes of the simulator: the merchant API, the buyer pages and the tester controls."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from payintent_sandbox.emulators.simulator.cards import CARDS
from payintent_sandbox.emulators.simulator.machine import SimulatorEmulator
from payintent_sandbox.emulators.simulator.model import (
    Account,
    Order,
    Refund,
    RefundOrder,
    RefusalError,
    Session,
    Status,
    amount_text,
)
from payintent_sandbox.emulators.simulator.refunds import Settled
from payintent_sandbox.emulators.simulator.rules import Operation

BODY_BYTES_MAX = 64 * 1024
_NO_SESSION = "no such session"
_PAGE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

T = TypeVar("T")
Handler = Callable[[SimulatorEmulator, Request, bytes], Awaitable[Response]]

_pages = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "pages"),
    autoescape=True,
    undefined=StrictUndefined,
)


def make_app(
    accounts: Sequence[Account], *, time_scale: float = 1.0, public_url: str | None = None
) -> Starlette:
    """Build the simulator's application. Buyers use `public_url` if it is set."""
    emulator = SimulatorEmulator(accounts, time_scale)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with emulator.notifier.running():
            yield

    app = Starlette(
        routes=_routes(emulator),
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_error},
        max_body_size=BODY_BYTES_MAX,
    )
    app.state.public_url = public_url
    return app


def _routes(emulator: SimulatorEmulator) -> list[Route]:
    def route(path: str, method: str, handler: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            return await _answer(emulator, request, handler)

        return Route(path, endpoint, methods=[method])

    return [
        route("/v1/sessions", "POST", _create),
        route("/v1/sessions/{name}", "GET", _inquire),
        route("/v1/sessions/{name}/cancel", "POST", _cancel),
        route("/v1/refunds", "POST", _refund),
        route("/v1/refunds/{name}", "GET", _inquire_refund),
        route("/pay/{id}", "GET", _show_page),
        route("/pay/{id}", "POST", _pay),
        route("/pay/{id}/cancel", "POST", _give_up),
        route("/pay/{id}/challenge", "POST", _answer_challenge),
        route("/_sim/rules", "PUT", _put_rules),
        route("/_sim/log", "GET", _show_log),
        route("/_sim/refunds/{name}", "POST", _settle_refund),
        route("/healthz", "GET", _healthz),
    ]


async def _answer(emulator: SimulatorEmulator, request: Request, handler: Handler) -> Response:
    body = await request.body()
    path = request.url.path
    logged = path.startswith(("/v1/", "/pay/"))
    entry = emulator.journal.add_request(request.method, path, body) if logged else {}
    try:
        response = await handler(emulator, request, body)
    except RefusalError as refusal:
        response = _error(refusal.status, refusal.reason)
    entry["status"] = response.status_code
    return response


async def _create(emulator: SimulatorEmulator, request: Request, body: bytes) -> Response:
    account, order = _account(emulator, request), _decoded(body, Order)
    fault = emulator.rules.action(Operation.CREATE, (order.reference,), order)
    if fault == "503":
        raise RefusalError(503, "failed because of a rule")
    session, new = emulator.create(account, order, _pages_url(request))
    if fault == "hang35s":
        await emulator.hang()
    if fault == "callback_before_response":
        await emulator.pay_before_answer(session)
    if fault == "bad_json":
        return Response(b'{"id": "ps_', media_type="application/json")
    return _view(session, 201 if new else 200)


async def _inquire(emulator: SimulatorEmulator, request: Request, _: bytes) -> Response:
    account, name = _account(emulator, request), request.path_params["name"]
    session = emulator.find(account, name)
    fault = emulator.rules.action(Operation.INQUIRE, *_facts(session, name))
    if fault == "503_inquiry":
        raise RefusalError(503, "failed because of a rule")
    if fault == "hang_inquiry":
        await emulator.hang()
        session = emulator.find(account, name)
    if session is None:
        raise RefusalError(404, _NO_SESSION)
    return _view(session, 200)


async def _cancel(emulator: SimulatorEmulator, request: Request, _: bytes) -> Response:
    account, name = _account(emulator, request), request.path_params["name"]
    session = emulator.find(account, name)
    if emulator.rules.action(Operation.CANCEL, *_facts(session, name)):
        raise RefusalError(503, "failed because of a rule")
    if session is None:
        raise RefusalError(404, _NO_SESSION)
    return _view(session, 200 if emulator.close(session) else 409)


async def _refund(emulator: SimulatorEmulator, request: Request, body: bytes) -> Response:
    account, order = _account(emulator, request), _decoded(body, RefundOrder)
    session = emulator.captured(account, order.capture)
    fault = emulator.rules.action(Operation.REFUND, *_facts(session, order.reference))
    if fault == "503_refund":
        raise RefusalError(503, "failed because of a rule")
    refund, new = emulator.refunds.create(
        account, order, session, is_mended=fault == "refunds_work"
    )
    if fault == "hang_refund":
        await emulator.hang()
    return _refund_view(refund, 201 if new else 200)


async def _inquire_refund(emulator: SimulatorEmulator, request: Request, _: bytes) -> Response:
    account, name = _account(emulator, request), request.path_params["name"]
    refund = emulator.refunds.find(account, name)
    session = emulator.captured(account, refund.order.capture) if refund else None
    if emulator.rules.action(Operation.INQUIRE_REFUND, *_facts(session, name)):
        raise RefusalError(503, "failed because of a rule")
    if refund is None:
        raise RefusalError(404, "no such refund")
    return _refund_view(refund, 200)


async def _show_page(emulator: SimulatorEmulator, request: Request, _: bytes) -> Response:
    return _page(_paying(emulator, request))


async def _pay(emulator: SimulatorEmulator, request: Request, body: bytes) -> Response:
    session = _paying(emulator, request)
    if session.card is None:
        card = CARDS.get(_field(body, "card").replace(" ", "").replace("-", ""))
        if card is None:
            return _page(session, error="This is not one of the test cards below.", status=422)
        if not emulator.pay(session, card):
            return _page(session, status=409)
    # A repeated submission does not pay again, and redirects to the same page.
    challenged = session.status is Status.AUTHORISING
    return _see_other(session.pay_url if challenged else session.order.return_url)


async def _give_up(emulator: SimulatorEmulator, request: Request, _: bytes) -> Response:
    session = _paying(emulator, request)
    if not emulator.give_up(session):
        return _page(session, status=409)
    return _see_other(session.order.return_url)


async def _answer_challenge(emulator: SimulatorEmulator, request: Request, body: bytes) -> Response:
    session = _paying(emulator, request)
    result = _field(body, "result")
    if result not in {"approve", "fail"}:
        raise RefusalError(422, "result must be approve or fail")
    if not emulator.answer_challenge(session, approved=result == "approve"):
        return _page(session, status=409)
    return _see_other(session.order.return_url)


async def _put_rules(emulator: SimulatorEmulator, _: Request, body: bytes) -> Response:
    return JSONResponse(msgspec.to_builtins(emulator.rules.replace(body)))


async def _settle_refund(emulator: SimulatorEmulator, request: Request, body: bytes) -> Response:
    """Decide a pending refund now: `{"status": "succeeded"}` or `{"status": "refused"}`."""
    settled = _decoded(body, Settled)
    return _refund_view(emulator.refunds.settle(request.path_params["name"], settled), 200)


async def _show_log(emulator: SimulatorEmulator, _: Request, __: bytes) -> Response:
    return JSONResponse(emulator.journal.entries())


async def _healthz(_: SimulatorEmulator, __: Request, ___: bytes) -> Response:
    return JSONResponse({"status": "ok"})


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered only for this class
    return _error(error.status_code, error.detail)


def _account(emulator: SimulatorEmulator, request: Request) -> Account:
    return emulator.account(request.headers.get("authorization", ""))


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusalError(400, str(error)) from None


def _facts(session: Session | None, name: str) -> tuple[tuple[str, ...], Order | None]:
    return ((name, session.order.reference), session.order) if session else ((name,), None)


def _paying(emulator: SimulatorEmulator, request: Request) -> Session:
    session = emulator.page(request.path_params["id"])
    if emulator.rules.action(Operation.PAGE, *_facts(session, "")):
        raise RefusalError(500, "failed because of a rule")
    return session


def _pages_url(request: Request) -> str:
    public_url: str | None = request.app.state.public_url
    return (public_url or str(request.base_url)).rstrip("/")


def _field(body: bytes, name: str) -> str:
    try:
        fields = parse_qs(body.decode(), max_num_fields=20)
    except ValueError:
        raise RefusalError(400, "the form cannot be read") from None
    return fields.get(name, [""])[0]


def _page(session: Session, *, error: str = "", status: int = 200) -> Response:
    name = "state.html"
    if session.payable:
        name = "card.html"
    elif session.status is Status.AUTHORISING:
        name = "challenge.html"
    order = session.order
    values: dict[str, Any] = {
        "session": session,
        "order": order,
        "amount": amount_text(order.amount_minor, order.currency),
        "cards": CARDS.values(),
        "error": error,
    }
    text = _pages.get_template(name).render(values)
    return HTMLResponse(text, status_code=status, headers=_PAGE_HEADERS)


def _view(session: Session, status: int) -> Response:
    return JSONResponse(session.view(), status_code=status)


def _refund_view(refund: Refund, status: int) -> Response:
    return JSONResponse(refund.view(), status_code=status)


def _see_other(url: str) -> Response:
    return RedirectResponse(url, status_code=303, headers={"cache-control": "no-store"})


def _error(status: int, reason: str) -> Response:
    return JSONResponse({"error": reason}, status_code=status)
