"""A running simulator, and a merchant that receives its callbacks, both on real sockets."""

import asyncio
import json
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import uvicorn
from aiohttp import web

from payintent_sandbox.emulators.simulator.app import make_app
from payintent_sandbox.emulators.simulator.model import Account
from tests.support.http_server import clean_up
from tests.support.timeouts import PATIENCE_S

KEY, SECRET = "sim_key_one", "sim_secret_one"
OTHER_KEY, OTHER_SECRET = "sim_key_two", "sim_secret_two"
ACCOUNTS = [Account(KEY, SECRET), Account(OTHER_KEY, OTHER_SECRET)]
SCALE = 1_000.0
RETURN_URL = "https://shop.example/return?x=1"


@contextmanager
def running_simulator(scale: float = SCALE) -> Generator[str]:
    """Run a simulator in a separate thread; yield its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        make_app(ACCOUNTS, time_scale=scale), ws="none", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    until_true(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


def until_true(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.005)


@dataclass
class Received:
    headers: dict[str, str]
    body: bytes
    at: datetime
    status: int  # of our response

    @property
    def event(self) -> dict[str, Any]:
        return json.loads(self.body)


class Merchant:
    """Receives callbacks, and responds with 200 by default."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.answers: deque[int] = deque()
        self.url = ""
        self._arrived = asyncio.Condition()

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        status = self.answers.popleft() if self.answers else 200
        headers = {name.lower(): value for name, value in request.headers.items()}
        async with self._arrived:
            self.received.append(Received(headers, body, datetime.now(UTC), status))
            self._arrived.notify_all()
        moved = {"Location": "/callback"} if status == 302 else None
        return web.Response(status=status, headers=moved)

    async def wait_for(self, count: int) -> list[Received]:
        async with asyncio.timeout(PATIENCE_S), self._arrived:
            await self._arrived.wait_for(lambda: len(self.received) >= count)
        return self.received


@asynccontextmanager
async def receiving_merchant() -> AsyncGenerator[Merchant]:
    merchant = Merchant()
    app = web.Application()
    app.router.add_post("/callback", merchant.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    merchant.url = f"http://{host}:{port}/callback"
    try:
        yield merchant
    finally:
        await clean_up(runner)


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Shop:
    """The merchant's server and the buyer's browser, as the simulator sees them."""

    def __init__(self, http: aiohttp.ClientSession, url: str, callback_url: str) -> None:
        self._http = http
        self.url = url
        self.callback_url = callback_url

    async def call(self, method: str, path: str, *, key: str = KEY, **options: Any) -> Reply:
        url = path if path.startswith("http") else self.url + path
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with self._http.request(
            method, url, headers=headers, allow_redirects=False, **options
        ) as answer:
            names = {name.lower(): value for name, value in answer.headers.items()}
            return Reply(answer.status, names, await answer.text())

    def order(self, **changes: Any) -> dict[str, Any]:
        expires_at = datetime.now(UTC) + timedelta(minutes=30)
        return {
            "reference": f"sess_{secrets.token_hex(11)}",
            "amount_minor": 159_000,
            "currency": "THB",
            "description": "A book <b>",
            "return_url": RETURN_URL,
            "callback_url": self.callback_url,
            "expires_at": expires_at.isoformat(),
        } | changes

    async def create(self, **changes: Any) -> dict[str, Any]:
        reply = await self.call("POST", "/v1/sessions", json=self.order(**changes))
        assert reply.status == 201, reply.text
        return reply.json

    async def inquire(self, name: str) -> dict[str, Any]:
        reply = await self.call("GET", f"/v1/sessions/{name}")
        assert reply.status == 200, reply.text
        return reply.json

    async def cancel(self, name: str) -> Reply:
        return await self.call("POST", f"/v1/sessions/{name}/cancel")

    async def pay(self, session: dict[str, Any], card: str) -> Reply:
        return await self.call("POST", session["pay_url"], key="", data={"card": card})

    async def set_rules(self, *rules: dict[str, Any]) -> None:
        reply = await self.call("PUT", "/_sim/rules", json=list(rules))
        assert reply.status == 200, reply.text

    async def log(self, **fields: Any) -> list[dict[str, Any]]:
        entries = (await self.call("GET", "/_sim/log")).json
        return [
            entry
            for entry in entries
            if all(entry.get(name) == value for name, value in fields.items())
        ]

    async def until(self, name: str, status: str) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_S):
            while (session := await self.inquire(name))["status"] != status:
                await asyncio.sleep(0.01)
        return session
