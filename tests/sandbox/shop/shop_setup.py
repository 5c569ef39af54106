"""A running shop, a fake payment service, and clients of the shop, on real sockets."""

import base64
import json
import socket
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import aiohttp
import uvicorn
from aiohttp import web
from standardwebhooks import Webhook

from payintent_sandbox.shop.app import Config, make_app
from payintent_sandbox.shop.webhook import read_secret
from tests.support.http_server import clean_up

API_KEY = "sk_live_demo_key"
SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
OLD_SECRET = "whsec_" + base64.b64encode(b"an older secret, still in rotation").decode()


@dataclass
class Api:
    """Replaces the payment service: returns given responses, and records requests."""

    url: str = ""
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    refusals: deque[tuple[int, dict[str, Any], dict[str, str]]] = field(default_factory=deque)
    status: str = "PENDING"
    statuses: dict[str, str] = field(default_factory=dict)  # by payment, instead of `status`
    failure_reason: str | None = None
    amount: tuple[str, str] = ("49.90", "USD")
    numbers: dict[str, int] = field(default_factory=dict)  # of payments, by idempotency key

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        self.requests.append((f"{request.method} {request.path}", dict(request.headers), body))
        if self.refusals:
            status, answer, headers = self.refusals.popleft()
            return web.json_response(answer, status=status, headers=headers)
        if request.method == "GET":
            payment_id = request.path.rpartition("/")[2]
            status = self.statuses.get(payment_id, self.status)
            amount, currency = self.amount
            payment = {"id": payment_id, "status": status, "amount": amount, "currency": currency}
            reason = {"failure_reason": self.failure_reason} if self.failure_reason else {}
            return web.json_response(payment | reason)
        key = request.headers["Idempotency-Key"]
        number = self.numbers.setdefault(key, len(self.requests))
        fields = {"id": f"pay_{number}", "checkout_id": f"cs_{number}", "status": "PENDING"}
        url = f"https://pay.example/c/cs_{number}"
        return web.json_response(fields | {"checkout_url": url}, status=201)


@asynccontextmanager
async def running_api() -> AsyncGenerator[Api]:
    api = Api()
    application = web.Application()
    application.router.add_route("*", "/v1/{rest:.*}", api.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield api
    finally:
        await clean_up(runner)


@asynccontextmanager
async def running_shop(api_url: str, api_key: str = API_KEY) -> AsyncGenerator[str]:
    """Serve a shop on a real socket; yield its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    app = make_app(
        Config(api_url=api_url, public_url=url, api_key=api_key, callback_key=read_secret(SECRET))
    )
    config = uvicorn.Config(app, ws="none", log_config=None, access_log=False)
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    try:
        yield url
    finally:
        await server.shutdown(sockets=[listener])


@dataclass
class Visitor:
    """A client of the shop: a browser, or the payment service with an event."""

    http: aiohttp.ClientSession
    url: str

    async def call(self, method: str, path: str, **options: Any) -> aiohttp.ClientResponse:
        answer = await self.http.request(method, self.url + path, allow_redirects=False, **options)
        await answer.read()
        return answer

    async def buy(
        self, product: str = "ledgers", quantity: str = "1", cart: str = ""
    ) -> aiohttp.ClientResponse:
        form = {"product": product, "quantity": quantity, "cart": cart}
        return await self.call("POST", "/buy", data=form)

    async def pay_again(self, order_id: str = "A-1001") -> aiohttp.ClientResponse:
        return await self.call("POST", f"/orders/{order_id}/pay")

    async def order(self, order_id: str = "A-1001") -> dict[str, Any]:
        return await (await self.call("GET", f"/orders/{order_id}.json")).json()

    async def webhooks(self, payment_id: str) -> list[dict[str, Any]]:
        path = f"/webhooks.json?payment_id={payment_id}"
        return await (await self.call("GET", path)).json()

    async def tell(self, body: str, headers: dict[str, str]) -> int:
        return (await self.call("POST", "/webhooks", data=body.encode(), headers=headers)).status


def event(payment_id: str, kind: str = "payment.completed", **fields: Any) -> str:
    payment = {"id": payment_id, "amount": "49.90", "currency": "USD", **fields}
    envelope = {"type": kind, "timestamp": "2026-01-02T03:04:05.678Z", "data": {"payment": payment}}
    return json.dumps(envelope, ensure_ascii=False, indent=1)


def signed(body: str, *secrets: str, age_s: int = 0, webhook_id: str = "") -> dict[str, str]:
    """Sign like the official library, with each secret."""
    webhook_id = webhook_id or str(uuid4())
    moment = datetime.now(UTC) - timedelta(seconds=age_s)
    signatures = [Webhook(secret).sign(webhook_id, moment, body) for secret in secrets or (SECRET,)]
    return {
        "content-type": "application/json",
        "webhook-id": webhook_id,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": " ".join(signatures),
    }
