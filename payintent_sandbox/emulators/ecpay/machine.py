"""The state of the ECPay emulator, and the actions of its buyers and merchants."""

import secrets
import time
from collections.abc import Sequence
from typing import Any

from payintent_sandbox.emulators.clock import ScaledClock
from payintent_sandbox.emulators.ecpay import checkmac, credit
from payintent_sandbox.emulators.ecpay.cards import Card, Notification
from payintent_sandbox.emulators.ecpay.model import (
    Account,
    Credit,
    RefusalError,
    Trade,
    TradeStatus,
    taipei,
    utc_now,
)
from payintent_sandbox.emulators.ecpay.notices import (
    PAID,
    RETRY_WAITS_S,
    UNCONFIRMED,
    Notices,
    extra,
)
from payintent_sandbox.emulators.ecpay.orders import check_order
from payintent_sandbox.emulators.notifier import Notifier

TRADES_MAX = 100_000
STAMP_TOLERANCE_S = 180
CONFIRM_WAIT_S = 60.0
_FIRST_NUMBER = 10_000_000


class EcpayEmulator:
    """All trades of the emulator. State changes do not await, so each is atomic."""

    def __init__(self, accounts: Sequence[Account], time_scale: float) -> None:
        self._clock = ScaledClock(time_scale)
        self.notifier = Notifier(self._clock, RETRY_WAITS_S)
        self.notices = Notices(self.notifier)
        self._accounts = {account.merchant_id: account for account in accounts}
        self._trades: dict[tuple[str, str], Trade] = {}
        self._pages: dict[str, Trade] = {}
        self._count = 0

    def account(self, fields: dict[str, str]) -> Account:
        """Find the merchant that submitted a form, and verify its `CheckMacValue`."""
        account = self._accounts.get(fields.get("MerchantID", ""))
        if account is None:
            raise RefusalError("10200050", "MerchantID Error")
        if not checkmac.fits(fields, account.hash_key, account.hash_iv):
            raise RefusalError("10200073", "CheckMacValue Error")
        return account

    def open(self, fields: dict[str, str]) -> Trade:
        """Accept an order; its `MerchantTradeNo` can never be used again."""
        account = self.account(fields)
        check_order(fields)
        key = (account.merchant_id, fields["MerchantTradeNo"])
        if key in self._trades:
            raise RefusalError("10300028", "訂單編號重覆")
        if len(self._trades) >= TRADES_MAX:
            raise RefusalError("10200000", f"{TRADES_MAX} trades are stored; restart the emulator")
        self._count += 1
        now = utc_now()
        stamp = taipei(now).replace("/", "").replace(":", "").replace(" ", "")[2:]
        trade = Trade(
            account=account,
            order=fields,
            trade_no=f"{stamp}{self._count:06}",
            page_id=secrets.token_hex(16),
            begun_at=now,
        )
        self._trades[key] = self._pages[trade.page_id] = trade
        return trade

    def page(self, page_id: str) -> Trade | None:
        """Find the trade of a payment page; the page id is a capability."""
        return self._pages.get(page_id)

    def pay(self, trade: Trade, card: Card) -> tuple[str, str] | None:
        """Accept the buyer's attempt. Return its code and message, or None for a second attempt."""
        if trade.tried:
            return None
        if card.notification is Notification.SIMULATED:
            self._clock.start(self.notices.send(trade, PAID, "模擬付款", simulated=True))
            return PAID, "模擬付款"
        trade.tried, trade.process_at = True, utc_now()
        if card.code != PAID:
            trade.status = TradeStatus.NOT_ESTABLISHED
            self._clock.start(self.notices.send(trade, card.code, card.message))
            return card.code, card.message
        if card.notification is Notification.UNCONFIRMED:
            self._clock.start(self._confirm(trade, card))
            return UNCONFIRMED, "交易付款結果待確認中"
        self._take(trade, card)
        if card.notification is not Notification.NEVER:
            self._clock.start(self._notify(trade, card))
        return PAID, "Succeeded"

    def inquire(self, fields: dict[str, str]) -> dict[str, str]:
        """Return a signed response to an inquiry about a trade."""
        account = self.account(fields)
        stamp = fields.get("TimeStamp", "")
        if not stamp.isdecimal() or abs(time.time() - int(stamp)) > STAMP_TOLERANCE_S:
            raise RefusalError("10200089", "TimeStamp Error")
        trade_no = fields.get("MerchantTradeNo", "")
        trade = self._trades.get((account.merchant_id, trade_no))
        content = _shown(trade_no, account, trade)
        return checkmac.attach(content, account.hash_key, account.hash_iv)

    def act(self, fields: dict[str, str]) -> dict[str, str]:
        """Run an action on a card payment. The response is unsigned, like ECPay's."""
        account = self.account(fields)
        named = {name: fields.get(name, "") for name in ("MerchantTradeNo", "TradeNo")}
        trade = self._trades.get((account.merchant_id, named["MerchantTradeNo"]))
        code, message = "1", ""
        try:
            credit.act(trade if trade and trade.trade_no == named["TradeNo"] else None, fields)
        except RefusalError as refusal:
            code, message = refusal.code, refusal.message
        return {"MerchantID": account.merchant_id, **named, "RtnCode": code, "RtnMsg": message}

    def detail(self, fields: dict[str, str]) -> dict[str, Any]:
        """Return the details of a card payment, found by its authorisation number (`gwsr`)."""
        account = self.account(fields)
        if fields.get("CreditCheckCode") != account.credit_check_code:
            return {"RtnMsg": "error", "RtnValue": None}
        for trade in self._of(account):
            paid = trade.credit
            if paid and str(paid.number) == fields.get("CreditRefundId"):
                matches = str(paid.amount) == fields.get("CreditAmount")
                content = credit.detail(paid) if matches else None
                return {"RtnMsg": "" if matches else "error", "RtnValue": content}
        return {"RtnMsg": "error_nopay", "RtnValue": None}

    def by_trade_no(self, trade_no: str) -> Trade | None:
        """Find a trade by its `TradeNo`, for testers."""
        trades = self._trades.values()
        return next((trade for trade in trades if trade.trade_no == trade_no), None)

    def _of(self, account: Account) -> list[Trade]:
        return [trade for trade in self._trades.values() if trade.account is account]

    def _take(self, trade: Trade, card: Card) -> None:
        self._count += 1
        trade.status, trade.paid_at = TradeStatus.PAID, utc_now()
        trade.amount = int(trade.order["TotalAmount"]) + card.extra
        trade.credit = Credit(
            number=_FIRST_NUMBER + self._count, amount=trade.amount, code="777777", card=card
        )

    async def _confirm(self, trade: Trade, card: Card) -> None:
        await self.notices.send(trade, UNCONFIRMED, "交易付款結果待確認中")
        await self._clock.wait(CONFIRM_WAIT_S)
        self._take(trade, card)
        await self._notify(trade, card)

    async def _notify(self, trade: Trade, card: Card) -> None:
        await self.notices.send(trade, PAID, card.message)
        if card.notification is Notification.TWICE:
            await self.notices.send(trade, PAID, "paid")


def _shown(trade_no: str, account: Account, trade: Trade | None) -> dict[str, str]:
    order = trade.order if trade else {}
    fields = {
        f"CustomField{number}": order.get(f"CustomField{number}", "") for number in range(1, 5)
    }
    content = fields | {
        "HandlingCharge": "0",
        "ItemName": order.get("ItemName", ""),
        "MerchantID": account.merchant_id,
        "MerchantTradeNo": trade_no,
        "PaymentDate": taipei(trade.paid_at) if trade else "",
        "PaymentType": "Credit_CreditCard" if trade else "",
        "PaymentTypeChargeFee": "0",
        "StoreID": order.get("StoreID", ""),
        "TradeAmt": str(trade.amount or order["TotalAmount"]) if trade else "0",
        "TradeDate": taipei(trade.begun_at) if trade else "",
        "TradeNo": trade.trade_no if trade else "",
        "TradeStatus": trade.status.value if trade else TradeStatus.NOT_FOUND.value,
    }
    return content | extra(trade) if trade and order.get("NeedExtraPaidInfo") == "Y" else content
