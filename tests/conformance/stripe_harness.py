"""The Stripe adapter, with the sandbox's Stripe emulator as a separate process."""

import hashlib
import hmac
import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import pytest
import stripe

from payintent.gateways.port import (
    CallbackRequest,
    Capture,
    GatewayAccount,
    GatewayRefundRequest,
    GatewaySessionRequest,
    SessionCreated,
)
from payintent.gateways.stripe.adapter import StripeGateway
from payintent.gateways.stripe.api import FAILURES
from tests.conformance.faults import FaultProxy, faulty
from tests.conformance.harness import Harness, RefundOutcome, hurried, patient
from tests.conformance.receiver import receiving
from tests.conformance.traits import TRAITS
from tests.support import stripe as sandbox
from tests.support.stripe import Buyer, running_stripe

CARDS = {
    RefundOutcome.DONE: sandbox.PAYS,
    RefundOutcome.PENDING: sandbox.REFUNDS_LATER,
    RefundOutcome.DECLINED: sandbox.DISPUTED,
}
STATUSES = {RefundOutcome.DONE: "succeeded", RefundOutcome.DECLINED: "failed"}
REFUNDED_STATUSES = {"pending", "succeeded"}
TOO_OLD_S = 301


@dataclass(kw_only=True)
class StripeHarness(Harness):
    buyer: Buyer
    api: stripe.StripeClient  # Stripe's library, connected directly to the sandbox
    card: str = CARDS[RefundOutcome.DONE]

    async def pay(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        await self.buyer.pay(created, self.card)

    async def decline(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        await self.buyer.decline(created)

    async def refund_in_dashboard(self, capture: Capture, amount_minor: int) -> None:
        params: stripe.params.RefundCreateParams = {
            "payment_intent": capture.reference,
            "amount": amount_minor,
        }
        await self.api.v1.refunds.create_async(params)

    @asynccontextmanager
    async def undecided(
        self, created: SessionCreated, request: GatewaySessionRequest
    ) -> AsyncGenerator[None]:
        assert self.faults is not None
        with self.faults.rewriting(_with_a_new_status):
            yield

    async def set_refunds(self, outcome: RefundOutcome) -> None:
        self.card = CARDS[outcome]

    async def settle_refund(self, request: GatewayRefundRequest, outcome: RefundOutcome) -> None:
        assert request.reference is not None
        await self.buyer.decide(request.reference, STATUSES[outcome])

    async def get_refunded_minor(self, capture: Capture) -> int:
        params: stripe.params.RefundListParams = {"payment_intent": capture.reference, "limit": 100}
        page = await self.api.v1.refunds.list_async(params)
        return sum(item.amount for item in page.data if item.status in REFUNDED_STATUSES)

    async def dispute(self, capture: Capture) -> str:
        return await self.buyer.dispute(capture.reference)

    async def win(self, dispute: str) -> None:
        await self.buyer.decide_dispute(dispute, "won")

    def payload(self, callback: CallbackRequest) -> bytes:
        return callback.body

    def signed(self, payload: bytes, account: GatewayAccount) -> CallbackRequest:
        return _signed(payload, account, int(time.time()))

    def restate(self, payload: bytes, *, amount: str = "", currency: str = "") -> bytes | None:
        if not currency:
            return None
        facts = json.loads(payload)
        facts["data"]["object"]["currency"] = currency.lower()
        return json.dumps(facts).encode()

    def forgeries(self, callback: CallbackRequest) -> Mapping[str, CallbackRequest]:
        signature = callback.headers["stripe-signature"]
        stamp, _, digest = signature.partition(",v1=")
        forged = {
            "no signature": None,
            "an empty signature": "",
            "no digest": f"{stamp},v1=",
            "no time": f"v1={digest}",
            "another digest": f"{stamp},v1={'0' * 64}",
            "another scheme": f"{stamp},v0={digest}",
            "in upper case": f"{stamp},v1={digest.upper()}",
            "another time": f"t={int(stamp[2:]) + 1},v1={digest}",
            "two times, the wrong one first": f"t={int(stamp[2:]) + 1},{signature}",
            "two wrong digests": f"{stamp},v1={'0' * 64},v1={'f' * 64}",
        }
        old = _signed(callback.body, self.account, int(time.time()) - TOO_OLD_S)
        new = _signed(callback.body, self.account, int(time.time()) + 2 * TOO_OLD_S)
        changed = {name: _with(callback, header) for name, header in forged.items()}
        return changed | {"old": old, "in the future": new}


@asynccontextmanager
async def open_harness(fixtures: pytest.FixtureRequest) -> AsyncGenerator[Harness]:
    folder: Path = fixtures.getfixturevalue("tmp_path_factory").mktemp("stripe")
    async with receiving() as receiver, aiohttp.ClientSession() as http:
        environment = {
            "STRIPE_WEBHOOK_URL": receiver.url,
            "STRIPE_WEBHOOK_SECRET": sandbox.WEBHOOK_SECRET,
        }
        with running_stripe(folder / "log", **environment) as url:
            async with faulty(url) as faults:
                patient_client, hurried_client = patient(), hurried()
                harness = StripeHarness(
                    gateway=StripeGateway(patient_client),
                    hurried=StripeGateway(hurried_client),
                    account=_account(faults, sandbox.credentials()),
                    other_account=_account(faults, sandbox.other_credentials()),
                    faults=faults,
                    receiver=receiver,
                    currency="THB",
                    amount_minor=159_000,
                    failures=FAILURES,
                    unknown_reference=None,
                    public=frozenset({"publishable_key", "script_url"}),
                    **vars(TRAITS["stripe"]),
                    buyer=Buyer(url, http),
                    api=official(url, http),
                )
                receiver.serve(harness.gateway, harness.account)
                yield harness
                await patient_client.close()
                await hurried_client.close()


def _with_a_new_status(body: bytes) -> bytes:
    return json.dumps(json.loads(body) | {"status": "requires_patience"}).encode()


def official(url: str, http: aiohttp.ClientSession) -> stripe.StripeClient:
    """Create a client with Stripe's library, for the sandbox."""
    client = stripe.AIOHTTPClient(session=http)
    return stripe.StripeClient(sandbox.SECRET_KEY, base_addresses={"api": url}, http_client=client)


def _account(faults: FaultProxy, credentials: dict[str, str]) -> GatewayAccount:
    return GatewayAccount(id=1, provider="stripe", base_url=faults.url, credentials=credentials)


def _signed(body: bytes, account: GatewayAccount, timestamp: int) -> CallbackRequest:
    secret = account.credentials["webhook_secret"].encode()
    content = f"{timestamp}.".encode() + body
    signature = f"t={timestamp},v1={hmac.new(secret, content, hashlib.sha256).hexdigest()}"
    headers = {"content-type": "application/json", "stripe-signature": signature}
    return CallbackRequest(method="POST", headers=headers, query={}, body=body)


def _with(callback: CallbackRequest, signature: str | None) -> CallbackRequest:
    headers = {**callback.headers, "stripe-signature": signature}
    present = {name: value for name, value in headers.items() if value is not None}
    return replace(callback, headers=present)
