"""The adapter for 2C2P's hosted payment page (PGW 4.3).

Each session corresponds to an invoice, which can be paid only once. 2C2P cannot close an invoice.
Its payment token expires half an hour after creation, but a payment that has started may still
complete.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeGuard
from uuid import UUID

import msgspec
from msgspec import Struct

from payintent.core import ids
from payintent.gateways.account_check import (
    check_response,
    plain_text,
    rejected_credentials,
    unexpected_response,
    working_account,
)
from payintent.gateways.http_client import (
    GatewayHttpClient,
    HttpResponse,
    decode_json,
    inconclusive_response,
    printable_text,
    unusable_response,
)
from payintent.gateways.minor_units import parse_capture
from payintent.gateways.port import (
    AccountCheck,
    AccountProblem,
    CallbackRequest,
    CallbackResponse,
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
    RefundReport,
    RefundResult,
    SessionCreated,
    SessionRejected,
    SessionReport,
    SessionResult,
    VerifiedCallback,
)
from payintent.gateways.twoc2p import response_codes as codes
from payintent.gateways.twoc2p.messages import (
    DECIMALS,
    LIVE,
    ORIGINS,
    PAGE_ORIGINS,
    SANDBOX,
    TOKEN_LIFETIME_S,
    InvalidTokenError,
    TwoC2pPayment,
    TwoC2pToken,
    get_merchant_id,
    inquiry_body,
    invoice_no,
    order_body,
    payment_deadline,
    post_jwt,
    verify_envelope,
)
from payintent.gateways.twoc2p.refunds import TwoC2pRefundApi

CHECK_INVOICE = "0AccountCheck0000000"  # no invoice has this number
#: Allows for clock differences and last-second payments.
TOKEN_MARGIN_S = 5 * 60
DETAIL_CHARS_MAX = 200

#: The countries that 2C2P supports. An account usually supports only some of them.
COUNTRIES = frozenset({"TH", "ID", "PH", "SG", "MY", "HK", "TW", "VN", "KH"})
_OFFSET = re.compile(r"[+-](0[0-9]|1[0-4]):[0-5][0-9]")
_INVOICE = re.compile(r"[0-9A-Za-z._-]{1,50}")  # may belong to another shop of the merchant
_TRAN_REF = re.compile(r"[0-9A-Za-z_-]{0,255}")
_PAGE_URL = re.compile(r"https?://[^\s/].{0,2036}")
_INVALID_OFFSET = "utc_offset is missing or does not look like +08:00"
_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class _Response:
    """A JSON response. If it is signed, its signature has been verified."""

    status: int
    content: bytes
    is_signed: bool


class TwoC2pGateway:
    """The `Gateway` for 2C2P.

    Credentials: `merchant_id` and `secret_key`; for refunds, `merchant_private_key` and
    `gateway_public_key` as PEM; `utc_offset`, such as `+08:00`, which is the time zone of the
    merchant's deadlines; optionally `page_url` and `maintenance_url`.
    """

    provider = "2c2p"
    capabilities = GatewayCapabilities(
        card_brands=("Visa", "Mastercard"),
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
        detect_livemode=lambda base_url, _: {LIVE: True, SANDBOX: False}.get(base_url.rstrip("/")),
    )

    def __init__(self, http: GatewayHttpClient, now: Callable[[], float] = time.time) -> None:
        self._http = http
        self._now = now
        self._maintenance = TwoC2pRefundApi(http, now)

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> CreationResult:
        if not _OFFSET.fullmatch(account.credentials.get("utc_offset", "")):
            return SessionRejected(detail=f"the account's {_INVALID_OFFSET}")
        response = await self._request(account, "paymentToken", order_body(account, request))
        if isinstance(response, OutcomeUnknown):
            return response
        token = decode_json(response.content, TwoC2pToken)
        if token is None:
            detail = f"invalid response to the creation request, status {response.status}"
            return unusable_response(response.status, detail)
        detail = _response_detail(token.respCode, token.respDesc)
        if token.respCode == codes.OK and response.is_signed and _is_page(token.webPaymentUrl):
            reference = _reference(account, request.session_id)
            return SessionCreated.redirect(
                reference, token.webPaymentUrl, payment_deadline(request)
            )
        # Rejections may be unsigned, because a server that cannot decode the request does not know
        # which key to use. They can be trusted, because buyers cannot pay without a payment page.
        if token.respCode == codes.OK or token.respCode in codes.UNSETTLED:
            return OutcomeUnknown(detail=detail, has_responded=response.is_signed)
        return SessionRejected(detail=detail)

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionResult:
        """Query the session, because it cannot be closed before its token expires."""
        return await self.inquire(account, session)

    async def inquire(self, account: GatewayAccount, session: GatewaySessionRef) -> SessionResult:
        """Query an invoice. Unsigned responses are not trusted."""
        invoice = invoice_no(session.session_id)
        response = await self._request(account, "paymentInquiry", inquiry_body(account, invoice))
        if isinstance(response, OutcomeUnknown):
            return response
        payment = decode_json(response.content, TwoC2pPayment) if response.is_signed else None
        if payment is None:
            detail = f"unsigned or invalid response, status {response.status}"
            return unusable_response(response.status, detail)
        if payment.merchantID not in {None, "", get_merchant_id(account)}:
            return inconclusive_response("the response is about another merchant")
        if payment.respCode in codes.NOT_FOUND and payment.invoiceNo in {None, "", invoice}:
            return self._unpaid_report(account, session)
        if payment.respCode in codes.STATES and payment.invoiceNo != invoice:
            return inconclusive_response("the response is about another invoice")
        return _inquiry_report(payment)

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        content = _verify_body(account, request.body)
        payment, merchant_id = decode_json(content, TwoC2pPayment), get_merchant_id(account)
        if payment is None or payment.merchantID != merchant_id or not _has_reference(payment):
            raise InvalidCallbackError("the signed body is invalid or belongs to another merchant")
        # A hash of the body would not work, because the body of a repeated notification may differ.
        callback_id = f"{payment.invoiceNo}.{payment.tranRef or ''}.{payment.respCode}"
        try:
            report = _session_report(payment)
        except ValueError:
            raise InvalidCallbackError("the signed body is inconsistent") from None
        session_id = ids.parse_id(ids.SESSION, payment.userDefined1 or "")
        if session_id is not None and invoice_no(session_id) != payment.invoiceNo:
            raise InvalidCallbackError("the signed body refers to two sessions")
        if report is None:  # inconclusive, so the session is queried later
            return VerifiedCallback(id=callback_id, stored_body=content)
        return VerifiedCallback(
            id=callback_id,
            session_id=session_id,
            report=report,
            dispute=_dispute(payment, report),
            stored_body=content,
        )

    def acknowledge(self, callback: VerifiedCallback) -> CallbackResponse:  # noqa: ARG002 - required by the port
        return CallbackResponse(body=b"OK", content_type="text/plain")

    async def refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        """Refund a settled payment, or fully void an unsettled payment."""
        return await self._maintenance.refund(account, request)

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundResult:
        return await self._maintenance.inquire(account, request)

    def classify_failure(self, code: str) -> FailureReason:
        return codes.FAILURES.get(code, FailureReason.UNKNOWN)

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        if not _OFFSET.fullmatch(account.credentials.get("utc_offset", "")):
            return rejected_credentials(_INVALID_OFFSET)
        query = inquiry_body(account, CHECK_INVOICE)
        result = await post_jwt(self._http, account, "paymentInquiry", query)
        response = check_response(account, result, self._now())
        if isinstance(response, AccountCheck):
            return response
        if problem := _find_payment_problem(account, response):
            return problem
        return _check_refunds(await self._maintenance.inquire(account, _unknown_refund()))

    def _unpaid_report(self, account: GatewayAccount, session: GatewaySessionRef) -> SessionResult:
        """Report an unpaid invoice. The buyer can still pay while a token may be valid."""
        age_s = self._now() - session.opened_at.timestamp()
        is_expired = age_s >= TOKEN_LIFETIME_S + TOKEN_MARGIN_S
        if session.reference is None:
            if not is_expired:
                return inconclusive_response("not paid, but a payment token may exist")
            return SessionReport(state=GatewaySessionState.ABSENT)
        if session.reference != _reference(account, session.session_id):
            # The credentials were replaced. The buyer may have paid the previous merchant.
            return inconclusive_response("the invoice belongs to another merchant_id")
        return SessionReport(
            state=GatewaySessionState.CLOSED if is_expired else GatewaySessionState.OPEN
        )

    async def _request(
        self, account: GatewayAccount, name: str, content: bytes
    ) -> _Response | OutcomeUnknown:
        response = await post_jwt(self._http, account, name, content)
        if isinstance(response, OutcomeUnknown):
            return response
        return _parse_response(response, account.credentials.get("secret_key", ""))


def _reference(account: GatewayAccount, session_id: UUID) -> str:
    """Build a session's reference. Invoice numbers are unique only within a merchant."""
    return f"{get_merchant_id(account)}.{invoice_no(session_id)}"


def _is_page(url: str | None) -> TypeGuard[str]:
    return url is not None and _PAGE_URL.fullmatch(url) is not None


def _parse_response(response: HttpResponse, secret: str) -> _Response | OutcomeUnknown:
    try:
        content = verify_envelope(response.body, secret)
    except InvalidTokenError as error:
        return unusable_response(response.status, f"status {response.status}: {error}")
    is_signed = content is not None
    if response.status >= _SERVER_ERROR:
        return OutcomeUnknown(detail=f"status {response.status}", has_responded=is_signed)
    return _Response(response.status, response.body if content is None else content, is_signed)


def _verify_body(account: GatewayAccount, body: bytes) -> bytes:
    try:
        content = verify_envelope(body, account.credentials.get("secret_key", ""))
    except InvalidTokenError as error:
        raise InvalidCallbackError(str(error)) from None
    if content is None:
        raise InvalidCallbackError("the body has no payload")
    return content


def _inquiry_report(payment: TwoC2pPayment) -> SessionResult:
    try:
        report = _session_report(payment)
    except ValueError:
        return inconclusive_response("the response is inconsistent")
    if report is None:
        detail = _response_detail(payment.respCode, payment.respDesc)
        return inconclusive_response(detail)
    if report.state is GatewaySessionState.ATTEMPTED:  # only callbacks may report this state
        return SessionReport(state=GatewaySessionState.OPEN)
    return report


def _session_report(payment: TwoC2pPayment) -> SessionReport | None:
    """Convert a payment to a report.

    Returns None if the payment's state is inconclusive. Raises `ValueError` if it is invalid.
    """
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
    """Report a chargeback of the full transaction. 2C2P sends neither an id nor a deadline.

    The reference is the invoice number, because a notification may lack `tranRef`.
    """
    code = payment.respCode
    dispute = codes.DISPUTES.get(code)
    if dispute is None or report.capture is None or payment.invoiceNo is None:
        return None
    state, funds = dispute
    return DisputeReport(
        reference=payment.invoiceNo,
        capture=report.capture.reference,
        state=state,
        funds=funds,
        amount_minor=report.capture.amount_minor,
        currency=report.capture.currency,
        reason=printable_text(_response_detail(code, payment.respDesc)),
    )


def _capture(payment: TwoC2pPayment) -> Capture:
    """Build the capture. Its reference includes the invoice number, which refunds require.

    If `tranRef` is missing, the reference ends with a dot, and a later report completes it.
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
    """Remove the zeros that notifications add to amounts."""
    whole, separator, fraction = amount.partition(".")
    if not whole.isdigit() or (separator and not fraction.isdigit()):
        return amount
    fraction = fraction.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{fraction}" if fraction else "")


def _has_reference(payment: TwoC2pPayment) -> bool:
    invoice, reference = payment.invoiceNo or "", payment.tranRef or ""
    return bool(_INVOICE.fullmatch(invoice) and _TRAN_REF.fullmatch(reference))


def _response_detail(code: str, description: str | None) -> str:
    return f"response {code}: {(description or '')[:DETAIL_CHARS_MAX]}"


class _InquiryResponse(Struct, frozen=True):
    code: str = msgspec.field(name="respCode")
    description: str | None = msgspec.field(name="respDesc", default=None)

    @property
    def text(self) -> str:
        return f"{plain_text(self.code)} {plain_text(self.description or '')}".rstrip()


def _check_refunds(report: RefundResult) -> AccountCheck:
    if isinstance(report, RefundReport):
        return working_account("2C2P accepts the credentials for payments and refunds")
    if report.is_throttled:
        return AccountCheck(problem=AccountProblem.THROTTLED, detail=f"refunds: {report.detail}")
    if report.has_responded:  # for example, the maintenance API of a different country
        return rejected_credentials(f"2C2P rejects the refund inquiry: {plain_text(report.detail)}")
    if report.problem is not AccountProblem.CREDENTIALS:
        return AccountCheck(problem=report.problem, detail=f"refunds: {report.detail}")
    return rejected_credentials(
        "2C2P accepts merchant_id and secret_key, but refunds would fail because of "
        f"merchant_private_key or gateway_public_key: {plain_text(report.detail)}"
    )


def _find_payment_problem(account: GatewayAccount, response: HttpResponse) -> AccountCheck | None:
    try:
        content = verify_envelope(response.body, account.credentials.get("secret_key", ""))
    except InvalidTokenError:
        return rejected_credentials("2C2P signs with a secret_key that differs from this account's")
    inquiry = decode_json(response.body if content is None else content, _InquiryResponse)
    if inquiry is None:
        return unexpected_response(account, response)
    if content is None:  # rejections are not signed
        return rejected_credentials(f"2C2P rejects merchant_id or secret_key: {inquiry.text}")
    if inquiry.code not in codes.NOT_FOUND:
        return rejected_credentials(f"2C2P rejects the inquiry: {inquiry.text}")
    return None


def _unknown_refund() -> GatewayRefundRequest:
    return GatewayRefundRequest(
        refund_id=UUID(int=0),
        reference=None,
        session=None,
        capture=Capture(reference=f"{CHECK_INVOICE}.0", amount_minor=100, currency="THB"),
        amount_minor=100,
        reason="",
        destination=None,
        callback_url="",
    )
