"""A running ECPay emulator, and a shop that orders and receives results."""

import asyncio
import hashlib
import json
import re
import socket
import threading
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

import aiohttp
import uvicorn
from aiohttp import web

from payintent_sandbox.emulators.ecpay.app import make_app
from payintent_sandbox.emulators.ecpay.model import Account
from tests.sandbox.simulator.simulator_setup import PATIENCE_S, until_true
from tests.support.http_server import clean_up

#: ECPay's public test merchant, and an invented merchant.
ACCOUNT = Account("3002607", "pwFHCqoQZGmho4w6", "EkRm7iFT261dpevs", "59997889")
OTHER = Account("2000132", "5294y06JbISpM5x9", "v77hoKGq4kWxNNIS", "25938511")
APPROVED = "4311951111111111"
DECLINED = "4000000000000002"
SIMULATED = "4000009900000012"
TWICE = "4000009900000020"
SILENT = "4000009900000046"
DEARER = "4000009900000079"
UNCONFIRMED = "4000009900000103"
UNREFUNDABLE = "4000009900000178"
SCALE = 60_000.0  # five minutes are 5 ms
_TABLE = {"%21": "!", "%2a": "*", "%28": "(", "%29": ")", "%2d": "-", "%2e": ".", "%5f": "_"}


def mac(fields: dict[str, str], account: Account = ACCOUNT) -> str:
    """Compute CheckMacValue in a third way: escape everything, then restore some characters."""
    names = sorted((name for name in fields if name != "CheckMacValue"), key=str.lower)
    inner = "".join(f"&{name}={fields[name]}" for name in names)
    text = f"HashKey={account.hash_key}{inner}&HashIV={account.hash_iv}"
    escaped = "".join(
        char if char.isascii() and char.isalnum() else "".join(f"%{b:02x}" for b in char.encode())
        for char in text
    )
    for code, sign in _TABLE.items():
        escaped = escaped.replace(code, sign)
    return hashlib.sha256(escaped.replace("%20", "+").lower().encode()).hexdigest().upper()


def signed(fields: dict[str, str], account: Account = ACCOUNT) -> dict[str, str]:
    return fields | {"CheckMacValue": mac(fields, account)}


@contextmanager
def running_ecpay(scale: float = SCALE) -> Generator[str]:
    """Run an emulator in a separate thread; yield its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        make_app([ACCOUNT, OTHER], time_scale=scale), ws="none", log_config=None, access_log=False
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


class Ear:
    """A merchant's server, which responds with `1|OK` by default."""

    def __init__(self) -> None:
        self.received: list[dict[str, str]] = []
        self.answers: deque[web.Response] = deque()
        self.url = ""
        self._arrived = asyncio.Condition()

    async def handle(self, request: web.Request) -> web.Response:
        fields = dict(parse_qsl((await request.read()).decode(), keep_blank_values=True))
        async with self._arrived:
            self.received.append(fields)
            self._arrived.notify_all()
        return self.answers.popleft() if self.answers else web.Response(body=b"1|OK")

    async def wait_for(self, count: int) -> list[dict[str, str]]:
        async with asyncio.timeout(PATIENCE_S), self._arrived:
            await self._arrived.wait_for(lambda: len(self.received) >= count)
        return self.received


@asynccontextmanager
async def listening() -> AsyncGenerator[Ear]:
    ear = Ear()
    app = web.Application()
    app.router.add_post("/told", ear.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    ear.url = f"http://{host}:{port}/told"
    try:
        yield ear
    finally:
        await clean_up(runner)


class Buyer:
    """A browser without scripts, which posts forms and reads only the necessary parts of pages."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self.url = url
        self._pages: dict[str, str] = {}

    async def call(self, path: str, fields: dict[str, str] | None = None) -> str:
        method = "GET" if fields is None else "POST"
        async with self._http.request(method, self.url + path, data=fields) as answer:
            return await answer.text()

    async def bring(self, fields: dict[str, str]) -> str:
        """Post an order; return the page."""
        page = await self.call("/Cashier/AioCheckOut/V5", fields)
        match = re.search(r'action="(/pay/[0-9a-f]+)"', page)
        if match:
            self._pages[fields["MerchantTradeNo"]] = match[1]
        return page

    async def trade(self, trade_no: str) -> Any:
        """Read a trade as a tester."""
        return json.loads(await self.call(f"/_ecpay/trades/{trade_no}"))

    async def pay(self, merchant_trade_no: str, card: str = APPROVED) -> str:
        return await self.call(self._pages[merchant_trade_no], {"card": card})


class Shop:
    """A merchant's server, written from ECPay's documentation."""

    def __init__(self, buyer: Buyer, ear: Ear) -> None:
        self.buyer = buyer
        self.ear = ear

    def order(self, account: Account = ACCOUNT, **changes: str | None) -> dict[str, str]:
        usual = {
            "MerchantID": account.merchant_id,
            "MerchantTradeNo": uuid4().hex[:20],
            "MerchantTradeDate": (datetime.now(UTC) + timedelta(hours=8)).strftime(
                "%Y/%m/%d %H:%M:%S"
            ),
            "PaymentType": "aio",
            "TotalAmount": "1590",
            "TradeDesc": "A book",
            "ItemName": "雪國 A book",
            "ReturnURL": self.ear.url,
            "ChoosePayment": "Credit",
            "EncryptType": "1",
            "NeedExtraPaidInfo": "Y",
        }
        fields = {name: value for name, value in (usual | changes).items() if value is not None}
        return signed(fields, account)

    async def place_order(self, **changes: str | None) -> dict[str, str]:
        order = self.order(**changes)
        page = await self.buyer.bring(order)
        assert "Card number" in page, page
        return order

    async def pay_order(self, card: str = APPROVED, **changes: str | None) -> dict[str, str]:
        """Place and pay an order; return the response to an inquiry."""
        order = await self.place_order(**changes)
        await self.buyer.pay(order["MerchantTradeNo"], card)
        return await self.inquire(order["MerchantTradeNo"])

    async def ask(self, path: str, account: Account = ACCOUNT, **fields: str) -> str:
        form = signed({"MerchantID": account.merchant_id, **fields}, account)
        return await self.buyer.call(path, form)

    async def inquire(self, merchant_trade_no: str, **changes: str) -> dict[str, str]:
        stamp = {"TimeStamp": str(int(datetime.now(UTC).timestamp()))} | changes
        text = await self.ask(
            "/Cashier/QueryTradeInfo/V5", MerchantTradeNo=merchant_trade_no, **stamp
        )
        return dict(parse_qsl(text, keep_blank_values=True))

    async def act(self, trade: dict[str, str], action: str, amount: int) -> dict[str, str]:
        trade_fields = {name: trade[name] for name in ("MerchantTradeNo", "TradeNo")}
        text = await self.ask(
            "/CreditDetail/DoAction", Action=action, TotalAmount=str(amount), **trade_fields
        )
        return dict(parse_qsl(text, keep_blank_values=True))

    async def detail(self, trade: dict[str, str], **changes: str) -> Any:
        fields = {
            "CreditRefundId": trade["gwsr"],
            "CreditAmount": trade["TradeAmt"],
            "CreditCheckCode": ACCOUNT.credit_check_code,
        } | changes
        return json.loads(await self.ask("/CreditDetail/QueryTrade/V2", **fields))
