"""The test cards of the ECPay emulator, and the outcome of each, as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Notification(StrEnum):
    """The result notifications that the merchant receives."""

    ONCE = "once"
    TWICE = "twice"  # again with a different message, although the first was acknowledged
    NEVER = "never"
    SIMULATED = "simulated"  # from the merchant's back office: no money is paid
    UNCONFIRMED = "unconfirmed"  # first unconfirmed, then paid


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card number and the outcome of a payment with it."""

    number: str
    title: str  # shown on the payment page
    code: str = "1"  # RtnCode
    message: str = "交易成功"
    extra: int = 0  # whole dollars charged above the order's amount
    notification: Notification = Notification.ONCE
    refundable: bool = True
    stage: int = 0  # instalments that the buyer has chosen
    union_pay: bool = False  # shown unless the order hides UnionPay


_ALL = (
    Card(number="4311951111111111", title="approved"),
    Card(number="4000000000000002", title="declined", code="10100248", message="拒絕交易"),
    Card(
        number="4000000000009995", title="insufficient funds", code="10100252", message="額度不足"
    ),
    Card(number="4000000000000069", title="expired card", code="10100251", message="卡片過期"),
    Card(number="4000002500003155", title="3-D failed", code="10100058", message="Pay fail"),
    Card(number="4000000000000119", title="an undocumented failure code", code="10100999"),
    Card(
        number="4000009900000012",
        title="simulated payment from the merchant's back office",
        notification=Notification.SIMULATED,
    ),
    Card(
        number="4000009900000020",
        title="approved; notified twice with different messages",
        notification=Notification.TWICE,
    ),
    Card(
        number="4000009900000046",
        title="approved without a notification; an inquiry reports the payment",
        notification=Notification.NEVER,
    ),
    Card(number="4000009900000079", title="approved for one dollar too much", extra=1),
    Card(
        number="4000009900000103",
        title="unconfirmed at first, then approved",
        notification=Notification.UNCONFIRMED,
    ),
    Card(number="4000009900000186", title="approved in six instalments (from 1,000 TWD)", stage=6),
    Card(
        number="6200009900000012",
        title="approved with UnionPay; no redirect to the shop",
        union_pay=True,
    ),
    Card(number="4000009900000178", title="approved; refunds are refused", refundable=False),
)

CARDS: dict[str, Card] = {card.number: card for card in _ALL}
INSTALMENTS_FROM = 1_000  # whole dollars


def offered_cards(order: Mapping[str, str]) -> list[Card]:
    """Return the cards that ECPay accepts for an order, based on its amount and `UnionPay`."""
    union_pay = order.get("UnionPay") or "0"
    return [
        card
        for card in _ALL
        if (card.stage == 0 or int(order["TotalAmount"]) >= INSTALMENTS_FROM)
        and {"0": True, "1": card.union_pay, "2": not card.union_pay}[union_pay]
    ]
