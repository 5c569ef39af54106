"""The simulator's adapter, with a simulator in which pending refunds wait for a decision."""

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import pytest

from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import (
    CallbackRequest,
    Capture,
    FailureReason,
    Gateway,
    GatewayAccount,
    GatewayRefundRequest,
    GatewaySessionRequest,
    SessionCreated,
)
from payintent.gateways.simulator import SimulatorGateway
from tests.conformance.faults import FaultProxy, faulty
from tests.conformance.harness import Harness, RefundOutcome, hurried, patient
from tests.conformance.receiver import receiving
from tests.conformance.traits import TRAITS, Scenario
from tests.sandbox.simulator.simulator_setup import (
    KEY,
    OTHER_KEY,
    OTHER_SECRET,
    SECRET,
    running_simulator,
)

DECLINED, PAYS_ONE_MORE = "4000000000000002", "4000009900000079"
CARDS = {
    RefundOutcome.DONE: "4242424242424242",
    RefundOutcome.PENDING: "4000009900000160",
    RefundOutcome.DECLINED: "4000009900000178",
}
STATUSES = {RefundOutcome.DONE: "succeeded", RefundOutcome.DECLINED: "refused"}
SLOW = 0.01  # a scaled minute takes an hour and a half
TOO_OLD_S = 301


@dataclass(kw_only=True)
class SimulatorHarness(Harness):
    http: aiohttp.ClientSession
    url: str  # of the simulator itself
    card: str = CARDS[RefundOutcome.DONE]
    paid: list[str] = field(default_factory=list[str])

    async def pay(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        await self._pay(created, self.card)
        self.paid.append(created.reference)

    async def decline(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        await self._pay(created, DECLINED)

    async def cancel(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        url = f"{created.next_action['redirect']['url']}/cancel"
        async with self.http.post(url, allow_redirects=False) as answer:
            assert answer.status == 303, await answer.text()

    async def pay_otherwise(
        self, created: SessionCreated, request: GatewaySessionRequest, how: Scenario
    ) -> None:
        assert how is Scenario.PAYS_MORE
        await self._pay(created, PAYS_ONE_MORE)

    async def refund_in_dashboard(self, capture: Capture, amount_minor: int) -> None:
        order = {
            "reference": secrets.token_hex(8),
            "capture": capture.reference,
            "amount_minor": amount_minor,
            "currency": capture.currency,
            "callback_url": self.receiver.url,
        }
        headers = {"Authorization": f"Bearer {KEY}"}
        url = f"{self.url}/v1/refunds"
        async with self.http.post(url, json=order, headers=headers) as answer:
            assert answer.status in {200, 201}, await answer.text()

    async def set_refunds(self, outcome: RefundOutcome) -> None:
        self.card = CARDS[outcome]

    async def settle_refund(self, request: GatewayRefundRequest, outcome: RefundOutcome) -> None:
        url = f"{self.url}/_sim/refunds/{request.reference}"
        async with self.http.post(url, json={"status": STATUSES[outcome]}) as answer:
            assert answer.status == 200, await answer.text()

    async def get_refunded_minor(self, capture: Capture) -> int:
        captures = [await self._captured(name) for name in reversed(self.paid)]
        [captured] = [item for item in captures if item["id"] == capture.reference]
        return captured["refunded_minor"]

    def payload(self, callback: CallbackRequest) -> bytes:
        return callback.body

    def signed(self, payload: bytes, account: GatewayAccount) -> CallbackRequest:
        return _signed(payload, account, int(time.time()))

    def restate(self, payload: bytes, *, amount: str = "", currency: str = "") -> bytes | None:
        if not currency:
            return None
        facts = json.loads(payload)
        facts["session"]["currency"] = facts["session"]["capture"]["currency"] = currency
        return json.dumps(facts).encode()

    def forgeries(self, callback: CallbackRequest) -> Mapping[str, CallbackRequest]:
        signature = callback.headers["sim-signature"]
        forged = {
            "no signature": {"sim-signature": None},
            "an empty signature": {"sim-signature": ""},
            "no digest": {"sim-signature": "v1="},
            "another digest": {"sim-signature": f"v1={'0' * 64}"},
            "another scheme": {"sim-signature": signature.replace("v1=", "v0=")},
            "in upper case": {"sim-signature": signature.upper()},
            "another id": {"sim-id": "evt_1"},
            "no id": {"sim-id": None},
            "another time": {"sim-timestamp": str(int(callback.headers["sim-timestamp"]) + 1)},
            "no time": {"sim-timestamp": None},
        }
        old = _signed(callback.body, self.account, int(time.time()) - TOO_OLD_S)
        return {name: _with(callback, changes) for name, changes in forged.items()} | {"old": old}

    async def _captured(self, name: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {KEY}"}
        async with self.http.get(f"{self.url}/v1/sessions/{name}", headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            return (await answer.json())["capture"]

    async def _pay(self, created: SessionCreated, card: str) -> None:
        url = created.next_action["redirect"]["url"]
        async with self.http.post(url, data={"card": card}, allow_redirects=False) as answer:
            assert answer.status == 303, await answer.text()


@asynccontextmanager
async def open_harness(fixtures: pytest.FixtureRequest) -> AsyncGenerator[Harness]:
    async with open_simulator_harness(SimulatorGateway) as harness:
        yield harness


@asynccontextmanager
async def open_simulator_harness(
    adapter: Callable[[GatewayHttpClient], Gateway],
) -> AsyncGenerator[Harness]:
    """Run a separate simulator for an adapter with the simulator's protocol."""
    with running_simulator(scale=SLOW) as url:
        async with faulty(url) as faults, receiving() as receiver, aiohttp.ClientSession() as http:
            patient_client, hurried_client = patient(), hurried()
            harness = SimulatorHarness(
                gateway=adapter(patient_client),
                hurried=adapter(hurried_client),
                account=_account(faults, KEY, SECRET),
                other_account=_account(faults, OTHER_KEY, OTHER_SECRET),
                faults=faults,
                receiver=receiver,
                currency="THB",
                amount_minor=159_000,
                failures={
                    "card_declined": FailureReason.DECLINED,
                    "insufficient_funds": FailureReason.DECLINED,
                    "expired_card": FailureReason.DECLINED,
                    "incorrect_cvc": FailureReason.DECLINED,
                    "authentication_failed": FailureReason.DECLINED,
                    "processing_error": FailureReason.UNKNOWN,
                },
                unknown_reference="ps_00000000000000000000000000000000",
                **vars(TRAITS["simulator"]),
                http=http,
                url=url,
            )
            receiver.serve(harness.gateway, harness.account)
            yield harness
            await patient_client.close()
            await hurried_client.close()


def _account(faults: FaultProxy, key: str, secret: str) -> GatewayAccount:
    credentials = {"api_key": key, "signing_secret": secret}
    return GatewayAccount(id=1, provider="simulator", base_url=faults.url, credentials=credentials)


def _signed(body: bytes, account: GatewayAccount, timestamp: int) -> CallbackRequest:
    event_id = f"evt_{secrets.token_hex(12)}"
    secret = account.credentials["signing_secret"].encode()
    content = f"{event_id}.{timestamp}.".encode() + body
    headers = {
        "content-type": "application/json",
        "sim-id": event_id,
        "sim-timestamp": str(timestamp),
        "sim-signature": f"v1={hmac.new(secret, content, hashlib.sha256).hexdigest()}",
    }
    return CallbackRequest(method="POST", headers=headers, query={}, body=body)


def _with(callback: CallbackRequest, changes: Mapping[str, str | None]) -> CallbackRequest:
    headers = {**callback.headers, **changes}
    present = {name: value for name, value in headers.items() if value is not None}
    return replace(callback, headers=present)
