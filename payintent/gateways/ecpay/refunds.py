"""ECPay refunds. The required actions depend on the card payment's settlement phase."""

import asyncio
import re
from dataclasses import dataclass
from datetime import datetime, time
from enum import StrEnum

import msgspec
from msgspec import Struct

from payintent.gateways.ecpay.api import (
    CURRENCY,
    DECIMALS,
    PAID,
    TAIPEI,
    EcpayApi,
    EcpayTrade,
    get_trade_no,
    parse_form,
)
from payintent.gateways.http_client import inconclusive_response
from payintent.gateways.minor_units import to_gateway
from payintent.gateways.port import (
    GatewayAccount,
    GatewayRefundRequest,
    GatewayRefundState,
    GatewaySessionRef,
    NotContacted,
    OutcomeUnknown,
    RefundReport,
    RefundResult,
)

#: ECPay rejects actions while it closes the day's trades (Taipei time).
CLOSING_START, CLOSING_END = time(20, 15), time(20, 31)
DETAIL_CHARS_MAX = 100
QUERIES_TIMEOUT_S = 10.0  # for both queries; up to two actions follow
_ACTION_PATH, _CARD_PATH = "/CreditDetail/DoAction", "/CreditDetail/QueryTrade/V2"
_CODE = re.compile(r"-?[0-9]{1,10}")
_DONE = GatewayRefundState.DONE


class _Phase(StrEnum):
    """The settlement phase of a card authorisation. Closing an authorisation captures the money."""

    AUTHORISED = "authorised"
    CLOSING = "closing"  # the money will be captured
    CLOSED = "closed"
    WITHDRAWN = "withdrawn"  # the closing was withdrawn, so the card is authorised again
    CANCELLED = "cancelled"  # the authorisation was cancelled, which is a full refund


_PHASES = {
    "已授權": _Phase.AUTHORISED,
    "要關帳": _Phase.CLOSING,
    "已關帳": _Phase.CLOSED,
    "操作取消": _Phase.WITHDRAWN,
    "已取消": _Phase.CANCELLED,
    "Authorized": _Phase.AUTHORISED,
    "To be captured": _Phase.CLOSING,
    "Captured": _Phase.CLOSED,
    "Operation canceled": _Phase.WITHDRAWN,
    "Canceled": _Phase.CANCELLED,
}

#: The actions of a refund, in order. C closes the authorisation, R refunds a closed amount, E
#: withdraws the closing, and N cancels the authorisation. All actions except R apply to the full
#: amount. Only the last action refunds money.
_FULL_REFUND_ACTIONS = {
    _Phase.AUTHORISED: "N",
    _Phase.WITHDRAWN: "N",
    _Phase.CLOSING: "EN",
    _Phase.CLOSED: "R",
}
_PARTIAL_REFUND_ACTIONS = {
    _Phase.AUTHORISED: "CR",
    _Phase.WITHDRAWN: "CR",
    _Phase.CLOSING: "R",
    _Phase.CLOSED: "R",
}


class _CloseEntry(Struct, frozen=True):
    status: str
    amount: int  # negative for a refund


class _CardRecord(Struct, frozen=True):
    amount: int
    status: str
    closed_amount: int = msgspec.field(name="clsamt", default=0)
    entries: list[_CloseEntry] | None = msgspec.field(name="close_data", default=None)


class _CardResponse(Struct, frozen=True):
    message: str | None = msgspec.field(name="RtnMsg", default=None)
    value: _CardRecord | None = msgspec.field(name="RtnValue", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CardPayment:
    phase: _Phase
    total: int
    refunded: int


async def refund_trade(
    ecpay: EcpayApi, account: GatewayAccount, request: GatewayRefundRequest
) -> RefundResult:
    """Refund a trade. With a `credit_check_code`, refund only if the payment's state is known."""
    units = _to_dollars(request)
    if request.session is None or units is None:
        return _declined("the payment has no trade, or the amount is not in whole dollars")
    if _is_closing_time(ecpay, account):
        return NotContacted(detail="ECPay is closing the day's trades", is_skipped=True)
    if not account.credentials.get("credit_check_code"):
        return await _request_action(ecpay, account, request, "R", units)
    card = await _query_refundable_card(ecpay, account, request, request.session)
    if isinstance(card, OutcomeUnknown):
        return NotContacted(detail=card.detail, is_throttled=card.is_throttled)
    if isinstance(card, RefundReport):
        return card
    return await _refund_by_phase(ecpay, account, request, card, units)


async def inquire_trade_refund(
    ecpay: EcpayApi, account: GatewayAccount, request: GatewayRefundRequest
) -> RefundResult:
    """Infer a refund's outcome from the refunded total, because ECPay has no refund ids."""
    if request.session is None or not account.credentials.get("credit_check_code"):
        return OutcomeUnknown(
            detail="refunds can only be queried with a session and a credit_check_code",
            is_skipped=True,
        )
    card = await _query_refundable_card(ecpay, account, request, request.session)
    if not isinstance(card, _CardPayment):
        return card if isinstance(card, OutcomeUnknown) else inconclusive_response(card.detail)
    units = _to_dollars(request)
    if units == card.total and card.phase is _Phase.WITHDRAWN:
        return _withdrawn_closing(card.phase)
    if units is None or card.refunded < units:
        return RefundReport(state=GatewayRefundState.ABSENT)
    if card.refunded >= card.total or request.reference is not None:
        return RefundReport(state=_DONE)
    return inconclusive_response("the refunded total does not identify this refund")


async def _refund_by_phase(
    ecpay: EcpayApi,
    account: GatewayAccount,
    request: GatewayRefundRequest,
    card: _CardPayment,
    units: int,
) -> RefundResult:
    if card.refunded + units > card.total:
        return _declined("the amount exceeds the remaining amount")
    actions = (_FULL_REFUND_ACTIONS if units == card.total else _PARTIAL_REFUND_ACTIONS)[card.phase]
    for action in actions[:-1]:
        preparation = await _request_action(ecpay, account, request, action, card.total)
        if isinstance(preparation, OutcomeUnknown):
            # Nothing has been refunded yet. The next attempt queries the card payment again.
            return NotContacted(detail=f"{action}: {preparation.detail}")
        if preparation.state is GatewayRefundState.DECLINED:
            return preparation
    result = await _request_action(ecpay, account, request, actions[-1], units)
    if actions == "EN" and isinstance(result, RefundReport) and result.state is not _DONE:
        return _withdrawn_closing(result.detail)
    return result


def _withdrawn_closing(detail: str) -> OutcomeUnknown:
    """Build the outcome for a withdrawn closing without a cancellation.

    The refund has not failed: ECPay would not capture the money either. Someone must cancel the
    payment or close it again in ECPay's back office.
    """
    return inconclusive_response(f"the closing is withdrawn, but not the payment: {detail}")


async def _request_action(
    ecpay: EcpayApi, account: GatewayAccount, request: GatewayRefundRequest, action: str, units: int
) -> RefundResult:
    """Request an action. The response is unsigned, but it must at least identify the trade."""
    assert request.session is not None  # noqa: S101 - checked by the caller
    trade = {
        "MerchantTradeNo": get_trade_no(request.session),
        "TradeNo": request.capture.reference,
    }
    form = trade | {"Action": action, "TotalAmount": str(units)}
    response = await ecpay.post(account, _ACTION_PATH, form)
    if isinstance(response, OutcomeUnknown):
        return response
    try:
        fields = parse_form(response.body)
    except ValueError:
        return OutcomeUnknown(detail="the response to an action is invalid")
    code = fields.get("RtnCode", "")
    if not _CODE.fullmatch(code) or any(fields.get(name) != trade[name] for name in trade):
        return OutcomeUnknown(detail="the response belongs to another action")
    if code == PAID:
        # ECPay has no refund ids. The reference only records that this refund was made.
        reference = f"{request.capture.reference}-{action}"
        return RefundReport(state=_DONE, reference=reference)
    return _declined(f"{action}: {code} {fields.get('RtnMsg', '')[:DETAIL_CHARS_MAX]}")


async def _query_refundable_card(
    ecpay: EcpayApi,
    account: GatewayAccount,
    request: GatewayRefundRequest,
    session: GatewaySessionRef,
) -> _CardPayment | RefundReport | OutcomeUnknown:
    try:
        async with asyncio.timeout(QUERIES_TIMEOUT_S):
            trade = await ecpay.find_trade(account, session)
            if isinstance(trade, OutcomeUnknown):
                return trade
            if (trade.status, trade.trade_no) != (PAID, request.capture.reference):
                return _declined("ECPay does not know this payment")
            if trade.has_instalments and _to_dollars(request) != trade.units:
                return _declined("an order with instalments can only be refunded in full")
            return await _query_card(ecpay, account, trade)
    except TimeoutError:
        return OutcomeUnknown(detail=f"the queries did not finish within {QUERIES_TIMEOUT_S:g} s")


async def _query_card(
    ecpay: EcpayApi, account: GatewayAccount, trade: EcpayTrade
) -> _CardPayment | OutcomeUnknown:
    form = {
        "CreditRefundId": trade.authorisation,
        "CreditAmount": str(trade.units),
        "CreditCheckCode": account.credentials["credit_check_code"],
    }
    response = await ecpay.post(account, _CARD_PATH, form)
    if isinstance(response, OutcomeUnknown):
        return response
    try:
        # Amounts may be numbers or strings.
        card_response = msgspec.json.decode(response.body, type=_CardResponse, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return OutcomeUnknown(detail="the response about a card payment is invalid")
    record = card_response.value
    if card_response.message or record is None or record.amount != trade.units:
        return OutcomeUnknown(detail=f"no card payment: {(card_response.message or '')[:20]}")
    phase = _settlement_phase(record)
    if phase is None:
        return OutcomeUnknown(detail="the card payment has an unknown status")
    return _CardPayment(phase=phase, total=record.amount, refunded=_refunded_total(record, phase))


def _settlement_phase(record: _CardRecord) -> _Phase | None:
    """Prefer the closing entries' status, because the overall status reflects the last action.

    A cancellation is final, and does not change the entries of a withdrawn closing.
    """
    last_phase = _PHASES.get(record.status)
    statuses = {entry.status for entry in record.entries or () if entry.amount > 0}
    if last_phase is _Phase.CANCELLED or len(statuses) != 1:
        return last_phase
    return _PHASES.get(statuses.pop())


def _refunded_total(record: _CardRecord, phase: _Phase) -> int:
    if phase is _Phase.CANCELLED:
        return record.amount
    total = -sum(
        entry.amount
        for entry in record.entries or ()
        if entry.amount < 0 and _PHASES.get(entry.status) in {_Phase.CLOSING, _Phase.CLOSED}
    )
    if phase is _Phase.CLOSED and record.closed_amount:
        total = max(total, record.amount - record.closed_amount)
    return total


def _is_closing_time(ecpay: EcpayApi, account: GatewayAccount) -> bool:
    if account.credentials.get("auto_close") == "off":
        return False
    return CLOSING_START <= datetime.fromtimestamp(ecpay.now(), TAIPEI).time() < CLOSING_END


def _to_dollars(request: GatewayRefundRequest) -> int | None:
    try:
        return to_gateway(request.amount_minor, CURRENCY, DECIMALS)
    except ValueError:
        return None


def _declined(detail: str) -> RefundReport:
    return RefundReport(state=GatewayRefundState.DECLINED, detail=detail)
