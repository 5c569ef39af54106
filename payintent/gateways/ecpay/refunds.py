"""ECPay refunds, whose actions depend on the settlement phase of the card payment."""

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
    parse_form,
    session_trade_no,
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

#: ECPay does not allow actions while it closes the day's trades.
CLOSING_BEGINS, CLOSING_ENDS = time(20, 15), time(20, 31)
DETAIL_CHARS_MAX = 100
QUERIES_TIMEOUT_S = 10.0  # for both queries, because up to two actions follow
_ACT, _DETAIL = "/CreditDetail/DoAction", "/CreditDetail/QueryTrade/V2"
_CODE = re.compile(r"-?[0-9]{1,10}")


class _Phase(StrEnum):
    """The settlement phase of a card authorisation; money moves when it is closed."""

    AUTHORISED = "authorised"
    CLOSING = "closing"  # ECPay will capture the money
    CLOSED = "closed"
    WITHDRAWN = "withdrawn"  # the closing was withdrawn: authorised as before
    GIVEN_UP = "given_up"  # the authorisation was cancelled: fully refunded


_PHASES = {
    "已授權": _Phase.AUTHORISED,
    "要關帳": _Phase.CLOSING,
    "已關帳": _Phase.CLOSED,
    "操作取消": _Phase.WITHDRAWN,
    "已取消": _Phase.GIVEN_UP,
    "Authorized": _Phase.AUTHORISED,
    "To be captured": _Phase.CLOSING,
    "Captured": _Phase.CLOSED,
    "Operation canceled": _Phase.WITHDRAWN,
    "Canceled": _Phase.GIVEN_UP,
}

#: Actions in their order: C closes, R refunds a closed amount, E withdraws the closing, N cancels
#: the authorisation. All except R apply to the full amount. Only the last action refunds.
_WHOLE = {
    _Phase.AUTHORISED: "N",
    _Phase.WITHDRAWN: "N",
    _Phase.CLOSING: "EN",
    _Phase.CLOSED: "R",
}
_PART = {
    _Phase.AUTHORISED: "CR",
    _Phase.WITHDRAWN: "CR",
    _Phase.CLOSING: "R",
    _Phase.CLOSED: "R",
}


class _Row(Struct, frozen=True):
    status: str
    amount: int  # negative: refunded


class _Credit(Struct, frozen=True):
    amount: int
    status: str
    clsamt: int = 0
    close_data: list[_Row] | None = None


class _Detail(Struct, frozen=True):
    message: str | None = msgspec.field(name="RtnMsg", default=None)
    value: _Credit | None = msgspec.field(name="RtnValue", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Card:
    phase: _Phase
    total: int
    refunded: int


async def refund_trade(
    ecpay: EcpayApi, account: GatewayAccount, request: GatewayRefundRequest
) -> RefundResult:
    """Refund a trade; nothing is requested if its state cannot be determined."""
    units = _to_dollars(request)
    if request.session is None or units is None:
        return _declined("there is no trade, or the amount is not in whole dollars")
    if _is_closing_time(ecpay, account):
        return NotContacted(detail="ECPay is closing the day's trades", is_skipped=True)
    if not account.credentials.get("credit_check_code"):
        return await _request_action(ecpay, account, request, "R", units)
    card = await _find_card(ecpay, account, request, request.session)
    if isinstance(card, OutcomeUnknown):
        return NotContacted(detail=card.detail, is_throttled=card.is_throttled)
    if isinstance(card, RefundReport):
        return card
    return await _refund_by_phase(ecpay, account, request, card, units)


async def inquire_trade_refund(
    ecpay: EcpayApi, account: GatewayAccount, request: GatewayRefundRequest
) -> RefundResult:
    """Infer the outcome of a refund from the refunded total: ECPay has no refund ids."""
    if request.session is None or not account.credentials.get("credit_check_code"):
        return OutcomeUnknown(
            detail="queries need a session and the credential credit_check_code", is_skipped=True
        )
    card = await _find_card(ecpay, account, request, request.session)
    if isinstance(card, RefundReport):
        return OutcomeUnknown(detail=card.detail)
    if isinstance(card, OutcomeUnknown):
        return card
    units = _to_dollars(request)
    if units is None or card.refunded < units:
        return RefundReport(state=GatewayRefundState.ABSENT)
    if card.refunded >= card.total or request.reference is not None:
        return RefundReport(state=GatewayRefundState.DONE)
    return inconclusive_response("the refunded total does not show which refunds were made")


async def _refund_by_phase(
    ecpay: EcpayApi, account: GatewayAccount, request: GatewayRefundRequest, card: _Card, units: int
) -> RefundResult:
    if card.refunded + units > card.total:
        return _declined("the amount exceeds the remainder")
    actions = (_WHOLE if units == card.total else _PART)[card.phase]
    for action in actions[:-1]:
        preparation = await _request_action(ecpay, account, request, action, card.total)
        if isinstance(preparation, OutcomeUnknown):
            # Nothing is refunded yet; the next attempt reads the state again.
            return NotContacted(detail=f"{action}: {preparation.detail}")
        if preparation.state is GatewayRefundState.DECLINED:
            return preparation
    return await _request_action(ecpay, account, request, actions[-1], units)


async def _request_action(
    ecpay: EcpayApi, account: GatewayAccount, request: GatewayRefundRequest, action: str, units: int
) -> RefundResult:
    """Request an action; the response is not signed, so it must at least identify the trade."""
    assert request.session is not None  # noqa: S101 - checked by the caller
    trade = {
        "MerchantTradeNo": session_trade_no(request.session),
        "TradeNo": request.capture.reference,
    }
    form = trade | {"Action": action, "TotalAmount": str(units)}
    answer = await ecpay.post(account, _ACT, form)
    if isinstance(answer, OutcomeUnknown):
        return answer
    try:
        fields = parse_form(answer.body)
    except ValueError:
        return OutcomeUnknown(detail="invalid response to an action")
    code = fields.get("RtnCode", "")
    if not _CODE.fullmatch(code) or any(fields.get(name) != trade[name] for name in trade):
        return OutcomeUnknown(detail="the response is about another action")
    if code == PAID:
        # ECPay has no refund ids; the reference only shows that this refund was done.
        reference = f"{request.capture.reference}-{action}"
        return RefundReport(state=GatewayRefundState.DONE, reference=reference)
    return _declined(f"{action}: {code} {fields.get('RtnMsg', '')[:DETAIL_CHARS_MAX]}")


async def _find_card(
    ecpay: EcpayApi,
    account: GatewayAccount,
    request: GatewayRefundRequest,
    session: GatewaySessionRef,
) -> _Card | RefundReport | OutcomeUnknown:
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
        return OutcomeUnknown(detail=f"no result of the queries within {QUERIES_TIMEOUT_S:g} s")


async def _query_card(
    ecpay: EcpayApi, account: GatewayAccount, trade: EcpayTrade
) -> _Card | OutcomeUnknown:
    form = {
        "CreditRefundId": trade.authorisation,
        "CreditAmount": str(trade.units),
        "CreditCheckCode": account.credentials["credit_check_code"],
    }
    answer = await ecpay.post(account, _DETAIL, form)
    if isinstance(answer, OutcomeUnknown):
        return answer
    try:
        # Amounts are numbers or strings.
        detail = msgspec.json.decode(answer.body, type=_Detail, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return OutcomeUnknown(detail="invalid response about a card payment")
    credit = detail.value
    if detail.message or credit is None or credit.amount != trade.units:
        return OutcomeUnknown(detail=f"no card payment: {(detail.message or '')[:20]}")
    phase = _settlement_phase(credit)
    if phase is None:
        return OutcomeUnknown(detail="the card payment has an unknown status")
    return _Card(phase=phase, total=credit.amount, refunded=_refunded_total(credit, phase))


def _settlement_phase(credit: _Credit) -> _Phase | None:
    """Prefer the status of the closing; the overall status is that of the last action."""
    statuses = {row.status for row in credit.close_data or () if row.amount > 0}
    return _PHASES.get(statuses.pop() if len(statuses) == 1 else credit.status)


def _refunded_total(credit: _Credit, phase: _Phase) -> int:
    if phase is _Phase.GIVEN_UP:
        return credit.amount
    closing = (_Phase.CLOSING, _Phase.CLOSED)
    rows = [row.amount for row in credit.close_data or () if _PHASES.get(row.status) in closing]
    total = -sum(amount for amount in rows if amount < 0)
    if phase is _Phase.CLOSED and credit.clsamt:
        total = max(total, credit.amount - credit.clsamt)
    return total


def _is_closing_time(ecpay: EcpayApi, account: GatewayAccount) -> bool:
    if account.credentials.get("auto_close") == "off":
        return False
    return CLOSING_BEGINS <= datetime.fromtimestamp(ecpay.now(), TAIPEI).time() < CLOSING_ENDS


def _to_dollars(request: GatewayRefundRequest) -> int | None:
    try:
        return to_gateway(request.amount_minor, CURRENCY, DECIMALS)
    except ValueError:
        return None


def _declined(detail: str) -> RefundReport:
    return RefundReport(state=GatewayRefundState.DECLINED, detail=detail)
