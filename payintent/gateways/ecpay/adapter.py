"""The adapter for ECPay's hosted payment page (AioCheckOut V5)."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from payintent.gateways.account_check import (
    check_response,
    format_utc,
    rejected_credentials,
    unexpected_response,
    working_account,
)
from payintent.gateways.amount_limits import AmountLimits
from payintent.gateways.ecpay.api import (
    CHECK_MAC_VALUE,
    CREDENTIALS,
    CURRENCY,
    DECIMALS,
    NOT_FOUND,
    PAID,
    TAIPEI,
    EcpayApi,
    EcpayTrade,
    derive_merchant_trade_no,
    describe_missing_credentials,
    parse_form,
    parse_trade_amount,
    sign_form,
    verify_form,
)
from payintent.gateways.ecpay.refunds import inquire_trade_refund, refund_trade
from payintent.gateways.ecpay.settlement_file import LAYOUTS
from payintent.gateways.http_client import GatewayHttpClient, HttpResponse, inconclusive_response
from payintent.gateways.minor_units import parse_capture, to_gateway
from payintent.gateways.port import (
    AccountCheck,
    AccountProblem,
    CallbackRequest,
    CallbackResponse,
    CreationResult,
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
    RefundSupport,
    SessionCreated,
    SessionRejected,
    SessionReport,
    SessionResult,
    VerifiedCallback,
)

CHECK_TRADE_NO = (
    "0AccountCheck0000000"  # no order has this number, because trade numbers are random
)
URL_CHARS_MAX = 200
DESCRIPTION_CHARS_MAX = 200  # the maximum length of TradeDesc; ItemName contains the same text
#: ECPay cannot close an order, and the status of an unpaid order does not show whether a card is
#: being processed or the buyer has left. Like ECPay's own modules, this adapter treats a card order
#: as abandoned after an hour. It cannot set a deadline, because `ExpireDate` applies only to ATM
#: orders, and `StoreExpireDate` only to orders paid in convenience stores.
ABANDONED_AFTER_S = 3600
#: ECPay requires an interval of ten minutes between a payment and the first inquiry, and between
#: inquiries (developers.ecpay.com.tw, 2890).
INQUIRY_GAP_S = 600

_CHECKOUT_PATH = "/Cashier/AioCheckOut/V5"
_UNPAID = "0"  # the bank may not have decided yet
_NOT_ESTABLISHED = "10200095"  # the page is open, the buyer has left, or the card was declined
_CLOCK_ERROR_CODES = frozenset({"10200089"})
_OK = 200
_CODE = re.compile(r"-?[0-9]{1,10}")
_TRADE_NO = re.compile(r"[0-9A-Z]{0,20}")
_SESSION_HEX = re.compile(r"[0-9a-f]{32}")
_UNSIGNED_REJECTION = re.compile(rb"([0-9]{8})\|")
#: ECPay's firewall blocks orders whose texts contain one of these system commands as a word
#: (developers.ecpay.com.tw, 2858; error 10400011).
_BLOCKED_WORDS = re.compile(
    r"\b(bash|chmod|cmd|curl|echo|finger|ftp|gcc|kill|ls|mail|nc|net|nmap|passwd|perl|ping|python"
    r"|rm|tclsh|telnet|tftp|traceroute|tracert|uname|wget|wsh|xterm)\b",
    re.ASCII | re.IGNORECASE,
)

#: None means Traditional Chinese, which is the default and has no code.
_LANGUAGES = {"en": "ENG", "ja": "JPN", "ko": "KOR", "zh": None}
_SIMPLIFIED_CHINESE = frozenset({"zh-hans", "zh-cn", "zh-sg"})

#: The reports for inconclusive codes in notifications; None if nothing can be reported.
_INCONCLUSIVE_REPORTS = {
    "2": None,  # an account number for a bank transfer was issued
    "10100073": None,  # a payment code for a convenience store was issued
    "10300028": None,  # submitted twice; the first submission may have been paid
    "10300066": SessionReport(state=GatewaySessionState.AUTHORISING),  # awaiting confirmation
}
_FAILURES = {
    "10100058": FailureReason.DECLINED,  # authentication failed
    "10100248": FailureReason.DECLINED,  # rejected by the bank
    "10100251": FailureReason.DECLINED,  # expired card
    "10100252": FailureReason.DECLINED,  # insufficient funds
    "10100254": FailureReason.DECLINED,  # over the card's limit
    "10100255": FailureReason.DECLINED,  # reported lost
    "10100256": FailureReason.DECLINED,  # reported stolen
    "10800001": FailureReason.DECLINED,  # ECPay's own fraud screening
}

_LIVE, _STAGE = "https://payment.ecpay.com.tw", "https://payment-stage.ecpay.com.tw"


class EcpayGateway:
    """The `Gateway` for ECPay.

    Credentials: `merchant_id`, `hash_key`, `hash_iv`. With the optional `credit_check_code`,
    refunds can be queried, and the refund action depends on the state of the card authorisation.
    Set `auto_close` to `off` if ECPay does not close the account's trades daily; otherwise, refunds
    are blocked during the daily closing. Set `union_pay` to `on` to offer UnionPay cards.
    `page_url` overrides the base URL of the payment page.
    """

    provider = "ecpay"
    capabilities = GatewayCapabilities(
        credentials=CREDENTIALS,
        card_brands=("Visa", "Mastercard", "JCB"),
        optional_credentials=frozenset(
            {"credit_check_code", "auto_close", "page_url", "union_pay"}
        ),
        decimals={CURRENCY: DECIMALS},
        countries=frozenset({"TW"}),
        refunds=RefundSupport.PARTIAL,
        refund_is_idempotent=False,
        inquiry_gap_s=INQUIRY_GAP_S,
        remote_creation=False,
        origins=frozenset({_LIVE, _STAGE}),
        detect_livemode=lambda base_url, _: {_LIVE: True, _STAGE: False}.get(base_url.rstrip("/")),
        limits={"TWD": AmountLimits(Decimal(5))},  # the published minimum for card payments
        layouts=LAYOUTS,
    )

    def __init__(self, http: GatewayHttpClient, now: Callable[[], float] = time.time) -> None:
        self._ecpay = EcpayApi(http, now)
        self._now = now

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> CreationResult:
        """Build the form that the buyer posts. The trade does not exist at ECPay until then."""
        if problem := describe_missing_credentials(account):
            return SessionRejected(detail=problem)
        if request.currency != CURRENCY:
            return SessionRejected(detail=f"{request.currency} is not supported")
        if max(len(request.callback_url), len(request.return_url)) > URL_CHARS_MAX:
            return SessionRejected(detail=f"a URL is longer than {URL_CHARS_MAX} characters")
        try:
            units = to_gateway(request.amount_minor, CURRENCY, DECIMALS)
        except ValueError as error:
            return SessionRejected(detail=str(error))
        return SessionCreated.redirect(
            derive_merchant_trade_no(request.session_id),
            self.capabilities.page_url(account).rstrip("/") + _CHECKOUT_PATH,
            request.expires_at,
            sign_form(account, _order_form(account, request, units)),
        )

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionResult:
        """Query the order; ECPay cannot close it. An abandoned order is reported as closed."""
        report = await self.inquire(account, session)
        is_unpaid = isinstance(report, SessionReport) and report.state is GatewaySessionState.OPEN
        if is_unpaid and self._is_abandoned(session):
            return SessionReport(state=GatewaySessionState.CLOSED)
        return report

    async def inquire(self, account: GatewayAccount, session: GatewaySessionRef) -> SessionResult:
        """Query the trade, which does not exist until the buyer has posted the form."""
        trade = await self._ecpay.find_trade(account, session)
        if isinstance(trade, OutcomeUnknown):
            return trade
        if trade.status == PAID:
            return _capture_report(trade.trade_no, trade.amount) or inconclusive_response(
                "paid, but without a trade number"
            )
        if trade.status == _NOT_ESTABLISHED and trade.was_attempted:
            return SessionReport(state=GatewaySessionState.DECLINED, reason=FailureReason.DECLINED)
        if trade.status == _NOT_ESTABLISHED and self._is_abandoned(session):
            return SessionReport(state=GatewaySessionState.CLOSED)
        return _unpaid_report(trade)

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        try:
            fields = verify_form(account, request.body)
            notification = _parse_notification(account, fields)
        except ValueError as error:
            raise InvalidCallbackError(str(error)) from None
        if notification.is_simulated:  # triggered in ECPay's back office; no buyer has paid
            return VerifiedCallback(
                id=f"{notification.id}.simulated", session_id=notification.session_id
            )
        return VerifiedCallback(
            id=notification.id,
            session_id=notification.session_id,
            report=self._make_report(notification),
        )

    def _make_report(self, notification: "_Notification") -> SessionReport | None:
        if notification.code in _INCONCLUSIVE_REPORTS:
            return _INCONCLUSIVE_REPORTS[notification.code]
        if notification.code != PAID:
            # A trade number allows only one attempt, so the buyer cannot retry.
            reason = self.classify_failure(notification.code)
            return SessionReport(state=GatewaySessionState.DECLINED, reason=reason)
        report = _capture_report(notification.trade_no, notification.amount)
        if report is None:
            raise InvalidCallbackError("paid, but without a trade number or an amount")
        return report

    def acknowledge(self, callback: VerifiedCallback) -> CallbackResponse:  # noqa: ARG002 - required by the port
        return CallbackResponse(body=b"1|OK", content_type="text/plain")

    async def refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        return await refund_trade(self._ecpay, account, request)

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundResult:
        return await inquire_trade_refund(self._ecpay, account, request)

    def classify_failure(self, code: str) -> FailureReason:
        return _FAILURES.get(code, FailureReason.UNKNOWN)

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        result = await self._ecpay.query(account, CHECK_TRADE_NO)
        response = check_response(account, result, self._now())
        if isinstance(response, AccountCheck):
            return response
        if response.status != _OK:
            return unexpected_response(account, response)
        try:
            fields = verify_form(account, response.body)
        except ValueError:
            return _diagnose_unsigned_response(account, response, self._now())
        if fields.get("TradeStatus") == NOT_FOUND:
            return working_account("ECPay accepts merchant_id, hash_key and hash_iv")
        return _diagnose_code(account, response, fields.get("TradeStatus", ""), self._now())

    def _is_abandoned(self, session: GatewaySessionRef) -> bool:
        return self._now() - session.opened_at.timestamp() > ABANDONED_AFTER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class _Notification:
    id: str  # derived from the content, because a repeated notification may be encoded differently
    session_id: UUID
    code: str
    trade_no: str
    amount: str  # in dollars
    is_simulated: bool


def _parse_notification(account: GatewayAccount, fields: Mapping[str, str]) -> _Notification:
    """Parse a notification. Raises `ValueError` if it does not belong to one of our sessions.

    The hash ignores case, so the identifiers are compared case-sensitively here.
    """
    if fields.get("MerchantID") != account.credentials.get("merchant_id"):
        raise ValueError("the notification is for another merchant")
    code, trade_no = fields.get("RtnCode", ""), fields.get("TradeNo", "")
    if not _CODE.fullmatch(code) or not _TRADE_NO.fullmatch(trade_no):
        raise ValueError("the signed body does not contain a valid code and trade number")
    session_hex = fields.get("CustomField1", "")
    if not _SESSION_HEX.fullmatch(session_hex):
        raise ValueError("the notification has no session id")
    session_id = UUID(hex=session_hex)
    merchant_trade_no = derive_merchant_trade_no(session_id)
    if fields.get("MerchantTradeNo") != merchant_trade_no:
        raise ValueError("the signed body is inconsistent")
    return _Notification(
        id=f"{merchant_trade_no}.{trade_no}.{code}",
        session_id=session_id,
        code=code,
        trade_no=trade_no,
        amount=parse_trade_amount(fields),
        is_simulated=any(
            name.lower() == "simulatepaid" and value == "1" for name, value in fields.items()
        ),
    )


def _order_form(
    account: GatewayAccount, request: GatewaySessionRequest, units: int
) -> dict[str, str]:
    text = _plain_text(request.description)
    fields = {
        "MerchantID": account.credentials["merchant_id"],
        "MerchantTradeNo": derive_merchant_trade_no(request.session_id),
        "MerchantTradeDate": request.opened_at.astimezone(TAIPEI).strftime("%Y/%m/%d %H:%M:%S"),
        "PaymentType": "aio",
        "TotalAmount": str(units),
        "TradeDesc": text,
        "ItemName": text,
        "ReturnURL": request.callback_url,
        "ChoosePayment": "Credit",
        "EncryptType": "1",
        "NeedExtraPaidInfo": "Y",  # adds the authorisation number, which refunds need
        "CustomField1": request.session_id.hex,
        # "0" offers UnionPay in addition to other cards, and "2" hides it. We hide it by default,
        # because ECPay does not redirect UnionPay buyers to OrderResultURL.
        "UnionPay": "0" if account.credentials.get("union_pay") == "on" else "2",
    }
    if request.return_url:
        fields["OrderResultURL"] = request.return_url  # ECPay redirects immediately, with a POST
        fields["ClientBackURL"] = request.return_url  # a link back for buyers who do not pay
    language = _language(request.locale)
    return fields | ({"Language": language} if language else {})


def _plain_text(text: str) -> str:
    """Remove special characters and blocked words.

    `#` separates items; ECPay's firewall may reject other special characters.
    """
    safe = "".join(char if char.isalnum() or char in "-_.," else " " for char in text)
    safe = _BLOCKED_WORDS.sub(" ", safe)
    return " ".join(safe.split())[:DESCRIPTION_CHARS_MAX].strip() or "Payment"


def _language(locale: str | None) -> str | None:
    """Return ECPay's language code. The default for unsupported locales is English."""
    if not locale:
        return None
    tag = locale.lower().replace("_", "-")
    if any(tag == language or tag.startswith(f"{language}-") for language in _SIMPLIFIED_CHINESE):
        return "CHI"
    return _LANGUAGES.get(tag.partition("-")[0], "ENG")


def _unpaid_report(trade: EcpayTrade) -> SessionResult:
    states: Mapping[str, GatewaySessionState] = {
        NOT_FOUND: GatewaySessionState.ABSENT,
        _UNPAID: GatewaySessionState.OPEN,
        _NOT_ESTABLISHED: GatewaySessionState.OPEN,
    }
    state = states.get(trade.status)
    if state is None:
        return inconclusive_response(f"unknown trade status {trade.status[:20]!r}")
    return SessionReport(state=state)


def _capture_report(trade_no: str, amount: str) -> SessionReport | None:
    if not trade_no or not amount.strip("0."):
        return None
    capture = parse_capture(trade_no, amount, CURRENCY)
    return SessionReport(state=GatewaySessionState.CAPTURED, capture=capture)


def _diagnose_unsigned_response(
    account: GatewayAccount, response: HttpResponse, now: float
) -> AccountCheck:
    """Diagnose an unsigned response: ECPay rejected the request, or the secrets are wrong."""
    if match := _UNSIGNED_REJECTION.match(response.body):
        return _diagnose_code(account, response, match[1].decode(), now)
    try:
        fields = parse_form(response.body)
    except ValueError:
        return unexpected_response(account, response)
    if CHECK_MAC_VALUE in fields:
        return rejected_credentials(
            "ECPay signs with a hash_key or hash_iv that differs from this account's"
        )
    return _diagnose_code(account, response, fields.get("TradeStatus", ""), now)


def _diagnose_code(
    account: GatewayAccount, response: HttpResponse, code: str, now: float
) -> AccountCheck:
    if code in _CLOCK_ERROR_CODES:
        detail = f"ECPay rejects the request time; this host's time is {format_utc(now)}"
        return AccountCheck(problem=AccountProblem.CLOCK, detail=detail)
    if re.fullmatch(r"[0-9]{8}", code):
        return rejected_credentials(f"ECPay rejects merchant_id, hash_key or hash_iv: code {code}")
    return unexpected_response(account, response)
