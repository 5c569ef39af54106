"""Result notifications: told to the merchant's server until it answers `1|OK`, and no longer."""

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlencode

import aiohttp

from payintent_sandbox.emulators.ecpay import checkmac
from payintent_sandbox.emulators.ecpay.model import Trade, taipei, utc_now

RETRY_WAITS_S = (300.0, 300.0, 300.0, 300.0)  # ECPay: 5 to 15 minutes, four times a day
CONFIRM_WAIT_S = 60.0
TRY_TIMEOUT_S = 10  # of real time, as ECPay has it
ANSWER_BYTES_MAX = 1024
LOG_MAX = 1_000
ACKNOWLEDGED = b"1|OK"
PAID, UNCONFIRMED = "1", "10300066"


class Notices:
    """The sender; open while the application runs."""

    def __init__(self, time_scale: float) -> None:
        self._scale = time_scale
        self._tasks: set[asyncio.Task[None]] = set()
        self._http: aiohttp.ClientSession | None = None
        self.log: deque[dict[str, Any]] = deque(maxlen=LOG_MAX)

    async def open(self) -> None:
        """Get ready to send."""
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=TRY_TIMEOUT_S), cookie_jar=aiohttp.DummyCookieJar()
        )

    async def close(self) -> None:
        """Drop whatever still waits, and the connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._http:
            await self._http.close()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something in the background."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self, delay_s: float) -> None:
        """Wait for a delay divided by the scale."""
        due = time.monotonic() + delay_s / self._scale
        while (left := due - time.monotonic()) > 0:  # noqa: ASYNC110 - a clock sets no event
            await asyncio.sleep(left)

    async def tell(self, trade: Trade, code: str, message: str, *, simulated: bool = False) -> None:
        """Tell a result until it is acknowledged; again in other words, as ECPay does."""
        if await self._try(trade, result(trade, code, message, simulated=simulated)):
            return
        again = "paid" if code == PAID else message
        for wait_s in RETRY_WAITS_S:
            await self.wait(wait_s)
            if await self._try(trade, result(trade, code, again, simulated=simulated)):
                return

    async def _try(self, trade: Trade, fields: dict[str, str]) -> bool:
        assert self._http is not None  # noqa: S101 - open() came first
        entry: dict[str, Any] = {"TradeNo": trade.trade_no, "RtnMsg": fields["RtnMsg"]}
        self.log.append(entry)
        try:
            async with self._http.post(
                trade.order["ReturnURL"],
                data=urlencode(fields).encode(),
                headers={"Content-Type": "application/x-www-form-urlencoded"},
                allow_redirects=False,
            ) as answer:
                body = await answer.content.read(ANSWER_BYTES_MAX)
                entry["status"], entry["acknowledged"] = answer.status, body == ACKNOWLEDGED
                return answer.status == 200 and body == ACKNOWLEDGED  # noqa: PLR2004
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            entry["error"] = type(error).__name__
            return False


def result(trade: Trade, code: str, message: str, *, simulated: bool = False) -> dict[str, str]:
    """Word a result, signed: to the merchant's server, and to its page by way of the browser."""
    order = trade.order
    fields = {f"CustomField{place}": order.get(f"CustomField{place}", "") for place in range(1, 5)}
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
    """Give what is told of the card where the order wants it."""
    credit = trade.credit
    return {
        "amount": str(credit.amount) if credit else "",
        "auth_code": credit.code if credit else "",
        "card4no": credit.card.number[-4:] if credit else "",
        "card6no": credit.card.number[:6] if credit else "",
        "eci": "0",
        "gwsr": str(credit.number) if credit else "",
        "process_date": taipei(trade.process_at),
    }
