"""A running 2C2P emulator, its keys, and a merchant and a buyer."""

import base64
import hashlib
import hmac
import json
import secrets
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

import aiohttp
import uvicorn

from payintent_sandbox.emulators.twoc2p.app import make_app
from payintent_sandbox.emulators.twoc2p.keys import make_pair, read_private
from payintent_sandbox.emulators.twoc2p.model import Account
from tests.sandbox.simulator.simulator_setup import PATIENCE_S, until_true

MERCHANT, SECRET = "JT01", "1F4EDB965BBB3094F791A83750FBDCDA3852131CB5218E21E4F42929A1975E60"
OTHER_MERCHANT, OTHER_SECRET = "JT02", "another-secret-of-another-merchant"
SCALE = 1_000.0
RETURN_URL = "https://shop.example/return?x=1"
APPROVED, DECLINED = "4111111111111111", "4000000000000002"
SILENT, IN_PROGRESS, UNSETTLED = "4000009900000046", "4000009900000012", "4000009900000194"
BARE, PAID_LATE = "4000009900000343", "4000009900000525"
PAID_MORE, PAID_LESS = "4000009900000509", "4000009900000517"


@cache
def pair(name: str) -> tuple[str, str]:
    """Return a private and a public key for a name, generated once."""
    assert name in {"gateway", MERCHANT, OTHER_MERCHANT, "stranger"}
    return make_pair()


def accounts() -> list[Account]:
    return [
        Account(merchant_id=MERCHANT, secret_key=SECRET, merchant_public_key=pair(MERCHANT)[1]),
        Account(
            merchant_id=OTHER_MERCHANT,
            secret_key=OTHER_SECRET,
            merchant_public_key=pair(OTHER_MERCHANT)[1],
        ),
    ]


@contextmanager
def running_twoc2p(scale: float = SCALE, *, pages_host: str = "127.0.0.1") -> Generator[str]:
    """Run an emulator in a separate thread; yield its URL. Its pages can have a different host."""
    listener = socket.create_server(("127.0.0.1", 0))
    pages = f"http://{pages_host}:{listener.getsockname()[1]}"
    key = read_private(pair("gateway")[0])
    app = make_app(accounts(), key, time_scale=scale, public_url=pages)
    server = uvicorn.Server(uvicorn.Config(app, ws="none", log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    until_true(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def jwt(content: bytes, secret: str = SECRET, **header: Any) -> str:
    """Sign a JWT by hand, with any header."""
    head = json.dumps({"alg": "HS256", "typ": "JWT"} | header).encode()
    signed = f"{b64(head)}.{b64(content)}"
    mac = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{b64(mac)}"


def envelope(claims: dict[str, Any], secret: str = SECRET) -> bytes:
    return json.dumps({"payload": jwt(json.dumps(claims).encode(), secret)}).encode()


def opened(body: bytes, secret: str = SECRET) -> dict[str, Any]:
    """Verify a signed response by hand, and parse it."""
    head, content, mac = json.loads(body)["payload"].split(".")
    expected = hmac.new(secret.encode(), f"{head}.{content}".encode(), hashlib.sha256).digest()
    assert mac == b64(expected)
    return json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))


class Shop:
    """A merchant's server and its buyer's browser."""

    def __init__(self, http: aiohttp.ClientSession, url: str, callback_url: str) -> None:
        self._http = http
        self.url = url
        self._callback_url = callback_url

    def order(self, **changes: Any) -> dict[str, Any]:
        return {
            "merchantID": MERCHANT,
            "invoiceNo": secrets.token_hex(10),
            "description": "A book",
            "amount": 1590.00,
            "currencyCode": "THB",
            "frontendReturnUrl": RETURN_URL,
            "backendReturnUrl": self._callback_url,
            "userDefined1": "ours",
        } | changes

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        async with self._http.post(f"{self.url}{path}", data=body) as answer:
            return answer.status, await answer.read()

    async def ask(self, name: str, claims: dict[str, Any], secret: str = SECRET) -> dict[str, Any]:
        _, body = await self.post(f"/payment/4.3/{name}", envelope(claims, secret))
        return opened(body, secret)

    async def token(self, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        order = self.order(**changes)
        response = await self.ask("paymentToken", order)
        assert response["respCode"] == "0000", response
        return order, response

    async def inquire(self, invoice: str) -> dict[str, Any]:
        return await self.ask("paymentInquiry", {"merchantID": MERCHANT, "invoiceNo": invoice})

    async def press(self, page_url: str, **fields: str) -> tuple[int, str]:
        async with self._http.post(page_url, data=fields) as answer:
            return answer.status, await answer.text()

    async def show(self, page_url: str) -> tuple[int, str]:
        async with self._http.get(page_url) as answer:
            return answer.status, await answer.text()

    async def control(self, path: str, status: str) -> None:
        async with self._http.put(f"{self.url}/_twoc2p/{path}", json={"status": status}) as answer:
            assert answer.status == 200, await answer.text()

    async def refund_in_portal(self, invoice: str, amount: str) -> None:
        path = f"{self.url}/_twoc2p/{MERCHANT}/{invoice}/refunds"
        async with self._http.post(path, json={"amount": amount}) as answer:
            assert answer.status == 200, await answer.text()

    async def get_invoice(self, invoice: str, merchant: str = MERCHANT) -> dict[str, Any]:
        async with self._http.get(f"{self.url}/_twoc2p/{merchant}/{invoice}") as answer:
            return await answer.json()
