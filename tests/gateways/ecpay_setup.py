"""The ECPay adapter, with the emulator or with a server that returns scripted responses."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import UUID, uuid4

import aiohttp
from aiohttp import web

from payintent.gateways.ecpay.adapter import EcpayGateway
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import (
    CallbackRequest,
    Capture,
    GatewayAccount,
    GatewayRefundRequest,
    GatewaySessionRef,
    GatewaySessionRequest,
    SessionCreated,
    SessionReport,
)
from tests.sandbox.ecpay.emulator_setup import ACCOUNT, APPROVED, Buyer, Ear, listening, signed
from tests.support.http_server import clean_up

WHOLE = 159_000  # 1590.00 TWD
RETURN_URL = "https://pay.example/c/cs_1/return"


def account_at(url: str, **changes: str) -> GatewayAccount:
    credentials = {
        "merchant_id": ACCOUNT.merchant_id,
        "hash_key": ACCOUNT.hash_key,
        "hash_iv": ACCOUNT.hash_iv,
        "credit_check_code": ACCOUNT.credit_check_code,
        "auto_close": "off",
    } | changes
    return GatewayAccount(id=1, provider="ecpay", base_url=url, credentials=credentials)


@dataclass
class Stage:
    gateway: EcpayGateway
    account: GatewayAccount
    buyer: Buyer
    ear: Ear

    def request(self, **changes: Any) -> GatewaySessionRequest:
        now = datetime.now(UTC).replace(microsecond=0)
        defaults: dict[str, Any] = {
            "session_id": uuid4(),
            "amount_minor": WHOLE,
            "currency": "TWD",
            "kind": "card",
            "country": "TW",
            "description": "Nimbus Books pay_1",
            "opened_at": now,
            "expires_at": now + timedelta(minutes=30),
            "return_url": RETURN_URL,
            "callback_url": self.ear.url,
        }
        return GatewaySessionRequest(**(defaults | changes))

    async def create_session(self, request: GatewaySessionRequest) -> SessionCreated:
        created = await self.gateway.create_session(self.account, request)
        assert isinstance(created, SessionCreated), created
        return created

    async def submit_order(self, **changes: Any) -> GatewaySessionRef:
        """Create a session, and submit its order as the buyer."""
        request = self.request(**changes)
        session = await self.create_session(request)
        page = await self.buyer.bring(session.next_action["redirect"]["fields"])
        assert "Card number" in page, page
        return ref_of(request)

    async def pay(self, card: str = APPROVED) -> GatewaySessionRef:
        session = await self.submit_order()
        await self.buyer.pay(number_of(session), card)
        return session

    async def capture(self, card: str = APPROVED) -> tuple[GatewaySessionRef, Capture]:
        session = await self.pay(card)
        report = await self.gateway.inquire(self.account, session)
        assert isinstance(report, SessionReport)
        assert report.capture
        return session, report.capture

    async def wait_for_callbacks(self, count: int = 1) -> list[CallbackRequest]:
        return [make_callback(fields) for fields in (await self.ear.wait_for(count))[:count]]


@asynccontextmanager
async def open_stage(url: str) -> AsyncGenerator[Stage]:
    http = GatewayHttpClient(timeout_s=10, response_bytes_max=64 * 1024)
    async with listening() as ear, aiohttp.ClientSession() as client:
        yield Stage(EcpayGateway(http), account_at(url), Buyer(client, url), ear)
    await http.close()


def number_of(session: GatewaySessionRef) -> str:
    assert session.reference is not None
    return session.reference


def ref_of(request: GatewaySessionRequest, **changes: Any) -> GatewaySessionRef:
    defaults = {
        "session_id": request.session_id,
        "reference": number_from(request.session_id),
        "amount_minor": request.amount_minor,
        "currency": request.currency,
        "opened_at": request.opened_at,
    }
    return GatewaySessionRef(**(defaults | changes))


def number_from(session_id: UUID) -> str:
    """Encode a UUID in base 62, and keep the last twenty digits."""
    digits, number = "", session_id.int
    for _ in range(20):
        number, digit = divmod(number, 62)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def make_callback(fields: Mapping[str, str]) -> CallbackRequest:
    return CallbackRequest(method="POST", headers={}, query={}, body=urlencode(fields).encode())


def notice(session_id: UUID, **changes: str | None) -> CallbackRequest:
    """Return a signed result in ECPay's format."""
    defaults = {
        "CustomField1": session_id.hex,
        "MerchantID": ACCOUNT.merchant_id,
        "MerchantTradeNo": number_from(session_id),
        "PaymentDate": "2026/11/22 11:00:00",
        "PaymentType": "Credit_CreditCard",
        "RtnCode": "1",
        "RtnMsg": "交易成功",
        "SimulatePaid": "0",
        "TradeAmt": "1590",
        "TradeNo": "2611221100000001",
    } | changes
    return make_callback(
        signed({name: value for name, value in defaults.items() if value is not None})
    )


def refund_of(
    session: GatewaySessionRef | None, capture: Capture, amount_minor: int = WHOLE, **changes: Any
) -> GatewayRefundRequest:
    defaults: dict[str, Any] = {
        "refund_id": uuid4(),
        "reference": None,
        "session": session,
        "capture": capture,
        "amount_minor": amount_minor,
        "reason": "",
        "destination": None,
        "callback_url": "",
    }
    return GatewayRefundRequest(**(defaults | changes))


@dataclass
class Script:
    """The responses of a fake ECPay: a trade, its card's details, and actions."""

    trade: dict[str, str]
    detail: Any = None
    action_response: bytes = b""
    status: int = 200
    actions: list[dict[str, str]] | None = None
    hold: asyncio.Event | None = None  # responses are delayed until it is set

    async def respond(self, request: web.Request) -> web.Response:
        form = dict(parse_qsl((await request.read()).decode(), keep_blank_values=True))
        if self.hold is not None:
            await self.hold.wait()
        if request.path.endswith("/QueryTradeInfo/V5"):
            return web.Response(body=urlencode(self.trade).encode())
        if request.path.endswith("/QueryTrade/V2"):
            return web.Response(body=json.dumps(self.detail).encode())
        if self.actions is not None:
            self.actions.append(form)
        return web.Response(body=self.action_response, status=self.status)


@asynccontextmanager
async def serve_script(script: Script) -> AsyncGenerator[GatewayAccount]:
    app = web.Application()
    app.router.add_post("/{path:.*}", script.respond)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield account_at(f"http://{host}:{port}")
    finally:
        await clean_up(runner)


def trade_of(session: GatewaySessionRef, **changes: str) -> dict[str, str]:
    """Return a signed response to an inquiry."""
    defaults = {
        "CustomField1": session.session_id.hex,
        "MerchantID": ACCOUNT.merchant_id,
        "MerchantTradeNo": number_of(session),
        "TradeAmt": "1590",
        "TradeNo": "2611221100000001",
        "TradeStatus": "1",
        "gwsr": "10000001",
        "process_date": "2026/11/22 11:00:00",
    }
    return signed(defaults | changes)
