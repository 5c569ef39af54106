"""The Stripe emulator's HTTP application: localstripe with our middleware and routes."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from localstripe import server, webhooks

from payintent_sandbox.emulators.stripe.balance import Balance
from payintent_sandbox.emulators.stripe.dashboard import Dashboard
from payintent_sandbox.emulators.stripe.disputes import Disputes
from payintent_sandbox.emulators.stripe.element import Element
from payintent_sandbox.emulators.stripe.events import Endpoint, Events
from payintent_sandbox.emulators.stripe.front import ApiFront, keep_in_memory, read_secret
from payintent_sandbox.emulators.stripe.model import CARDS, AccountRecords, Json, Keys, RefusalError

#: The events that localstripe signs and sends itself; `Events` sends the rest.
_LOCALSTRIPES = ["payment_intent.succeeded", "payment_intent.payment_failed"]
_PAGES = Path(__file__).parent / "pages"
_FILES = {
    "/element/v3.js": ("element.js", "text/javascript"),
    "/element/frame": ("frame.html", "text/html"),
    "/element/frame.js": ("frame.js", "text/javascript"),
}
_FILE_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
}
_TIMEOUT_S = 10

Answering = Callable[[web.Request], Awaitable[Json]]


class StripeEmulator:
    """The parts of the emulator. `url` is its own URL, and `endpoint` receives the events."""

    def __init__(self, accounts: tuple[Keys, ...], url: str, endpoint: Endpoint | None) -> None:
        records = AccountRecords(accounts)
        self.events = Events()
        self.element = Element(records, self.events, url)
        self.disputes = Disputes(self.events)
        self.balance = Balance(records, self.disputes)
        self.front = ApiFront(records, self.events, self.disputes)
        self.dashboard = Dashboard(records, self.events, self.disputes)
        if endpoint is not None:
            self._set_endpoint(endpoint)

    async def run(self, _: web.Application) -> AsyncGenerator[None]:
        """Keep the connections open while the application runs."""
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as self.element.http,
            self.events.notifier.running(),
        ):
            yield

    async def healthz(self, _: web.Request) -> Json:
        """Respond to a liveness probe."""
        return {"status": "ok"}

    async def cards(self, _: web.Request) -> Json:
        """List the test cards with their numbers."""
        return {"data": [{"number": card.number, "label": card.label} for card in CARDS.values()]}

    async def retrieve(self, request: web.Request) -> Json:
        """Respond to the element's `retrievePaymentIntent` call."""
        query = request.query
        return await self.element.retrieve(query.get("key", ""), query.get("client_secret", ""))

    async def confirm(self, request: web.Request) -> Json:
        """Pay with a card number, as the element's button does."""
        fields = await _read_fields(request)
        return await self.element.confirm(fields["key"], fields["client_secret"], fields["number"])

    async def authenticate(self, request: web.Request) -> Json:
        """Finish 3-D Secure, as the two buttons on its page do."""
        fields = await _read_fields(request)
        return await self.element.authenticate(
            fields["key"], fields["client_secret"], success=fields["success"] == "true"
        )

    async def leave(self, request: web.Request) -> Json:
        """Leave a bank's or wallet's page without paying."""
        fields = await _read_fields(request)
        return await self.element.leave(fields["key"], fields["client_secret"])

    async def set_webhook(self, request: web.Request) -> Json:
        """Set the endpoint that receives events."""
        fields = await _read_fields(request)
        self._set_endpoint(Endpoint(fields["url"], fields["secret"]))
        return {"url": fields["url"]}

    async def decide(self, request: web.Request) -> Json:
        """Decide a pending refund, as the buyer's bank does."""
        fields = await _read_fields(request)
        return self.front.decide(request.match_info["id"], fields["status"])

    async def dispute(self, request: web.Request) -> Json:
        """Dispute a payment, as a buyer's bank does."""
        return self.disputes.open(await _read_fields(request))

    async def decide_dispute(self, request: web.Request) -> Json:
        """Decide a dispute, as the bank does."""
        fields = await _read_fields(request)
        return self.disputes.decide(request.match_info["id"], fields["status"])

    async def refund_outside(self, request: web.Request) -> Json:
        """Refund a payment in the Dashboard."""
        return self.dashboard.refund(request.match_info["id"], await _read_fields(request))

    async def cancel_outside(self, request: web.Request) -> Json:
        """Cancel a payment intent in the Dashboard."""
        return self.dashboard.cancel(request.match_info["id"], await _read_fields(request))

    async def warn_of_fraud(self, request: web.Request) -> Json:
        """Report fraud, as a card's issuer does."""
        return self.dashboard.warn_of_fraud(await _read_fields(request))

    def balance_transactions(self, request: web.Request) -> Json:
        """List the movements of an account's balance."""
        return self.balance.list_transactions(read_secret(request), dict(request.query))

    async def pay_out(self, request: web.Request) -> Json:
        """Pay out an account's balance, as Stripe does daily."""
        fields = await _read_fields(request)
        return self.balance.pay_out(fields["secret_key"], fields["currency"])

    async def fail_payout(self, request: web.Request) -> Json:
        """Fail a payout."""
        return self.balance.fail(request.match_info["id"])

    def _set_endpoint(self, endpoint: Endpoint) -> None:
        self.events.endpoint = endpoint
        register = cast("Callable[..., None]", webhooks.register_webhook)  # pyright: ignore[reportUnknownMemberType]
        register("sandbox", endpoint.url, endpoint.secret, _LOCALSTRIPES)


def make_app(emulator: StripeEmulator) -> web.Application:
    """Add the emulator to localstripe's application.

    Call it only once per process, because localstripe's store is global.
    """
    keep_in_memory()
    app = server.app
    for path, (name, kind) in _FILES.items():
        app.router.add_get(path, _file_handler(name, kind))
    app.router.add_get("/healthz", _json_handler(emulator.healthz))
    app.router.add_get("/element/cards", _json_handler(emulator.cards))
    app.router.add_get("/element/intent", _json_handler(emulator.retrieve))
    app.router.add_post("/element/confirm", _json_handler(emulator.confirm))
    app.router.add_post("/element/authenticate", _json_handler(emulator.authenticate))
    app.router.add_post("/element/leave", _json_handler(emulator.leave))
    app.router.add_put("/_sandbox/webhook", _json_handler(emulator.set_webhook))
    app.router.add_post("/_sandbox/refunds/{id}", _json_handler(emulator.decide))
    app.router.add_post("/_sandbox/payouts", _json_handler(emulator.pay_out))
    app.router.add_post("/_sandbox/payouts/{id}/fail", _json_handler(emulator.fail_payout))
    app.router.add_post("/_sandbox/intents/{id}/refund", _json_handler(emulator.refund_outside))
    app.router.add_post("/_sandbox/intents/{id}/cancel", _json_handler(emulator.cancel_outside))
    app.router.add_post("/_sandbox/fraud_warnings", _json_handler(emulator.warn_of_fraud))
    app.router.add_post("/_sandbox/disputes", _json_handler(emulator.dispute))
    app.router.add_post("/_sandbox/disputes/{id}", _json_handler(emulator.decide_dispute))
    app.middlewares.insert(0, _outermost(emulator))
    app.cleanup_ctx.append(emulator.run)
    return app


def _outermost(emulator: StripeEmulator) -> Middleware:
    @web.middleware
    async def outermost(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.path == "/v1/balance_transactions":  # localstripe uses an older format
                return web.json_response(emulator.balance_transactions(request))
            if request.path.startswith(("/v1/", "/_config/")):
                return await emulator.front.pass_on(request, handler)
            return await request.match_info.handler(request)  # localstripe checks keys on all paths
        except RefusalError as refusal:
            return web.json_response({"error": refusal.error}, status=refusal.status)

    return outermost


def _json_handler(answer: Answering) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response(await answer(request))

    return handler


def _file_handler(name: str, kind: str) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        text = (_PAGES / name).read_text()
        return web.Response(text=text, content_type=kind, headers=_FILE_HEADERS)

    return handler


class _Fields(dict[str, str]):
    """The fields of a request; a missing field causes a 400 response."""

    def __missing__(self, name: str) -> str:
        raise RefusalError(400, f"Missing required param: {name}.", param=name)


async def _read_fields(request: web.Request) -> dict[str, str]:
    try:
        body: Any = await request.json()
        return _Fields((str(name), str(value)) for name, value in body.items())
    except (ValueError, AttributeError):
        raise RefusalError(400, "the body must be a JSON object") from None
