"""The sandbox's Stripe over HTTP: localstripe's application, with ours before and beside it."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from localstripe import server, webhooks

from payintent_sandbox.emulators.stripe.disputes import Disputes
from payintent_sandbox.emulators.stripe.element import Element
from payintent_sandbox.emulators.stripe.events import Endpoint, Events
from payintent_sandbox.emulators.stripe.front import ApiFront, keep_in_memory
from payintent_sandbox.emulators.stripe.model import CARDS, AccountRecords, Json, Keys, RefusalError

#: What localstripe signs and sends itself; of whatever else happens, we tell.
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
    """One Stripe. `url` is where this process listens; `endpoint` hears of events, if any does."""

    def __init__(self, accounts: tuple[Keys, ...], url: str, endpoint: Endpoint | None) -> None:
        records = AccountRecords(accounts)
        self.events = Events()
        self.element = Element(records, self.events, url)
        self.disputes = Disputes(self.events)
        self.front = ApiFront(records, self.events, self.disputes)
        if endpoint is not None:
            self._listen(endpoint)

    async def run(self, _: web.Application) -> AsyncGenerator[None]:
        """Hold the connections while the application runs."""
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as self.element.http,
            self.events.notifier.running(),
        ):
            yield

    async def healthz(self, _: web.Request) -> Json:
        """Say that it runs."""
        return {"status": "ok"}

    async def cards(self, _: web.Request) -> Json:
        """List the test numbers."""
        return {"data": [{"number": card.number, "label": card.label} for card in CARDS.values()]}

    async def look(self, request: web.Request) -> Json:
        """Answer `retrievePaymentIntent`."""
        asked = request.query
        return await self.element.look(asked.get("key", ""), asked.get("client_secret", ""))

    async def confirm(self, request: web.Request) -> Json:
        """Answer the button that pays."""
        asked = await _read(request)
        return await self.element.confirm(asked["key"], asked["client_secret"], asked["number"])

    async def authenticate(self, request: web.Request) -> Json:
        """Answer the two buttons of 3-D Secure."""
        asked = await _read(request)
        return await self.element.authenticate(
            asked["key"], asked["client_secret"], success=asked["success"] == "true"
        )

    async def listen(self, request: web.Request) -> Json:
        """Send events somewhere else from now on."""
        asked = await _read(request)
        self._listen(Endpoint(asked["url"], asked["secret"]))
        return {"url": asked["url"]}

    async def decide(self, request: web.Request) -> Json:
        """Decide a refund, as the buyer's bank would."""
        asked = await _read(request)
        return self.front.decide(request.match_info["id"], asked["status"])

    async def dispute(self, request: web.Request) -> Json:
        """Dispute a payment, as a buyer's bank would."""
        return self.disputes.open(await _read(request))

    async def decide_dispute(self, request: web.Request) -> Json:
        """Decide a dispute, as the bank would."""
        asked = await _read(request)
        return self.disputes.decide(request.match_info["id"], asked["status"])

    def _listen(self, endpoint: Endpoint) -> None:
        self.events.endpoint = endpoint
        register = cast("Callable[..., None]", webhooks.register_webhook)  # pyright: ignore[reportUnknownMemberType]
        register("sandbox", endpoint.url, endpoint.secret, _LOCALSTRIPES)


def make_app(sandbox: StripeEmulator) -> web.Application:
    """Put it around localstripe; once in a process, which has one application and one store."""
    keep_in_memory()
    app = server.app
    for path, (name, kind) in _FILES.items():
        app.router.add_get(path, _giving(name, kind))
    app.router.add_get("/healthz", _answering(sandbox.healthz))
    app.router.add_get("/element/cards", _answering(sandbox.cards))
    app.router.add_get("/element/intent", _answering(sandbox.look))
    app.router.add_post("/element/confirm", _answering(sandbox.confirm))
    app.router.add_post("/element/authenticate", _answering(sandbox.authenticate))
    app.router.add_put("/_sandbox/webhook", _answering(sandbox.listen))
    app.router.add_post("/_sandbox/refunds/{id}", _answering(sandbox.decide))
    app.router.add_post("/_sandbox/disputes", _answering(sandbox.dispute))
    app.router.add_post("/_sandbox/disputes/{id}", _answering(sandbox.decide_dispute))
    app.middlewares.insert(0, _outermost(sandbox.front))
    app.cleanup_ctx.append(sandbox.run)
    return app


def _outermost(front: ApiFront) -> Middleware:
    @web.middleware
    async def outermost(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.path.startswith(("/v1/", "/_config/")):
                return await front.pass_on(request, handler)
            return await request.match_info.handler(request)  # localstripe wants a key for all
        except RefusalError as refusal:
            return web.json_response({"error": refusal.error}, status=refusal.status)

    return outermost


def _answering(answer: Answering) -> Handler:
    async def answering(request: web.Request) -> web.StreamResponse:
        return web.json_response(await answer(request))

    return answering


def _giving(name: str, kind: str) -> Handler:
    async def giving(_: web.Request) -> web.StreamResponse:
        text = (_PAGES / name).read_text()
        return web.Response(text=text, content_type=kind, headers=_FILE_HEADERS)

    return giving


class _Asked(dict[str, str]):
    """What was asked; a name that is missing is the asker's mistake."""

    def __missing__(self, name: str) -> str:
        raise RefusalError(400, f"Missing required param: {name}.", param=name)


async def _read(request: web.Request) -> dict[str, str]:
    try:
        asked: Any = await request.json()
        return _Asked((str(name), str(value)) for name, value in asked.items())
    except (ValueError, AttributeError):
        raise RefusalError(400, "the body must be a JSON object") from None
