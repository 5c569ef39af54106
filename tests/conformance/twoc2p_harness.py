"""The 2C2P adapter, with a counterpart that has keys, cards and a maintenance API."""

import hashlib
import hmac
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from decimal import Decimal

import aiohttp
import pytest

from payintent.core import ids
from payintent.gateways.port import (
    CallbackRequest,
    Capture,
    GatewayAccount,
    GatewayRefundRequest,
    GatewaySessionRequest,
    SessionCreated,
)
from payintent.gateways.twoc2p.adapter import TwoC2pGateway
from payintent.gateways.twoc2p.messages import invoice_no, verify_jwt
from payintent.gateways.twoc2p.response_codes import FAILURES
from tests.conformance.faults import FaultProxy, faulty
from tests.conformance.harness import Harness, RefundOutcome, hurried, patient
from tests.conformance.receiver import receiving
from tests.conformance.traits import TRAITS, Scenario
from tests.sandbox.twoc2p.emulator_setup import (
    APPROVED,
    DECLINED,
    MERCHANT,
    OTHER_MERCHANT,
    OTHER_SECRET,
    PAID_LATE,
    PAID_LESS,
    PAID_MORE,
    SECRET,
    Shop,
    b64,
    jwt,
    pair,
    running_twoc2p,
)

OTHERWISE = {
    Scenario.PAYS_LESS: PAID_LESS,
    Scenario.PAYS_MORE: PAID_MORE,
    Scenario.PAYS_LATE: PAID_LATE,
}
STATUSES = {RefundOutcome.DONE: "RF", RefundOutcome.PENDING: "RP", RefundOutcome.DECLINED: "RR"}


@dataclass(kw_only=True)
class TwoC2pHarness(Harness):
    shop: Shop

    async def pay(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        await self._press(created, APPROVED)

    async def decline(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        await self._press(created, DECLINED)

    async def cancel(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        await self.shop.press(created.next_action["redirect"]["url"], cancel="1")

    async def pay_otherwise(
        self, created: SessionCreated, request: GatewaySessionRequest, how: Scenario
    ) -> None:
        await self._press(created, OTHERWISE[how])

    async def go_back(
        self, created: SessionCreated, request: GatewaySessionRequest
    ) -> SessionCreated:
        for _ in range(2):
            status, _ = await self.shop.show(created.next_action["redirect"]["url"])
            assert status == 200
        return created

    async def refund_in_dashboard(self, capture: Capture, amount_minor: int) -> None:
        await self.shop.refund_in_portal(_invoice(capture), f"{Decimal(amount_minor) / 100:.2f}")

    @asynccontextmanager
    async def undecided(
        self, created: SessionCreated, request: GatewaySessionRequest
    ) -> AsyncGenerator[None]:
        await self.shop.control(f"{MERCHANT}/{invoice_no(request.session_id)}/code", "7777")
        yield

    async def set_refunds(self, outcome: RefundOutcome) -> None:
        await self.shop.control("refunds", STATUSES[outcome])

    async def settle_refund(self, request: GatewayRefundRequest, outcome: RefundOutcome) -> None:
        name = ids.format_id(ids.REFUND, request.refund_id)
        path = f"{MERCHANT}/{_invoice(request.capture)}/refunds/{name}"
        await self.shop.control(path, STATUSES[outcome])

    async def get_refunded_minor(self, capture: Capture) -> int:
        invoice = await self.shop.get_invoice(_invoice(capture))
        return int(Decimal(invoice["refunded"]) * 100)

    async def dispute(self, capture: Capture) -> str:
        await self.shop.control(f"{MERCHANT}/{_invoice(capture)}/chargeback", "4130")
        return _invoice(capture)

    async def win(self, dispute: str) -> None:
        await self.shop.control(f"{MERCHANT}/{dispute}/chargeback", "4131")

    def payload(self, callback: CallbackRequest) -> bytes:
        return verify_jwt(json.loads(callback.body)["payload"], SECRET)

    def signed(self, payload: bytes, account: GatewayAccount) -> CallbackRequest:
        return _calling(jwt(payload, account.credentials["secret_key"]))

    def restate(self, payload: bytes, *, amount: str = "", currency: str = "") -> bytes | None:
        facts = json.loads(payload)
        facts |= {"amount": amount} if amount else {"currencyCode": currency}
        return json.dumps(facts).encode()

    def forgeries(self, callback: CallbackRequest) -> Mapping[str, CallbackRequest]:
        head, content, mac = json.loads(callback.body)["payload"].split(".")
        facts = self.payload(callback)
        dearer = b64(facts.replace(b'"0000"', b'"0001"'))
        none = b64(b'{"alg":"none","typ":"JWT"}')
        forged = {
            "no signature": f"{head}.{content}",
            "an empty signature": f"{head}.{content}.",
            "another signature": f"{head}.{content}.{b64(bytes(32))}",
            "a different encoding of the same bytes": f"{head}.{content}.{_respelled(mac)}",
            "other facts": f"{head}.{dearer}.{mac}",
            "no algorithm, no signature": f"{none}.{content}.",
            "no algorithm, the old signature": f"{none}.{content}.{mac}",
            "no algorithm, correctly signed": jwt(facts, SECRET, alg="none"),
            "another algorithm, correctly signed": jwt(facts, SECRET, alg="HS512"),
            "an asymmetric algorithm, correctly signed": jwt(facts, SECRET, alg="RS256"),
            "an extension that must be understood": jwt(facts, SECRET, crit=["b64"]),
            "a secret read as hexadecimal": _hexadecimal(facts),
            "another merchant's facts": jwt(facts.replace(b"JT01", b"JT02"), SECRET),
        }
        return {name: _calling(token) for name, token in forged.items()} | {
            "no payload": replace(callback, body=facts)
        }

    async def _press(self, created: SessionCreated, card: str) -> None:
        status, text = await self.shop.press(created.next_action["redirect"]["url"], card=card)
        assert status == 200, text


@asynccontextmanager
async def open_harness(fixtures: pytest.FixtureRequest) -> AsyncGenerator[Harness]:
    with running_twoc2p() as url:
        async with faulty(url) as faults, receiving() as receiver, aiohttp.ClientSession() as http:
            patient_client, hurried_client = patient(), hurried()
            harness = TwoC2pHarness(
                gateway=TwoC2pGateway(patient_client),
                hurried=TwoC2pGateway(hurried_client),
                account=_account(faults, MERCHANT, SECRET),
                other_account=_account(faults, OTHER_MERCHANT, OTHER_SECRET),
                faults=faults,
                receiver=receiver,
                currency="THB",
                amount_minor=159_000,
                failures=FAILURES,
                unknown_reference=None,
                public=frozenset({"merchant_id", "gateway_public_key", "page_url", "utc_offset"}),
                **vars(TRAITS["2c2p"]),
                shop=Shop(http, url, receiver.url),
            )
            receiver.serve(harness.gateway, harness.account)
            yield harness
            await patient_client.close()
            await hurried_client.close()


def _account(faults: FaultProxy, merchant: str, secret: str) -> GatewayAccount:
    credentials = {
        "merchant_id": merchant,
        "secret_key": secret,
        "merchant_private_key": pair(merchant)[0],
        "gateway_public_key": pair("gateway")[1],
        "utc_offset": "+08:00",
    }
    return GatewayAccount(id=1, provider="2c2p", base_url=faults.url, credentials=credentials)


def _invoice(capture: Capture) -> str:
    return capture.reference.partition(".")[0]


def _calling(token: str) -> CallbackRequest:
    body = json.dumps({"payload": token}).encode()
    headers = {"content-type": "application/json; charset=utf-8"}
    return CallbackRequest(method="POST", headers=headers, query={}, body=body)


def _respelled(mac: str) -> str:
    """Change only the two unused bits of the last letter."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return mac[:-1] + letters[letters.index(mac[-1]) ^ 1]


def _hexadecimal(facts: bytes) -> str:
    signed = f"{b64(json.dumps({'alg': 'HS256', 'typ': 'JWT'}).encode())}.{b64(facts)}"
    mac = hmac.new(bytes.fromhex(SECRET), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{b64(mac)}"
