"""A configurable gateway, which asserts that it is never called inside a transaction."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import msgspec

from payintent.db.database import in_transaction
from payintent.gateways.port import (
    AccountCheck,
    CallbackRequest,
    CallbackResponse,
    Capture,
    DisputeReport,
    FailureReason,
    GatewayAccount,
    GatewayCapabilities,
    GatewayRefundRequest,
    GatewayRefundState,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    InvalidCallbackError,
    OutcomeUnknown,
    RefundReport,
    SessionCreated,
    SessionRejected,
    SessionReport,
    VerifiedCallback,
)


class FakeGateway:
    """Records its requests. `answer_…` sets its responses, and `hold` delays them."""

    provider = "fake"
    capabilities = GatewayCapabilities(
        credentials=frozenset({"signing_secret"}),
        card_brands=("Visa", "Mastercard"),
        optional_credentials=frozenset({"api_key", "page_url", "script_url"}),
        decimals=None,
        origins=frozenset({"https://gateway.example.com"}),
    )

    def __init__(self) -> None:
        self.created: list[GatewaySessionRequest] = []
        self.closed: list[UUID] = []
        self.inquired: list[UUID] = []
        self.answer_create: Callable[
            [GatewaySessionRequest], SessionCreated | SessionRejected | OutcomeUnknown
        ] = accept
        self.answer_close: SessionReport | OutcomeUnknown = SessionReport(
            state=GatewaySessionState.CLOSED
        )
        self.answer_inquire: SessionReport | OutcomeUnknown = SessionReport(
            state=GatewaySessionState.OPEN
        )
        self.refunds: list[GatewayRefundRequest] = []
        self.refunds_inquired: list[GatewayRefundRequest] = []
        self.answer_refund: RefundReport | OutcomeUnknown = RefundReport(
            state=GatewayRefundState.DONE
        )
        self.answer_inquire_refund: RefundReport | OutcomeUnknown = RefundReport(
            state=GatewayRefundState.DONE
        )
        self.answer_check = AccountCheck(problem=None, detail="as it should be")
        self.hold: asyncio.Event | None = None  # `create_session` waits for this event
        self.asked = asyncio.Event()  # set when `create_session` is called

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> SessionCreated | SessionRejected | OutcomeUnknown:
        _outside()
        self.created.append(request)
        self.asked.set()
        if self.hold is not None:
            await self.hold.wait()
        return self.answer_create(request)

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        _outside()
        self.closed.append(session.session_id)
        return self.answer_close

    async def inquire(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        _outside()
        self.inquired.append(session.session_id)
        return self.answer_inquire

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        if request.headers.get("fake-signature") != account.credentials["signing_secret"]:
            raise InvalidCallbackError("not signed")
        fields = msgspec.json.decode(request.body)
        report = fields.get("report")
        return VerifiedCallback(
            id=fields["id"],
            session_id=UUID(fields["session_id"]) if fields.get("session_id") else None,
            report=msgspec.convert(report, SessionReport) if report else None,
            refund_id=UUID(fields["refund_id"]) if fields.get("refund_id") else None,
            refund=msgspec.convert(fields["refund"], RefundReport) if "refund" in fields else None,
            dispute=(
                msgspec.convert(fields["dispute"], DisputeReport) if "dispute" in fields else None
            ),
        )

    def acknowledge(self, callback: VerifiedCallback) -> CallbackResponse:
        return CallbackResponse(body=b'{"received":true}')

    async def refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        _outside()
        self.refunds.append(request)
        return self.answer_refund

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        _outside()
        self.refunds_inquired.append(request)
        return self.answer_inquire_refund

    def classify_failure(self, code: str) -> FailureReason:
        return FailureReason.UNKNOWN

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        _outside()
        return self.answer_check


def accept(request: GatewaySessionRequest) -> SessionCreated:
    return SessionCreated(
        reference=f"ref-{request.session_id}",
        next_action={
            "type": "redirect",
            "redirect": {"url": "http://gateway.test/pay", "method": "GET", "fields": {}},
        },
    )


def captured(amount_minor: int, currency: str = "THB", reference: str = "cap-1") -> SessionReport:
    return SessionReport(
        state=GatewaySessionState.CAPTURED,
        capture=Capture(reference=reference, amount_minor=amount_minor, currency=currency),
    )


def declined(reason: FailureReason = FailureReason.DECLINED) -> SessionReport:
    return SessionReport(state=GatewaySessionState.DECLINED, reason=reason)


def _outside() -> None:
    assert not in_transaction.get(), "a gateway was called inside a transaction"
