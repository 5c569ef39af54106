"""A gateway that does as it is told, and asserts that nobody calls it inside a transaction."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import msgspec

from payintent.domain.gateway import (
    Account,
    Ack,
    BadCallback,
    Callback,
    CallbackRequest,
    Capabilities,
    Capture,
    Created,
    DisputeReport,
    RefundReport,
    RefundRequest,
    RefundState,
    Rejected,
    Report,
    SessionRef,
    SessionRequest,
    SessionState,
    Unknown,
)
from payintent.domain.payment import FailureReason
from payintent.storage.database import in_transaction


class FakeGateway:
    """Remembers what it was asked; `answer_…` say what it answers, `hold` lets it wait."""

    provider = "fake"
    capabilities = Capabilities(
        credentials=frozenset({"signing_secret"}),
        decimals=None,
        origins=frozenset({"https://gateway.example.com"}),
    )

    def __init__(self) -> None:
        self.created: list[SessionRequest] = []
        self.closed: list[UUID] = []
        self.inquired: list[UUID] = []
        self.answer_create: Callable[[SessionRequest], Created | Rejected | Unknown] = accept
        self.answer_close: Report | Unknown = Report(state=SessionState.CLOSED)
        self.answer_inquire: Report | Unknown = Report(state=SessionState.OPEN)
        self.refunds: list[RefundRequest] = []
        self.refunds_inquired: list[RefundRequest] = []
        self.answer_refund: RefundReport | Unknown = RefundReport(state=RefundState.DONE)
        self.answer_inquire_refund: RefundReport | Unknown = RefundReport(state=RefundState.DONE)
        self.hold: asyncio.Event | None = None  # creations wait for it
        self.asked = asyncio.Event()  # a creation has come in

    async def create_session(
        self, account: Account, request: SessionRequest
    ) -> Created | Rejected | Unknown:
        _outside()
        self.created.append(request)
        self.asked.set()
        if self.hold is not None:
            await self.hold.wait()
        return self.answer_create(request)

    async def close_session(self, account: Account, session: SessionRef) -> Report | Unknown:
        _outside()
        self.closed.append(session.session_id)
        return self.answer_close

    async def inquire(self, account: Account, session: SessionRef) -> Report | Unknown:
        _outside()
        self.inquired.append(session.session_id)
        return self.answer_inquire

    def parse_callback(self, account: Account, request: CallbackRequest) -> Callback:
        if request.headers.get("fake-signature") != account.credentials["signing_secret"]:
            raise BadCallback("not signed")
        fields = msgspec.json.decode(request.body)
        report = fields.get("report")
        return Callback(
            id=fields["id"],
            session_id=UUID(fields["session_id"]) if fields.get("session_id") else None,
            report=msgspec.convert(report, Report) if report else None,
            refund_id=UUID(fields["refund_id"]) if fields.get("refund_id") else None,
            refund=msgspec.convert(fields["refund"], RefundReport) if "refund" in fields else None,
            dispute=(
                msgspec.convert(fields["dispute"], DisputeReport) if "dispute" in fields else None
            ),
        )

    def acknowledge(self, callback: Callback) -> Ack:
        return Ack(body=b'{"received":true}')

    async def refund(self, account: Account, request: RefundRequest) -> RefundReport | Unknown:
        _outside()
        self.refunds.append(request)
        return self.answer_refund

    async def inquire_refund(
        self, account: Account, request: RefundRequest
    ) -> RefundReport | Unknown:
        _outside()
        self.refunds_inquired.append(request)
        return self.answer_inquire_refund

    def classify_failure(self, code: str) -> FailureReason:
        return FailureReason.UNKNOWN


def accept(request: SessionRequest) -> Created:
    return Created(
        reference=f"ref-{request.session_id}",
        next_action={
            "type": "redirect",
            "redirect": {"url": "http://gateway.test/pay", "method": "GET", "fields": {}},
        },
    )


def captured(amount_minor: int, currency: str = "THB", reference: str = "cap-1") -> Report:
    return Report(
        state=SessionState.CAPTURED,
        capture=Capture(reference=reference, amount_minor=amount_minor, currency=currency),
    )


def declined(reason: FailureReason = FailureReason.DECLINED) -> Report:
    return Report(state=SessionState.DECLINED, reason=reason)


def _outside() -> None:
    assert not in_transaction.get(), "a gateway was called inside a transaction"
