"""The adapter for 2C2P's hosted page (PGW 4.3): all messages are signed JWTs.

An invoice is one session, and is paid once at most. 2C2P closes nothing: its payment token expires
half an hour after it was made, and a payment that the buyer began by then is waited for.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Any, TypeGuard
from uuid import UUID

import msgspec

from payintent.domain import ids
from payintent.domain.gateway import (
    AccountCheck,
    CallbackAnswer,
    CallbackRequest,
    Capture,
    DisputeReport,
    GatewayAccount,
    GatewayCapabilities,
    GatewayRefundRequest,
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
from payintent.domain.payment import FailureReason
from payintent.gateways.account_check import refused
from payintent.gateways.http_client import GatewayHttpClient, HttpAnswer, decode_json, unusable
from payintent.gateways.minor_units import read_capture
from payintent.gateways.twoc2p import response_codes as codes
from payintent.gateways.twoc2p.account_check import TwoC2pAccountCheck
from payintent.gateways.twoc2p.addresses import LIVE, ORIGINS, PAGE_ORIGINS, SANDBOX
from payintent.gateways.twoc2p.amounts import DECIMALS
from payintent.gateways.twoc2p.jwt import InvalidTokenError, sign_jwt, verify_jwt
from payintent.gateways.twoc2p.messages import TwoC2pEnvelope, TwoC2pPayment, TwoC2pToken
from payintent.gateways.twoc2p.orders import (
    TOKEN_LIFE_S,
    ends_at,
    invoice_no,
    merchant_id_of,
    write_order,
)
from payintent.gateways.twoc2p.refunds import TwoC2pRefundApi

#: Clocks differ, and a buyer may press the button in the last second.
TOKEN_MARGIN_S = 5 * 60
DETAIL_CHARS_MAX = 200

#: Where 2C2P has merchants: an account's agreement names some of them, and so do its methods.
COUNTRIES = frozenset({"TH", "ID", "PH", "SG", "MY", "HK", "TW", "VN", "KH"})
_OFFSET = re.compile(r"[+-](0[0-9]|1[0-4]):[0-5][0-9]")
_INVOICE = re.compile(r"[0-9A-Za-z._-]{1,50}")  # other shops of the merchant use their own form
_TRAN_REF = re.compile(r"[0-9A-Za-z_-]{0,50}")
_PAGE_URL = re.compile(r"https?://[^\s/].{0,2036}")
_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class _Answer:
    """A readable answer: JSON, and whether it is signed with the account's key."""

    status: int
    content: bytes
    signed: bool


class TwoC2pGateway:
    """2C2P, as a `Gateway`.

    Credentials: `merchant_id`, `secret_key`; for refunds `merchant_private_key` and
    `gateway_public_key`, both PEM; `utc_offset`, such as `+08:00`, the clock by which 2C2P reads
    deadlines for this merchant. They may name `page_url` and `maintenance_url`.
    """

    provider = "2c2p"
    capabilities = GatewayCapabilities(
        credentials=frozenset(
            {
                *("merchant_id", "secret_key", "merchant_private_key", "gateway_public_key"),
                "utc_offset",
            }
        ),
        decimals=DECIMALS,
        optional_credentials=frozenset({"page_url", "maintenance_url"}),
        countries=COUNTRIES,
        origins=ORIGINS,
        page_origins=PAGE_ORIGINS,
        livemode_of=lambda base_url, _: {LIVE: True, SANDBOX: False}.get(base_url.rstrip("/")),
    )

    def __init__(self, http: GatewayHttpClient, now: Callable[[], float] = time.time) -> None:
        self._http = http
        self._now = now
        self._maintenance = TwoC2pRefundApi(http, now)

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> SessionCreated | SessionRejected | OutcomeUnknown:
        """Request a payment token; the session's id is both invoice and idempotency key.

        2C2P closes no session, so a session is opened only with the payment's deadline.
        """
        if not _OFFSET.fullmatch(account.credentials.get("utc_offset", "")):
            return SessionRejected(
                detail="the account's utc_offset is missing, or is not like +08:00"
            )
        said = await self._ask(account, "paymentToken", write_order(account, request))
        if isinstance(said, OutcomeUnknown):
            return said
        token = decode_json(said.content, TwoC2pToken)
        if token is None:
            return unusable(said.status, f"unreadable answer to a creation, status {said.status}")
        if token.respCode == codes.OK and said.signed and _is_page(token.webPaymentUrl):
            return _created(account, request, token.webPaymentUrl)
        # A refusal may be unsigned, for a server that cannot read us cannot sign for us. It may be
        # believed: without a page no buyer can pay.
        if token.respCode == codes.OK or token.respCode in codes.UNSETTLED:
            detail = _detail(token.respCode, token.respDesc)
            return OutcomeUnknown(detail=detail, answered=said.signed)
        return SessionRejected(detail=_detail(token.respCode, token.respDesc))

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        """Report the state of a session: its token expires by itself, never earlier."""
        return await self.inquire(account, session)

    async def inquire(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        """Ask for the state of an invoice; only a signed answer is believed."""
        invoice = invoice_no(session.session_id)
        query = {"merchantID": merchant_id_of(account), "invoiceNo": invoice, "locale": "en"}
        said = await self._ask(account, "paymentInquiry", msgspec.json.encode(query))
        if isinstance(said, OutcomeUnknown):
            return said
        payment = decode_json(said.content, TwoC2pPayment) if said.signed else None
        if payment is None:
            return unusable(said.status, f"unsigned or unreadable answer, status {said.status}")
        if payment.merchantID not in {None, "", merchant_id_of(account)}:
            return OutcomeUnknown(detail="the answer is about another merchant", answered=True)
        if payment.respCode in codes.NOT_FOUND and payment.invoiceNo in {None, "", invoice}:
            return self._unpaid(account, session)
        if payment.respCode in codes.STATES and payment.invoiceNo != invoice:
            return OutcomeUnknown(detail="the answer is about another invoice", answered=True)
        return self._inquired(payment)

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        facts = _verified(account, request.body)
        payment, merchant_id = decode_json(facts, TwoC2pPayment), merchant_id_of(account)
        if payment is None or payment.merchantID != merchant_id or not _is_named(payment):
            raise InvalidCallbackError("the signed body cannot be read, or is another merchant's")
        # Built from the facts: a repeated notification may have other bytes.
        callback_id = f"{payment.invoiceNo}.{payment.tranRef or ''}.{payment.respCode}"
        try:
            report = _report(payment)
        except ValueError:
            raise InvalidCallbackError("the signed body contradicts itself") from None
        session_id = ids.parse_id(ids.SESSION, payment.userDefined1 or "")
        if session_id is not None and invoice_no(session_id) != payment.invoiceNo:
            raise InvalidCallbackError("the signed body names two sessions")
        if report is None:  # verified, but without a result: an inquiry follows
            return VerifiedCallback(id=callback_id, facts=facts)
        return VerifiedCallback(
            id=callback_id,
            session_id=session_id,
            report=report,
            dispute=_dispute(payment, report),
            facts=facts,
        )

    def acknowledge(self, callback: VerifiedCallback) -> CallbackAnswer:  # noqa: ARG002 - the port's shape
        return CallbackAnswer(body=b"OK", content_type="text/plain")

    async def refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        """Refund a settled payment; void the whole of one that is not settled."""
        return await self._maintenance.refund(account, request)

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        return await self._maintenance.inquire(account, request)

    def classify_failure(self, code: str) -> FailureReason:
        return codes.FAILURES.get(code, FailureReason.UNKNOWN)

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        if not _OFFSET.fullmatch(account.credentials.get("utc_offset", "")):
            return refused("utc_offset is missing, or is not like +08:00")
        return await TwoC2pAccountCheck(self._http, self._maintenance, self._now).run(account)

    def _unpaid(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        """Decide an unpaid invoice: while a token may be valid, the buyer may still pay."""
        age_s = self._now() - session.opened_at.timestamp()
        over = age_s >= TOKEN_LIFE_S + TOKEN_MARGIN_S
        if session.reference == _reference(account, session.session_id):
            return SessionReport(
                state=GatewaySessionState.CLOSED if over else GatewaySessionState.OPEN
            )
        if session.reference is None and not over:
            return OutcomeUnknown(
                detail="not paid, and a token may have been made or not", answered=True
            )
        return SessionReport(state=GatewaySessionState.ABSENT)

    def _inquired(self, payment: TwoC2pPayment) -> SessionReport | OutcomeUnknown:
        try:
            report = _report(payment)
        except ValueError:
            return OutcomeUnknown(detail="the answer contradicts itself", answered=True)
        if report is None:
            detail = _detail(payment.respCode, payment.respDesc)
            return OutcomeUnknown(detail=detail, answered=True)
        if report.state is GatewaySessionState.ATTEMPTED:  # only callbacks report this state
            return SessionReport(state=GatewaySessionState.OPEN)
        return report

    async def _ask(
        self, account: GatewayAccount, name: str, content: bytes
    ) -> _Answer | OutcomeUnknown:
        url = f"{account.base_url.rstrip('/')}/payment/4.3/{name}"
        secret = account.credentials.get("secret_key", "")
        body = msgspec.json.encode({"payload": sign_jwt(content, secret)})
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        answer = await self._http.request("POST", url, headers=headers, body=body)
        return answer if isinstance(answer, OutcomeUnknown) else _read_answer(answer, secret)


def _reference(account: GatewayAccount, session_id: UUID) -> str:
    """Return the reference of a token: an invoice number is unique within one merchant."""
    return f"{merchant_id_of(account)}.{invoice_no(session_id)}"


def _is_page(url: str | None) -> TypeGuard[str]:
    return url is not None and _PAGE_URL.fullmatch(url) is not None


def _created(account: GatewayAccount, request: GatewaySessionRequest, url: str) -> SessionCreated:
    over_at = ends_at(request).astimezone(UTC).isoformat(timespec="milliseconds")
    redirect: dict[str, Any] = {
        "url": url,
        "method": "GET",
        "fields": {},
        "expires_at": over_at.replace("+00:00", "Z"),
    }
    return SessionCreated(
        reference=_reference(account, request.session_id),
        next_action={"type": "redirect", "redirect": redirect},
    )


def _read_answer(answer: HttpAnswer, secret: str) -> _Answer | OutcomeUnknown:
    failed = answer.status >= _SERVER_ERROR
    try:
        envelope = msgspec.json.decode(answer.body, type=TwoC2pEnvelope)
        content = verify_jwt(envelope.payload, secret)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if failed:
            return OutcomeUnknown(detail=f"status {answer.status}")
        return _Answer(answer.status, answer.body, signed=False)
    except InvalidTokenError as bad:
        return unusable(answer.status, f"status {answer.status}: {bad}")
    if failed:
        return OutcomeUnknown(detail=f"status {answer.status}", answered=True)
    return _Answer(answer.status, content, signed=True)


def _verified(account: GatewayAccount, body: bytes) -> bytes:
    try:
        envelope = msgspec.json.decode(body, type=TwoC2pEnvelope)
        return verify_jwt(envelope.payload, account.credentials.get("secret_key", ""))
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidCallbackError("the body is no payload") from None
    except InvalidTokenError as bad:
        raise InvalidCallbackError(str(bad)) from None


def _report(payment: TwoC2pPayment) -> SessionReport | None:
    """Map the gateway's answer; None for a code without a result, ValueError for invalid data."""
    state = codes.STATES.get(payment.respCode)
    if state is None:
        return None
    if state is GatewaySessionState.CAPTURED:
        return SessionReport(state=state, capture=_capture(payment))
    declined = state in {GatewaySessionState.DECLINED, GatewaySessionState.ATTEMPTED}
    return SessionReport(
        state=state, reason=codes.FAILURES.get(payment.respCode) if declined else None
    )


def _dispute(payment: TwoC2pPayment, report: SessionReport) -> DisputeReport | None:
    """Read a chargeback: of the whole transaction, without an own id or a deadline."""
    code = payment.respCode
    disputed = codes.DISPUTES.get(code)
    if disputed is None or report.capture is None:
        return None
    state, funds = disputed
    return DisputeReport(
        reference=report.capture.reference,
        capture=report.capture.reference,
        state=state,
        funds=funds,
        amount_minor=report.capture.amount_minor,
        currency=report.capture.currency,
        reason="".join(char for char in _detail(code, payment.respDesc) if char.isprintable()),
    )


def _capture(payment: TwoC2pPayment) -> Capture:
    """Build the capture; its reference includes the invoice, by which alone it can be refunded.

    Some answers lack `tranRef`. Their reference ends with the dot, and a later report completes it.
    """
    if not _is_named(payment):
        raise ValueError("money without a reference")
    text = _without_padding(bytes(payment.amount).decode().strip('"'))
    reference = f"{payment.invoiceNo}.{payment.tranRef or ''}"
    capture = read_capture(reference, text, payment.currencyCode or "")
    otherwise = codes.TAKEN_OTHERWISE.get(payment.respCode)
    if otherwise is None:
        return capture
    words = f"{text} {payment.currencyCode}, response {payment.respCode} ({otherwise})"
    return replace(capture, verbatim=words, uncertain=True)


def _without_padding(amount: str) -> str:
    """Remove zeros that mean nothing, which only notifications contain."""
    whole, point, places = amount.partition(".")
    if not whole.isdigit() or (point and not places.isdigit()):
        return amount
    places = places.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{places}" if places else "")


def _is_named(payment: TwoC2pPayment) -> bool:
    invoice, reference = payment.invoiceNo or "", payment.tranRef or ""
    return bool(_INVOICE.fullmatch(invoice) and _TRAN_REF.fullmatch(reference))


def _detail(code: str, description: str | None) -> str:
    return f"response {code}: {(description or '')[:DETAIL_CHARS_MAX]}"
