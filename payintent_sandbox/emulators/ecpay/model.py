"""What the counterpart keeps: merchants, and trades with what became of their card."""

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
    """What was asked is declined, with ECPay's code and words."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code} {message}")
        self.code = code
        self.message = message


class TradeStatus(StrEnum):
    """What an inquiry says of a trade."""

    UNPAID = "0"
    PAID = "1"
    NOT_ESTABLISHED = "10200095"
    NOT_FOUND = "10200047"


class Closing(StrEnum):
    """How far the closing of a card payment has come, in ECPay's words."""

    AUTHORISED = "已授權"
    TO_BE_CLOSED = "要關帳"
    CLOSED = "已關帳"
    CANCELLED = "已取消"
    WITHDRAWN = "操作取消"


@dataclass(slots=True, kw_only=True)
class Row:
    """One line of a card payment's closing; below zero is given back."""

    status: Closing
    amount: int
    at: datetime


@dataclass(slots=True, kw_only=True)
class Credit:
    """A card's authorisation and what became of it; in whole dollars."""

    number: int  # `gwsr`
    amount: int
    code: str
    card: Card
    status: Closing = Closing.AUTHORISED
    rows: list[Row] = field(default_factory=list[Row])

    @property
    def given_back(self) -> int:
        """Count what has gone back, or was never taken."""
        if self.status is Closing.CANCELLED:
            return self.amount
        return -sum(row.amount for row in self.rows if row.amount < 0)

    @property
    def closed(self) -> int:
        """Count what was closed."""
        return sum(row.amount for row in self.rows if row.status is Closing.CLOSED)


@dataclass(slots=True, kw_only=True)
class Trade:
    """An order that a buyer has brought."""

    account: Account
    order: dict[str, str]
    trade_no: str
    page_id: str  # who knows it may pay
    begun_at: datetime
    status: TradeStatus = TradeStatus.UNPAID
    tried: bool = False  # its one attempt is used up
    paid_at: datetime | None = None
    process_at: datetime | None = None
    amount: int = 0  # what was taken
    credit: Credit | None = None


def taipei(moment: datetime | None) -> str:
    """Write a time as ECPay does; nothing where there is none."""
    return moment.astimezone(TAIPEI).strftime("%Y/%m/%d %H:%M:%S") if moment else ""


def utc_now() -> datetime:
    """Read the clock."""
    return datetime.now(UTC)
