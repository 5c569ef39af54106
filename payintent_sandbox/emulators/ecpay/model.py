"""The ECPay emulator's data: merchants, trades and their card payments."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from payintent_sandbox.emulators.ecpay.cards import Card

TAIPEI = timezone(timedelta(hours=8))
_Secret = Annotated[str, Meta(pattern=r"^[0-9A-Za-z]{1,64}\Z")]


@dataclass(frozen=True, slots=True)
class Account:
    """A merchant of this gateway."""

    merchant_id: Annotated[str, Meta(pattern=r"^[0-9]{1,10}\Z")]
    hash_key: _Secret = field(repr=False)
    hash_iv: _Secret = field(repr=False)
    credit_check_code: Annotated[str, Meta(pattern=r"^[0-9]{1,20}\Z")] = field(repr=False)


class RefusalError(Exception):
    """A request is rejected, with ECPay's code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code} {message}")
        self.code = code
        self.message = message


class TradeStatus(StrEnum):
    """`TradeStatus` in the response to an inquiry."""

    UNPAID = "0"
    PAID = "1"
    NOT_ESTABLISHED = "10200095"
    NOT_FOUND = "10200047"


class Closing(StrEnum):
    """The closing status of a card payment, in ECPay's terms."""

    AUTHORISED = "已授權"
    TO_BE_CLOSED = "要關帳"
    CLOSED = "已關帳"
    CANCELLED = "已取消"
    WITHDRAWN = "操作取消"


@dataclass(slots=True, kw_only=True)
class Row:
    """An entry of a card payment's `close_data`; a negative amount is a refund."""

    status: Closing
    amount: int
    at: datetime


@dataclass(slots=True, kw_only=True)
class Credit:
    """A card authorisation with its closings and refunds; amounts are in whole dollars."""

    number: int  # `gwsr`
    amount: int
    code: str
    card: Card
    status: Closing = Closing.AUTHORISED
    rows: list[Row] = field(default_factory=list[Row])

    @property
    def given_back(self) -> int:
        """The sum of the refunds, or the full amount once the authorisation is cancelled."""
        if self.status is Closing.CANCELLED:
            return self.amount
        return -sum(row.amount for row in self.rows if row.amount < 0)

    @property
    def closed(self) -> int:
        """The sum of the closed entries, with refunds as negative amounts."""
        return sum(row.amount for row in self.rows if row.status is Closing.CLOSED)


@dataclass(slots=True, kw_only=True)
class Trade:
    """An order with an opened payment page."""

    account: Account
    order: dict[str, str]
    trade_no: str
    page_id: str  # a capability: anyone who has it can pay
    begun_at: datetime
    status: TradeStatus = TradeStatus.UNPAID
    tried: bool = False  # the only attempt is used up
    paid_at: datetime | None = None
    process_at: datetime | None = None
    amount: int = 0  # the captured amount
    credit: Credit | None = None


def taipei(moment: datetime | None) -> str:
    """Format a time as ECPay does; None becomes an empty string."""
    return moment.astimezone(TAIPEI).strftime("%Y/%m/%d %H:%M:%S") if moment else ""


def utc_now() -> datetime:
    """Return the current time, in UTC."""
    return datetime.now(UTC)
