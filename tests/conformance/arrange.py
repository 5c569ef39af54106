"""Setup shared by the kit's tests: sessions, payments, refunds and their callbacks."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from payintent.gateways.port import (
    CallbackRequest,
    Capture,
    GatewayRefundRequest,
    GatewayRefundState,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    RefundReport,
    SessionCreated,
    SessionReport,
    VerifiedCallback,
)
from tests.conformance.harness import Harness, RefundOutcome

PART = 3  # a partial refund is a third of the capture


@dataclass(frozen=True)
class OpenedSession:
    request: GatewaySessionRequest
    created: SessionCreated

    @property
    def ref(self) -> GatewaySessionRef:
        return ref_to(self.request, self.created.reference)


@dataclass(frozen=True)
class PaidSession(OpenedSession):
    capture: Capture


def ref_to(request: GatewaySessionRequest, reference: str | None) -> GatewaySessionRef:
    return GatewaySessionRef(
        session_id=request.session_id,
        reference=reference,
        amount_minor=request.amount_minor,
        currency=request.currency,
        opened_at=request.opened_at,
    )


async def create(harness: Harness, request: GatewaySessionRequest) -> OpenedSession:
    """Open a session, and show it to the buyer."""
    created = await harness.gateway.create_session(harness.account, request)
    assert isinstance(created, SessionCreated), created
    await harness.visit(created, request)
    return OpenedSession(request, created)


async def open_session(harness: Harness, **changes: Any) -> OpenedSession:
    return await create(harness, harness.request(**changes))


async def open_paid_session(harness: Harness) -> PaidSession:
    session = await open_session(harness)
    await harness.pay(session.created, session.request)
    report = await inquire(harness, session.ref)
    assert report.capture is not None, report
    return PaidSession(session.request, session.created, report.capture)


async def inquire(harness: Harness, session: GatewaySessionRef) -> SessionReport:
    report = await harness.gateway.inquire(harness.account, session)
    assert isinstance(report, SessionReport), report
    return report


@asynccontextmanager
async def refund_outcome(harness: Harness, outcome: RefundOutcome) -> AsyncGenerator[None]:
    await harness.set_refunds(outcome)
    try:
        yield
    finally:
        await harness.set_refunds(RefundOutcome.DONE)


def make_refund_request(
    harness: Harness, money: PaidSession, amount_minor: int | None = None
) -> GatewayRefundRequest:
    return GatewayRefundRequest(
        refund_id=uuid4(),
        reference=None,
        session=money.ref,
        capture=money.capture,
        amount_minor=money.capture.amount_minor if amount_minor is None else amount_minor,
        reason="requested by customer",
        destination=None,
        callback_url=harness.receiver.url,
    )


async def request_refund(
    harness: Harness, request: GatewayRefundRequest, state: GatewayRefundState
) -> GatewayRefundRequest:
    """Request a refund that reaches a state; return the request with the gateway's reference."""
    report = await harness.gateway.refund(harness.account, request)
    assert isinstance(report, RefundReport), report
    sent_request = replace(request, reference=report.reference or request.reference)
    if state is GatewayRefundState.DONE and not harness.refunds_at_once:
        return await _settle_refund(harness, sent_request)
    assert report.state is state, report
    return sent_request


async def _settle_refund(harness: Harness, request: GatewayRefundRequest) -> GatewayRefundRequest:
    if await get_refund_state(harness, request) is GatewayRefundState.PENDING:
        await harness.settle_refund(request, RefundOutcome.DONE)
    assert await get_refund_state(harness, request) is GatewayRefundState.DONE
    return request


async def get_refund_state(harness: Harness, request: GatewayRefundRequest) -> GatewayRefundState:
    report = await harness.gateway.inquire_refund(harness.account, request)
    assert isinstance(report, RefundReport), report
    return report.state


async def wait_for_session_callback(
    harness: Harness, session: OpenedSession, *states: GatewaySessionState
) -> tuple[CallbackRequest, VerifiedCallback]:
    """Wait for the callback that reports any of these states of a session."""

    def matches(callback: VerifiedCallback) -> bool:
        about = callback.session_id == session.request.session_id
        return about and callback.report is not None and callback.report.state in states

    return await harness.receiver.wait_for(matches)


async def wait_for_refund_callback(
    harness: Harness, request: GatewayRefundRequest, state: GatewayRefundState
) -> tuple[CallbackRequest, VerifiedCallback]:
    """Wait for the callback that reports this state of a refund."""

    def matches(callback: VerifiedCallback) -> bool:
        about = callback.refund_id == request.refund_id
        return about and callback.refund is not None and callback.refund.state is state

    return await harness.receiver.wait_for(matches)
