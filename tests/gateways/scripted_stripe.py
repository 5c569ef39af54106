"""A fake Stripe that returns prepared responses in order, and records the requests."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID, uuid4

from aiohttp import web

from payintent.core import ids
from payintent.gateways.port import (
    Capture,
    GatewayAccount,
    GatewayRefundRequest,
    GatewaySessionRef,
    GatewaySessionRequest,
)
from tests.support.http_server import clean_up
from tests.support.stripe import credentials

NOW = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)


@dataclass(frozen=True)
class StripeRequest:
    method: str
    path: str
    headers: dict[str, str]
    form: dict[str, str]  # of the body or, if it is empty, of the query


@dataclass
class FakeStripe:
    url: str = ""
    responses: list[tuple[int, bytes]] = field(default_factory=list)
    requests: list[StripeRequest] = field(default_factory=list)

    def respond(self, body: Any, status: int = 200) -> None:
        self.responses.append(
            (status, body if isinstance(body, bytes) else json.dumps(body).encode())
        )

    def respond_error(self, status: int, **error: str) -> None:
        body = {"type": "invalid_request_error", "message": "about sk_test_one"} | error
        self.respond({"error": body}, status)

    @property
    def account(self) -> GatewayAccount:
        return GatewayAccount(id=1, provider="stripe", base_url=self.url, credentials=credentials())

    async def handle(self, request: web.Request) -> web.Response:
        body = (await request.read()).decode()
        encoded = body or request.query_string
        form = dict(parse_qsl(encoded, keep_blank_values=True))
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append(StripeRequest(request.method, request.path, headers, form))
        status, response = self.responses.pop(0)
        return web.Response(status=status, body=response, content_type="application/json")


@asynccontextmanager
async def serve_fake_stripe() -> AsyncGenerator[FakeStripe]:
    stripe = FakeStripe()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", stripe.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    stripe.url = f"http://{host}:{port}"
    try:
        yield stripe
    finally:
        await clean_up(runner)


def order(**changes: Any) -> GatewaySessionRequest:
    fields: dict[str, Any] = {
        "session_id": uuid4(),
        "amount_minor": 159_000,
        "currency": "THB",
        "kind": "card",
        "country": "TH",
        "description": "Nimbus Books pay_1",
        "opened_at": NOW,
        "expires_at": NOW,
        "return_url": "https://shop.example/return",
        "callback_url": "https://pay.example/v1/callbacks/stripe/1",
        "payer_email": "buyer@example.com",
        "payment_id": UUID(int=7),
        "order_id": "B-1001",
    }
    return GatewaySessionRequest(**(fields | changes))


def ref(request: GatewaySessionRequest, reference: str | None = "pi_1") -> GatewaySessionRef:
    return GatewaySessionRef(
        session_id=request.session_id,
        reference=reference,
        amount_minor=request.amount_minor,
        currency=request.currency,
        opened_at=request.opened_at,
        payment_id=request.payment_id,
        order_id=request.order_id,
    )


def refund_request(**changes: Any) -> GatewayRefundRequest:
    fields: dict[str, Any] = {
        "refund_id": uuid4(),
        "reference": None,
        "session": None,
        "capture": Capture(reference="pi_1", amount_minor=159_000, currency="THB"),
        "amount_minor": 50_000,
        "reason": "it was late",
        "destination": None,
        "callback_url": "https://pay.example/v1/callbacks/stripe/1",
    }
    return GatewayRefundRequest(**(fields | changes))


def intent(request: GatewaySessionRequest, **changes: Any) -> dict[str, Any]:
    """Return a payment intent in the format of the pinned version."""
    fields: dict[str, Any] = {
        "id": "pi_1",
        "object": "payment_intent",
        "amount": request.amount_minor,
        "amount_received": 0,
        "client_secret": "pi_1_secret_2",
        "currency": request.currency.lower(),
        "last_payment_error": None,
        "latest_charge": None,
        "metadata": {"session_id": session_text(request.session_id)},
        "status": "requires_payment_method",
    }
    if changes.get("status") == "succeeded":
        fields |= {"amount_received": fields["amount"], "latest_charge": "ch_1"}
    return fields | changes


def refund(refund_id: UUID | None, **changes: Any) -> dict[str, Any]:
    metadata = {"refund_id": ids.format_id(ids.REFUND, refund_id)} if refund_id else {}
    return {
        "id": "re_1",
        "object": "refund",
        "amount": 50_000,
        "currency": "thb",
        "metadata": metadata,
        "payment_intent": "pi_1",
        "status": "succeeded",
    } | changes


def dispute(**changes: Any) -> dict[str, Any]:
    """Return a dispute in the event format of the pinned version; `due_by` is the deadline."""
    evidence = {
        "due_by": changes.pop("due_by", int(NOW.timestamp()) + 7 * 24 * 3600),
        "enhanced_eligibility": {},
        "has_evidence": False,
        "past_due": False,
        "submission_count": 0,
    }
    return {
        "id": "du_1",
        "object": "dispute",
        "amount": 50_000,
        "balance_transactions": [{"id": "txn_1", "object": "balance_transaction", "net": -51_500}],
        "charge": "ch_1",
        "created": int(NOW.timestamp()),
        "currency": "thb",
        "enhanced_eligibility_types": [],
        "evidence": {"customer_email_address": "buyer@example.com", "receipt": None},
        "evidence_details": evidence,
        "is_charge_refundable": False,
        "livemode": False,
        "metadata": {},
        "payment_intent": "pi_1",
        "payment_method_details": {
            "type": "card",
            "card": {"brand": "visa", "case_type": "chargeback", "network_reason_code": "10.4"},
        },
        "reason": "fraudulent",
        "status": "needs_response",
    } | changes


def fraud_warning(**changes: Any) -> dict[str, Any]:
    """Return an early fraud warning in the event format of the pinned version."""
    return {
        "id": "issfr_1",
        "object": "radar.early_fraud_warning",
        "actionable": True,
        "charge": "ch_1",
        "created": int(NOW.timestamp()),
        "fraud_type": "made_with_stolen_card",
        "livemode": False,
        "payment_intent": "pi_1",
    } | changes


def page(*refunds: dict[str, Any], more: bool = False) -> dict[str, Any]:
    return {"object": "list", "url": "/v1/refunds", "data": list(refunds), "has_more": more}


def session_text(session_id: UUID) -> str:
    return ids.format_id(ids.SESSION, session_id)
