"""Card payments after authorisation: closing, refunding, withdrawing, cancelling and querying."""

from typing import Any

from payintent_sandbox.emulators.ecpay.model import (
    Closing,
    Credit,
    RefusalError,
    Row,
    Trade,
    taipei,
    utc_now,
)

_REFUSED = "10200041"


def act(trade: Trade | None, fields: dict[str, str]) -> None:
    """Perform an action on a paid trade, unless the closing status does not allow the action."""
    action, amount = fields.get("Action", ""), fields.get("TotalAmount", "")
    if trade is None or trade.credit is None:
        raise RefusalError(_REFUSED, "error_nopay")
    if action not in _ACTIONS or not (amount.isascii() and amount.isdecimal()):
        raise RefusalError(_REFUSED, "Action or TotalAmount Error.")
    if trade.credit.card.stage and action == "R" and int(amount) != trade.credit.amount:
        raise RefusalError(_REFUSED, "An order paid in instalments can only be refunded in full.")
    if not trade.credit.card.refundable and action in "RN":
        raise RefusalError(_REFUSED, "The account balance is too low.")
    _ACTIONS[action](trade.credit, int(amount))


def close_day(credit: Credit) -> None:
    """Close a payment if it is authorised, as ECPay does every evening."""
    if credit.status is Closing.AUTHORISED:
        _close(credit, credit.amount)
    for row in credit.rows:
        if row.status is Closing.TO_BE_CLOSED:
            row.status = Closing.CLOSED
    if credit.status is Closing.TO_BE_CLOSED:
        credit.status = Closing.CLOSED


def detail(credit: Credit) -> dict[str, Any]:
    """Return a card payment as the response to a detail inquiry, with amounts as strings."""
    return {
        "TradeID": credit.number,
        "amount": str(credit.amount),
        "clsamt": str(credit.closed),
        "authtime": taipei(utc_now()),
        "status": credit.status.value,
        "close_data": [
            {
                "status": row.status.value,
                "amount": str(row.amount),
                "sno": str(number),
                "datetime": taipei(row.at),
            }
            for number, row in enumerate(credit.rows, start=1)
        ],
    }


def _close(credit: Credit, amount: int) -> None:
    _require_status(credit, Closing.AUTHORISED, Closing.WITHDRAWN)
    _require_whole(credit, amount)
    credit.status = Closing.TO_BE_CLOSED
    credit.rows.append(Row(status=Closing.TO_BE_CLOSED, amount=amount, at=utc_now()))


def _refund(credit: Credit, amount: int) -> None:
    _require_status(credit, Closing.TO_BE_CLOSED, Closing.CLOSED)
    if not 0 < amount <= credit.amount - credit.given_back:
        raise RefusalError(_REFUSED, "The amount exceeds the remaining amount.")
    if credit.status is Closing.TO_BE_CLOSED and amount == credit.amount:
        raise RefusalError(_REFUSED, "Until the payment is closed, cancel it instead.")
    credit.rows.append(Row(status=Closing.TO_BE_CLOSED, amount=-amount, at=utc_now()))


def _withdraw(credit: Credit, amount: int) -> None:
    _require_status(credit, Closing.TO_BE_CLOSED)
    _require_whole(credit, amount)
    credit.status = Closing.WITHDRAWN
    for row in credit.rows:
        row.status = Closing.WITHDRAWN


def _cancel(credit: Credit, amount: int) -> None:
    _require_status(credit, Closing.AUTHORISED, Closing.WITHDRAWN)
    _require_whole(credit, amount)
    credit.status = Closing.CANCELLED


def _require_status(credit: Credit, *statuses: Closing) -> None:
    if credit.status not in statuses:
        raise RefusalError(_REFUSED, f"error_status {credit.status.value}")


def _require_whole(credit: Credit, amount: int) -> None:
    if amount != credit.amount:
        raise RefusalError(_REFUSED, "TotalAmount must be the full amount.")


_ACTIONS = {"C": _close, "R": _refund, "E": _withdraw, "N": _cancel}
