"""Result notifications, repeated until the merchant's server responds with `1|OK`."""

from collections import deque
from typing import Any
from urllib.parse import urlencode

from payintent_sandbox.emulators.ecpay import checkmac
from payintent_sandbox.emulators.ecpay.model import Trade, taipei, utc_now
from payintent_sandbox.emulators.notifier import Notifier

RETRY_WAITS_S = (300.0, 300.0, 300.0, 300.0)  # ECPay: 5 to 15 minutes, four times a day
LOG_MAX = 1_000
ACKNOWLEDGED = b"1|OK"
PAID, UNCONFIRMED = "1", "10300066"
_OK = 200
_HEADERS = {"Content-Type": "application/x-www-form-urlencoded"}


class Notices:
    """An emulator's notifications, and a log of the latest notifications."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self.log: deque[dict[str, Any]] = deque(maxlen=LOG_MAX)

    async def send(self, trade: Trade, code: str, message: str, *, simulated: bool = False) -> None:
        """Notify the merchant of a result. Retries for a paid order have a different `RtnMsg`."""
        again = "paid" if code == PAID else message

        async def attempt(number: int) -> bool:
            text = message if number == 1 else again
            return await self._try(trade, result(trade, code, text, simulated=simulated))

        await self._notifier.send(attempt)

    async def _try(self, trade: Trade, fields: dict[str, str]) -> bool:
        entry: dict[str, Any] = {"TradeNo": trade.trade_no, "RtnMsg": fields["RtnMsg"]}
        self.log.append(entry)
        body = urlencode(fields).encode()
        answer = await self._notifier.post(trade.order["ReturnURL"], body, _HEADERS)
        if answer.error:
            entry["error"] = answer.error
            return False
        entry["status"], entry["acknowledged"] = answer.status, answer.body == ACKNOWLEDGED
        return answer.status == _OK and answer.body == ACKNOWLEDGED


def result(trade: Trade, code: str, message: str, *, simulated: bool = False) -> dict[str, str]:
    """Build a signed result for the merchant's server and, through the browser, for its page."""
    order = trade.order
    fields = {
        f"CustomField{number}": order.get(f"CustomField{number}", "") for number in range(1, 5)
    }
    fields |= {
        "MerchantID": trade.account.merchant_id,
        "MerchantTradeNo": order["MerchantTradeNo"],
        "PaymentDate": taipei(trade.paid_at or utc_now()),
        "PaymentType": "Credit_CreditCard",
        "PaymentTypeChargeFee": "0",
        "RtnCode": code,
        "RtnMsg": message,
        "SimulatePaid": "1" if simulated else "0",
        "StoreID": order.get("StoreID", ""),
        "TradeAmt": str(trade.amount or int(order["TotalAmount"])),
        "TradeDate": taipei(trade.begun_at),
        "TradeNo": trade.trade_no,
    }
    if order.get("NeedExtraPaidInfo") == "Y":
        fields |= extra(trade)
    return checkmac.attach(fields, trade.account.hash_key, trade.account.hash_iv)


def extra(trade: Trade) -> dict[str, str]:
    """Return the card fields of an order with `NeedExtraPaidInfo=Y`."""
    credit = trade.credit
    return {
        "amount": str(credit.amount) if credit else "",
        "auth_code": credit.code if credit else "",
        "card4no": credit.card.number[-4:] if credit else "",
        "card6no": credit.card.number[:6] if credit else "",
        "eci": "0",
        "gwsr": str(credit.number) if credit else "",
        "process_date": taipei(trade.process_at),
        "stage": str(credit.card.stage) if credit else "",
    }
