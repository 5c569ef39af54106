"""The adapter for ECPay (Taiwan): card payments on its hosted page, AIO version 5."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from payintent.domain.amount_limits import AmountLimits
from payintent.domain.gateway import (
    AccountCheck,
    CallbackAnswer,
    CallbackRequest,
    GatewayAccount,
    GatewayCapabilities,
    GatewayRefundRequest,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    InvalidCallbackError,
    OutcomeUnknown,
    RefundReport,
    RefundSupport,
    SessionCreated,
    SessionRejected,
    SessionReport,
    VerifiedCallback,
)
from payintent.domain.payment import FailureReason
from payintent.gateways.ecpay.account_check import check_ecpay_account
from payintent.gateways.ecpay.api import (
    CREDENTIALS,
    CURRENCY,
    DECIMALS,
    NOT_FOUND,
    PAID,
    TAIPEI,
    EcpayApi,
    EcpayTrade,
    amount_of,
    merchant_trade_no_of,
    missing_credentials,
)
from payintent.gateways.ecpay.check_mac import sign_form, verify_form
from payintent.gateways.ecpay.refunds import inquire_trade_refund, refund_trade
from payintent.gateways.ecpay.settlement_file import LAYOUTS
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.minor_units import read_capture, to_gateway

URL_CHARS_MAX = 200
DESCRIPTION_CHARS_MAX = 200  # of TradeDesc; ItemName may have 400, and gets the same text
#: ECPay cannot close an order, and an unpaid one looks the same while a card is tried and after
#: the buyer has left. Its own modules give up a card order after an hour, and so does this one.
#: No deadline can be sent either: `ExpireDate` (days) is only read for ATM orders, and
#: `StoreExpireDate` (minutes, or days) only for those that are paid in shops.
ABANDONED_AFTER_S = 3600
#: ECPay asks for inquiries no sooner than ten minutes after a payment, and ten minutes apart
#: (developers.ecpay.com.tw, 2890).
INQUIRY_GAP_S = 600

_PAGE = "/Cashier/AioCheckOut/V5"
_UNPAID = "0"  # or the bank has not answered yet
_NOT_ESTABLISHED = "10200095"  # nothing was paid: the page is open or was left, or the card failed
_CODE = re.compile(r"-?[0-9]{1,10}")
_TRADE_NO = re.compile(r"[0-9A-Z]{0,20}")
_SESSION = re.compile(r"[0-9a-f]{32}")

#: Traditional Chinese is the page's own language, and has no code.
_LANGUAGES = {"en": "ENG", "ja": "JPN", "ko": "KOR", "zh": None}
_SIMPLIFIED = frozenset({"zh-hans", "zh-cn", "zh-sg"})

#: Codes of the result notification that decide nothing.
_UNDECIDED = {
    "2": None,  # a bank transfer's account number was issued
    "10100073": None,  # a convenience store's payment code was issued
    "10300028": None,  # the order was posted twice: the first one may be paid
    "10300066": SessionReport(state=GatewaySessionState.AUTHORISING),  # to be confirmed
}
_FAILURES = {
    "10100058": FailureReason.DECLINED,  # authentication failed
    "10100248": FailureReason.DECLINED,  # refused by the bank
    "10100251": FailureReason.DECLINED,  # expired card
    "10100252": FailureReason.DECLINED,  # no funds
    "10100254": FailureReason.DECLINED,  # over the card's own limits
    "10100255": FailureReason.DECLINED,  # reported lost
    "10100256": FailureReason.DECLINED,  # reported stolen
    "10800001": FailureReason.DECLINED,  # ECPay's own fraud screening
}

_LIVE, _STAGE = "https://payment.ecpay.com.tw", "https://payment-stage.ecpay.com.tw"


class EcpayGateway:
    """ECPay, as a `Gateway`.

    Credentials: `merchant_id`, `hash_key`, `hash_iv`. With `credit_check_code`, refunds follow the
    state of the card's authorisation, and can be inquired. `auto_close`, `off` where the
    account's daily closing is off, allows refunds at that hour too. `union_pay`, `on`, offers
    UnionPay cards on the page. `page_url`.
    """

    provider = "ecpay"
    capabilities = GatewayCapabilities(
        credentials=CREDENTIALS,
        optional_credentials=frozenset(
            {"credit_check_code", "auto_close", "page_url", "union_pay"}
        ),
        decimals={CURRENCY: DECIMALS},
        countries=frozenset({"TW"}),
        refunds=RefundSupport.PARTS,
        refund_is_idempotent=False,
        inquiry_gap_s=INQUIRY_GAP_S,
        origins=frozenset({_LIVE, _STAGE}),
        livemode_of=lambda base_url, _: {_LIVE: True, _STAGE: False}.get(base_url.rstrip("/")),
        limits={"TWD": AmountLimits(Decimal(5))},  # a card's, as published
        layouts=LAYOUTS,
    )

    def __init__(self, http: GatewayHttpClient, now: Callable[[], float] = time.time) -> None:
        self._ecpay = EcpayApi(http, now)
        self._now = now

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> SessionCreated | SessionRejected | OutcomeUnknown:
        """Build the form that the buyer posts; ECPay knows the trade only after that."""
        if missing := missing_credentials(account):
            return SessionRejected(detail=missing)
        if request.currency != CURRENCY:
            return SessionRejected(detail=f"{request.currency} is not taken")
        if max(len(request.callback_url), len(request.return_url)) > URL_CHARS_MAX:
            return SessionRejected(detail=f"a URL is longer than {URL_CHARS_MAX} characters")
        try:
            units = to_gateway(request.amount_minor, CURRENCY, DECIMALS)
        except ValueError as error:
            return SessionRejected(detail=str(error))
        redirect: dict[str, Any] = {
            "url": self.capabilities.page_url(account).rstrip("/") + _PAGE,
            "method": "POST",
            "fields": sign_form(account, _order(account, request, units)),
            "expires_at": _rfc3339(request.expires_at),
        }
        return SessionCreated(
            reference=merchant_trade_no_of(request.session_id),
            next_action={"type": "redirect", "redirect": redirect},
        )

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        """Inquire, for nothing closes an order: an unpaid one is given up when it is old enough."""
        report = await self.inquire(account, session)
        unpaid = isinstance(report, SessionReport) and report.state is GatewaySessionState.OPEN
        if unpaid and self._is_abandoned(session):
            return SessionReport(state=GatewaySessionState.CLOSED)
        return report

    async def inquire(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        """Ask for the state of a trade. It is absent while the buyer has not posted the form."""
        trade = await self._ecpay.look_up(account, session)
        if isinstance(trade, OutcomeUnknown):
            return trade
        if trade.status == PAID:
            return _captured(trade.trade_no, trade.amount) or OutcomeUnknown(
                detail="paid without a trade", answered=True
            )
        if trade.status == _NOT_ESTABLISHED and trade.tried:
            return SessionReport(state=GatewaySessionState.DECLINED, reason=FailureReason.DECLINED)
        if trade.status == _NOT_ESTABLISHED and self._is_abandoned(session):
            return SessionReport(state=GatewaySessionState.CLOSED)
        return _unpaid(trade)

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        try:
            fields = verify_form(account, request.body)
            notice = _read(account, fields)
        except ValueError as error:
            raise InvalidCallbackError(str(error)) from None
        if notice.simulated:  # simulated by the merchant in its back office: no buyer has paid
            return VerifiedCallback(id=f"{notice.id}.simulated", session_id=notice.session_id)
        if notice.code in _UNDECIDED:
            report = _UNDECIDED[notice.code]
        elif notice.code != PAID:
            # The first attempt uses up a trade's number: the buyer cannot try again.
            reason = self.classify_failure(notice.code)
            report = SessionReport(state=GatewaySessionState.DECLINED, reason=reason)
        else:
            report = _captured(notice.trade_no, notice.amount)
            if report is None:
                raise InvalidCallbackError("paid without a trade or an amount")
        return VerifiedCallback(id=notice.id, session_id=notice.session_id, report=report)

    def acknowledge(self, callback: VerifiedCallback) -> CallbackAnswer:  # noqa: ARG002 - the port's shape
        return CallbackAnswer(body=b"1|OK", content_type="text/plain")

    async def refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        return await refund_trade(self._ecpay, account, request)

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        """Decide from the sum refunded so far: ECPay has no ids for refunds."""
        return await inquire_trade_refund(self._ecpay, account, request)

    def classify_failure(self, code: str) -> FailureReason:
        return _FAILURES.get(code, FailureReason.UNKNOWN)

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        return await check_ecpay_account(self._ecpay, account)

    def _is_abandoned(self, session: GatewaySessionRef) -> bool:
        return self._now() - session.opened_at.timestamp() > ABANDONED_AFTER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class _Notice:
    #: ECPay reports one fact in several forms, so the id is built from what it is about.
    id: str
    session_id: UUID
    code: str
    trade_no: str
    amount: str  # in dollars
    simulated: bool


def _read(account: GatewayAccount, fields: Mapping[str, str]) -> _Notice:
    """Read the fields of a notification; ValueError where it cannot be about a session of ours.

    Letters are hashed in lower case, so every identifier is accepted in one case only.
    """
    if fields.get("MerchantID") != account.credentials.get("merchant_id"):
        raise ValueError("it is for another merchant")
    code, trade_no = fields.get("RtnCode", ""), fields.get("TradeNo", "")
    if not _CODE.fullmatch(code) or not _TRADE_NO.fullmatch(trade_no):
        raise ValueError("the signed body lacks what it is about")
    named = fields.get("CustomField1", "")
    if not _SESSION.fullmatch(named):
        raise ValueError("it names no session")
    session_id = UUID(hex=named)
    merchant_trade_no = merchant_trade_no_of(session_id)
    if fields.get("MerchantTradeNo") != merchant_trade_no:
        raise ValueError("the signed body contradicts itself")
    return _Notice(
        id=f"{merchant_trade_no}.{trade_no}.{code}",
        session_id=session_id,
        code=code,
        trade_no=trade_no,
        amount=amount_of(fields),
        simulated=any(
            name.lower() == "simulatepaid" and value == "1" for name, value in fields.items()
        ),
    )


def _order(account: GatewayAccount, request: GatewaySessionRequest, units: int) -> dict[str, str]:
    text = _plain(request.description)
    fields = {
        "MerchantID": account.credentials["merchant_id"],
        "MerchantTradeNo": merchant_trade_no_of(request.session_id),
        "MerchantTradeDate": request.opened_at.astimezone(TAIPEI).strftime("%Y/%m/%d %H:%M:%S"),
        "PaymentType": "aio",
        "TotalAmount": str(units),
        "TradeDesc": text,
        "ItemName": text,
        "ReturnURL": request.callback_url,
        "ChoosePayment": "Credit",
        "EncryptType": "1",
        "NeedExtraPaidInfo": "Y",  # the card's authorisation number, which refunds need
        "CustomField1": request.session_id.hex,
        # 0 offers UnionPay beside other cards, 2 hides it: its buyers do not come back by
        # OrderResultURL.
        "UnionPay": "0" if account.credentials.get("union_pay") == "on" else "2",
    }
    if request.return_url:
        fields["OrderResultURL"] = request.return_url  # returns the buyer at once, by a POST
        fields["ClientBackURL"] = request.return_url  # a link, for the buyer who does not pay
    language = _language(request.locale)
    return fields | ({"Language": language} if language else {})


def _plain(text: str) -> str:
    """Keep letters, digits and a few signs: `#` separates items, and a firewall checks the text."""
    kept = "".join(
        character if character.isalnum() or character in "-_.," else " " for character in text
    )
    return " ".join(kept.split())[:DESCRIPTION_CHARS_MAX].strip() or "Payment"


def _language(locale: str | None) -> str | None:
    """Return ECPay's code of the buyer's language; English if it does not have the language."""
    if not locale:
        return None
    tag = locale.lower().replace("_", "-")
    if any(tag == language or tag.startswith(f"{language}-") for language in _SIMPLIFIED):
        return "CHI"
    return _LANGUAGES.get(tag.partition("-")[0], "ENG")


def _unpaid(trade: EcpayTrade) -> SessionReport | OutcomeUnknown:
    states: Mapping[str, GatewaySessionState] = {
        NOT_FOUND: GatewaySessionState.ABSENT,
        _UNPAID: GatewaySessionState.OPEN,
        _NOT_ESTABLISHED: GatewaySessionState.OPEN,
    }
    state = states.get(trade.status)
    if state is None:
        return OutcomeUnknown(detail="an unknown status", answered=True)
    return SessionReport(state=state)


def _captured(trade_no: str, amount: str) -> SessionReport | None:
    if not trade_no or not amount.strip("0."):
        return None
    capture = read_capture(trade_no, amount, CURRENCY)
    return SessionReport(state=GatewaySessionState.CAPTURED, capture=capture)


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
