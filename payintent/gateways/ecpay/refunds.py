"""ECPay's refunds: the actions for a card payment depend on how far its closing has come."""

import asyncio
import re
from dataclasses import dataclass
from datetime import datetime, time
from enum import StrEnum

import msgspec
from msgspec import Struct

from payintent.domain.gateway import (
    GatewayAccount,
    GatewayRefundRequest,
    GatewayRefundState,
    GatewaySessionRef,
    NotContacted,
    OutcomeUnknown,
    RefundReport,
)
from payintent.gateways.ecpay.api import (
    CURRENCY,
    DECIMALS,
    PAID,
    TAIPEI,
    EcpayApi,
    EcpayTrade,
    session_trade_no,
)
from payintent.gateways.ecpay.check_mac import parse_form
from payintent.gateways.minor_units import to_gateway

#: While ECPay closes the day's trades, no action on them is allowed.
CLOSING_BEGINS, CLOSING_ENDS = time(20, 15), time(20, 31)
DETAIL_CHARS_MAX = 100
LOOK_MAX_S = 10.0  # for both queries: up to two actions follow
_ACT, _DETAIL = "/CreditDetail/DoAction", "/CreditDetail/QueryTrade/V2"
_CODE = re.compile(r"-?[0-9]{1,10}")


class _Phase(StrEnum):
    """How far the closing of a card's authorisation has come: before it, no money moves."""

    AUTHORISED = "authorised"
    CLOSING = "closing"  # the bank will be asked for the money
    CLOSED = "closed"
    WITHDRAWN = "withdrawn"  # the closing was withdrawn, so that it is authorised as before
    GIVEN_UP = "given_up"  # the authorisation was given up: all is refunded


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

#: Actions in their order: C closes, R refunds a closed amount, E withdraws the closing, N gives up
#: the authorisation. All but R are for the whole amount; only the last one refunds anything.
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
    amount: int  # below zero: refunded


class _Credit(Struct, frozen=True):
    amount: int
    status: str
    clsamt: int = 0
    close_data: list[_Row] | None = None


class _Detail(Struct, frozen=True):
    said: str | None = msgspec.field(name="RtnMsg", default=None)
    value: _Credit | None = msgspec.field(name="RtnValue", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Card:
    phase: _Phase
    whole: int
    given_back: int


async def refund_trade(
    ecpay: EcpayApi, account: GatewayAccount, request: GatewayRefundRequest
) -> RefundReport | OutcomeUnknown:
    """Refund a trade; where its state cannot be read, nothing is requested."""
    units = _units(request)
    if request.session is None or units is None:
        return _declined("no trade is known, or the amount is not in whole dollars")
    if _closes_now(ecpay, account):
        return NotContacted(detail="ECPay is closing the day's trades", neutral=True)
    if not account.credentials.get("credit_check_code"):
        return await _act(ecpay, account, request, "R", units)
    card = await _look(ecpay, account, request, request.session)
    if isinstance(card, OutcomeUnknown):
        return NotContacted(detail=card.detail, throttled=card.throttled)
    if isinstance(card, RefundReport):
        return card
    return await _go(ecpay, account, request, card, units)


async def inquire_trade_refund(
    ecpay: EcpayApi, account: GatewayAccount, request: GatewayRefundRequest
) -> RefundReport | OutcomeUnknown:
    """Report the outcome of a refund, where the sum of all refunds allows it."""
    if request.session is None or not account.credentials.get("credit_check_code"):
        return OutcomeUnknown(
            detail="ECPay cannot be asked without credit_check_code and a session", neutral=True
        )
    card = await _look(ecpay, account, request, request.session)
    if isinstance(card, RefundReport):
        return OutcomeUnknown(detail=card.detail)
    if isinstance(card, OutcomeUnknown):
        return card
    units = _units(request)
    if units is None or card.given_back < units:
        return RefundReport(state=GatewayRefundState.ABSENT)
    if card.given_back >= card.whole or request.reference is not None:
        return RefundReport(state=GatewayRefundState.DONE)
    return OutcomeUnknown(
        detail="so much has gone back, and ECPay does not say for which refund", answered=True
    )


async def _go(
    ecpay: EcpayApi, account: GatewayAccount, request: GatewayRefundRequest, card: _Card, units: int
) -> RefundReport | OutcomeUnknown:
    if card.given_back + units > card.whole:
        return _declined("more than is left")
    actions = (_WHOLE if units == card.whole else _PART)[card.phase]
    for action in actions[:-1]:
        prepared = await _act(ecpay, account, request, action, card.whole)
        if isinstance(prepared, OutcomeUnknown):
            # Nothing is refunded yet; the next try reads the state anew.
            return NotContacted(detail=f"{action}: {prepared.detail}")
        if prepared.state is GatewayRefundState.DECLINED:
            return prepared
    return await _act(ecpay, account, request, actions[-1], units)


async def _act(
    ecpay: EcpayApi, account: GatewayAccount, request: GatewayRefundRequest, action: str, units: int
) -> RefundReport | OutcomeUnknown:
    """Request one action; its answer is not signed, so it must at least name the trade."""
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
        said = parse_form(answer.body)
    except ValueError:
        return OutcomeUnknown(detail="an unreadable answer to an action")
    code = said.get("RtnCode", "")
    if not _CODE.fullmatch(code) or any(said.get(field) != trade[field] for field in trade):
        return OutcomeUnknown(detail="an answer to no action of ours")
    if code == PAID:
        # ECPay has no ids for refunds: the reference only says that it did this one.
        reference = f"{request.capture.reference}-{action}"
        return RefundReport(state=GatewayRefundState.DONE, reference=reference)
    return _declined(f"{action}: {code} {said.get('RtnMsg', '')[:DETAIL_CHARS_MAX]}")


async def _look(
    ecpay: EcpayApi,
    account: GatewayAccount,
    request: GatewayRefundRequest,
    session: GatewaySessionRef,
) -> _Card | RefundReport | OutcomeUnknown:
    try:
        async with asyncio.timeout(LOOK_MAX_S):
            trade = await ecpay.look_up(account, session)
            if isinstance(trade, OutcomeUnknown):
                return trade
            if (trade.status, trade.trade_no) != (PAID, request.capture.reference):
                return _declined("ECPay knows of no such payment")
            if trade.instalments and _units(request) != trade.units:
                return _declined("an order that is paid in instalments is refunded as a whole")
            return await _card(ecpay, account, trade)
    except TimeoutError:
        return OutcomeUnknown(detail=f"not seen within {LOOK_MAX_S:g} s how the payment stands")


async def _card(
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
        # Amounts come as numbers or as text.
        detail = msgspec.json.decode(answer.body, type=_Detail, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return OutcomeUnknown(detail="an unreadable answer about a card payment")
    credit = detail.value
    if detail.said or credit is None or credit.amount != trade.units:
        return OutcomeUnknown(detail=f"no word on a card payment: {(detail.said or '')[:20]}")
    phase = _phase(credit)
    if phase is None:
        return OutcomeUnknown(detail="a card payment in an unknown state")
    return _Card(phase=phase, whole=credit.amount, given_back=_given_back(credit, phase))


def _phase(credit: _Credit) -> _Phase | None:
    """Use the closing's own status where there is one; the overall one is of the last action."""
    words = {row.status for row in credit.close_data or () if row.amount > 0}
    return _PHASES.get(words.pop() if len(words) == 1 else credit.status)


def _given_back(credit: _Credit, phase: _Phase) -> int:
    if phase is _Phase.GIVEN_UP:
        return credit.amount
    rows = [row.amount for row in credit.close_data or () if _PHASES.get(row.status) in _COUNTED]
    back = -sum(amount for amount in rows if amount < 0)
    if phase is _Phase.CLOSED and credit.clsamt:
        back = max(back, credit.amount - credit.clsamt)
    return back


_COUNTED = (_Phase.CLOSING, _Phase.CLOSED)


def _closes_now(ecpay: EcpayApi, account: GatewayAccount) -> bool:
    if account.credentials.get("auto_close") == "off":
        return False
    return CLOSING_BEGINS <= datetime.fromtimestamp(ecpay.now(), TAIPEI).time() < CLOSING_ENDS


def _units(request: GatewayRefundRequest) -> int | None:
    try:
        return to_gateway(request.amount_minor, CURRENCY, DECIMALS)
    except ValueError:
        return None


def _declined(detail: str) -> RefundReport:
    return RefundReport(state=GatewayRefundState.DECLINED, detail=detail)
