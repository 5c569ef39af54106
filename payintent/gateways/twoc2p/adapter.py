"""The adapter for 2C2P's hosted page (PGW 4.3): all messages are signed JWTs.

A session is an invoice, which is paid at most once. 2C2P cannot close an invoice: its payment token
expires half an hour after its creation, and a payment that began before may still complete.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeGuard
from uuid import UUID

from payintent.core import ids
from payintent.gateways.account_check import credentials_rejected
from payintent.gateways.http_client import (
    GatewayHttpClient,
    HttpAnswer,
    decode_json,
    inconclusive_response,
    printable_text,
    unusable_response,
)
from payintent.gateways.minor_units import parse_capture
from payintent.gateways.port import (
    AccountCheck,
    CallbackAnswer,
    CallbackRequest,
    Capture,
    CreationResult,
    DisputeReport,
    FailureReason,
    GatewayAccount,
    GatewayCapabilities,
    GatewayRefundRequest,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    InvalidCallbackError,
    OutcomeUnknown,
    RefundResult,
    SessionCreated,
    SessionRejected,
    SessionReport,
    SessionResult,
    VerifiedCallback,
)
from payintent.gateways.twoc2p import response_codes as codes
from payintent.gateways.twoc2p.account_check import check_twoc2p_account
from payintent.gateways.twoc2p.jwt import InvalidTokenError, open_envelope, post_jwt
from payintent.gateways.twoc2p.messages import (
    DECIMALS,
    LIVE,
    ORIGINS,
    PAGE_ORIGINS,
    SANDBOX,
    TOKEN_LIFE_S,
    TwoC2pPayment,
    TwoC2pToken,
    ends_at,
    inquiry,
    invoice_no,
    merchant_id_of,
    write_order,
)
from payintent.gateways.twoc2p.refunds import TwoC2pRefundApi

#: Clocks differ, and a buyer may pay in the last second.
TOKEN_MARGIN_S = 5 * 60
DETAIL_CHARS_MAX = 200

#: Countries of 2C2P's merchants; an account usually supports some of them.
COUNTRIES = frozenset({"TH", "ID", "PH", "SG", "MY", "HK", "TW", "VN", "KH"})
_OFFSET = re.compile(r"[+-](0[0-9]|1[0-4]):[0-5][0-9]")
_INVOICE = re.compile(r"[0-9A-Za-z._-]{1,50}")  # including those of the merchant's other shops
_TRAN_REF = re.compile(r"[0-9A-Za-z_-]{0,50}")
_PAGE_URL = re.compile(r"https?://[^\s/].{0,2036}")
_INVALID_OFFSET = "utc_offset is missing, or is not like +08:00"
_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class _Answer:
    """A JSON response, signed with the account's key or not signed."""

    status: int
    content: bytes
    is_signed: bool


class TwoC2pGateway:
    """2C2P, as a `Gateway`.

    Credentials: `merchant_id`, `secret_key`; for refunds `merchant_private_key` and
    `gateway_public_key`, both PEM; `utc_offset`, such as `+08:00`, the time zone of deadlines for
    this merchant; optionally `page_url` and `maintenance_url`.
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
    ) -> CreationResult:
        """Request a payment token; the session id is both the invoice and the idempotency key."""
        if not _OFFSET.fullmatch(account.credentials.get("utc_offset", "")):
            return SessionRejected(detail=f"the account's {_INVALID_OFFSET}")
        answer = await self._request(account, "paymentToken", write_order(account, request))
        if isinstance(answer, OutcomeUnknown):
            return answer
        token = decode_json(answer.content, TwoC2pToken)
        if token is None:
            detail = f"invalid response to a creation, status {answer.status}"
            return unusable_response(answer.status, detail)
        detail = _response_detail(token.respCode, token.respDesc)
        if token.respCode == codes.OK and answer.is_signed and _is_page(token.webPaymentUrl):
            reference = _reference(account, request.session_id)
            return SessionCreated.redirect(reference, token.webPaymentUrl, ends_at(request))
        # Refusals may be unsigned, because a server that cannot decode the request has no key to
        # sign with. They are safe to trust, because no buyer can pay without a page.
        if token.respCode == codes.OK or token.respCode in codes.UNSETTLED:
            return OutcomeUnknown(detail=detail, has_responded=answer.is_signed)
        return SessionRejected(detail=detail)

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionResult:
        """Query the session, which cannot be closed before its token expires."""
        return await self.inquire(account, session)

    async def inquire(self, account: GatewayAccount, session: GatewaySessionRef) -> SessionResult:
        """Query an invoice; only a signed response is trusted."""
        invoice = invoice_no(session.session_id)
        answer = await self._request(account, "paymentInquiry", inquiry(account, invoice))
        if isinstance(answer, OutcomeUnknown):
            return answer
        payment = decode_json(answer.content, TwoC2pPayment) if answer.is_signed else None
        if payment is None:
            detail = f"unsigned or invalid response, status {answer.status}"
            return unusable_response(answer.status, detail)
        if payment.merchantID not in {None, "", merchant_id_of(account)}:
            return inconclusive_response("the response is about another merchant")
        if payment.respCode in codes.NOT_FOUND and payment.invoiceNo in {None, "", invoice}:
            return self._unpaid_report(account, session)
        if payment.respCode in codes.STATES and payment.invoiceNo != invoice:
            return inconclusive_response("the response is about another invoice")
        return _inquiry_report(payment)

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        facts = _verified_facts(account, request.body)
        payment, merchant_id = decode_json(facts, TwoC2pPayment), merchant_id_of(account)
        if payment is None or payment.merchantID != merchant_id or not _has_reference(payment):
            raise InvalidCallbackError("the signed body is invalid or another merchant's")
        # Not a hash of the body, because a repeated notification may have other bytes.
        callback_id = f"{payment.invoiceNo}.{payment.tranRef or ''}.{payment.respCode}"
        try:
            report = _session_report(payment)
        except ValueError:
            raise InvalidCallbackError("the signed body contradicts itself") from None
        session_id = ids.parse_id(ids.SESSION, payment.userDefined1 or "")
        if session_id is not None and invoice_no(session_id) != payment.invoiceNo:
            raise InvalidCallbackError("the signed body refers to two sessions")
        if report is None:  # verified but inconclusive: an inquiry follows
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

    async def refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        """Refund a settled payment, or void an unsettled payment in full."""
        return await self._maintenance.refund(account, request)

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundResult:
        return await self._maintenance.inquire(account, request)

    def classify_failure(self, code: str) -> FailureReason:
        return codes.FAILURES.get(code, FailureReason.UNKNOWN)

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        if not _OFFSET.fullmatch(account.credentials.get("utc_offset", "")):
            return credentials_rejected(_INVALID_OFFSET)
        return await check_twoc2p_account(self._http, self._maintenance, account, self._now())

    def _unpaid_report(self, account: GatewayAccount, session: GatewaySessionRef) -> SessionResult:
        """Report an unpaid invoice; the buyer can still pay as long as a token may be valid."""
        age_s = self._now() - session.opened_at.timestamp()
        is_over = age_s >= TOKEN_LIFE_S + TOKEN_MARGIN_S
        if session.reference == _reference(account, session.session_id):
            return SessionReport(
                state=GatewaySessionState.CLOSED if is_over else GatewaySessionState.OPEN
            )
        if session.reference is None and not is_over:
            return inconclusive_response("not paid, but there may be a token")
        return SessionReport(state=GatewaySessionState.ABSENT)

    async def _request(
        self, account: GatewayAccount, name: str, content: bytes
    ) -> _Answer | OutcomeUnknown:
        answer = await post_jwt(self._http, account, name, content)
        if isinstance(answer, OutcomeUnknown):
            return answer
        return _parse_answer(answer, account.credentials.get("secret_key", ""))


def _reference(account: GatewayAccount, session_id: UUID) -> str:
    """Return the reference of a token; an invoice number is only unique within a merchant."""
    return f"{merchant_id_of(account)}.{invoice_no(session_id)}"


def _is_page(url: str | None) -> TypeGuard[str]:
    return url is not None and _PAGE_URL.fullmatch(url) is not None


def _parse_answer(answer: HttpAnswer, secret: str) -> _Answer | OutcomeUnknown:
    try:
        content = open_envelope(answer.body, secret)
    except InvalidTokenError as error:
        return unusable_response(answer.status, f"status {answer.status}: {error}")
    is_signed = content is not None
    if answer.status >= _SERVER_ERROR:
        return OutcomeUnknown(detail=f"status {answer.status}", has_responded=is_signed)
    return _Answer(answer.status, answer.body if content is None else content, is_signed)


def _verified_facts(account: GatewayAccount, body: bytes) -> bytes:
    try:
        facts = open_envelope(body, account.credentials.get("secret_key", ""))
    except InvalidTokenError as error:
        raise InvalidCallbackError(str(error)) from None
    if facts is None:
        raise InvalidCallbackError("the body has no payload")
    return facts


def _inquiry_report(payment: TwoC2pPayment) -> SessionResult:
    try:
        report = _session_report(payment)
    except ValueError:
        return inconclusive_response("the response contradicts itself")
    if report is None:
        detail = _response_detail(payment.respCode, payment.respDesc)
        return inconclusive_response(detail)
    if report.state is GatewaySessionState.ATTEMPTED:  # only callbacks report this state
        return SessionReport(state=GatewaySessionState.OPEN)
    return report


def _session_report(payment: TwoC2pPayment) -> SessionReport | None:
    """Map a payment to a report; None for an inconclusive code, ValueError for invalid data."""
    state = codes.STATES.get(payment.respCode)
    if state is None:
        return None
    if state is GatewaySessionState.CAPTURED:
        return SessionReport(state=state, capture=_capture(payment))
    is_declined = state in {GatewaySessionState.DECLINED, GatewaySessionState.ATTEMPTED}
    return SessionReport(
        state=state, reason=codes.FAILURES.get(payment.respCode) if is_declined else None
    )


def _dispute(payment: TwoC2pPayment, report: SessionReport) -> DisputeReport | None:
    """Report a chargeback, which has no id and no deadline, of the full transaction."""
    code = payment.respCode
    dispute = codes.DISPUTES.get(code)
    if dispute is None or report.capture is None:
        return None
    state, funds = dispute
    return DisputeReport(
        reference=report.capture.reference,
        capture=report.capture.reference,
        state=state,
        funds=funds,
        amount_minor=report.capture.amount_minor,
        currency=report.capture.currency,
        reason=printable_text(_response_detail(code, payment.respDesc)),
    )


def _capture(payment: TwoC2pPayment) -> Capture:
    """Build the capture; its reference includes the invoice, which refunds need.

    If `tranRef` is missing, the reference ends with the dot, and a later report completes it.
    """
    if not _has_reference(payment):
        raise ValueError("the capture has no reference")
    text = _without_padding(bytes(payment.amount).decode().strip('"'))
    reference = f"{payment.invoiceNo}.{payment.tranRef or ''}"
    capture = parse_capture(reference, text, payment.currencyCode or "")
    deviation = codes.DEVIATIONS.get(payment.respCode)
    if deviation is None:
        return capture
    verbatim = f"{text} {payment.currencyCode}, response {payment.respCode} ({deviation})"
    return replace(capture, verbatim=verbatim, uncertain=True)


def _without_padding(amount: str) -> str:
    """Remove the padding zeros of notifications."""
    whole, point, places = amount.partition(".")
    if not whole.isdigit() or (point and not places.isdigit()):
        return amount
    places = places.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{places}" if places else "")


def _has_reference(payment: TwoC2pPayment) -> bool:
    invoice, reference = payment.invoiceNo or "", payment.tranRef or ""
    return bool(_INVOICE.fullmatch(invoice) and _TRAN_REF.fullmatch(reference))


def _response_detail(code: str, description: str | None) -> str:
    return f"response {code}: {(description or '')[:DETAIL_CHARS_MAX]}"
