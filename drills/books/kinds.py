"""The kinds of payments, with the behaviour of buyers and gateways and the permitted results."""

from dataclasses import dataclass
from typing import Final

_TAKEN: Final = frozenset({"PAID"})
# The refund may still be in progress.
_REFUNDED: Final = frozenset({"PAID", "PARTIALLY_REFUNDED", "REFUNDED"})
_FAILED: Final = frozenset({"FAILED"})

CARD, STRIPE = "card", "stripe"


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    ends: frozenset[str]  # permitted statuses at the end, regardless of faults
    card: str = ""  # card number entered at the gateway; if empty, no method is selected
    gateway: str = CARD
    refunds: tuple[str, ...] = ()  # concurrent refunds; "" means the full amount
    dispute: str = ""  # the bank's decision: `won`, `lost`, or `open` if it is undecided
    cancels: bool = False
    comes_back: bool = False
    expires_in: int | None = None


KINDS: Final = (
    Kind("paid", _TAKEN, "4242424242424242"),
    Kind("callback sent three times", _TAKEN, "4000009900000020"),
    Kind("late callback", _TAKEN, "4000009900000012"),
    Kind("invalid signature first", _TAKEN, "4000009900000095"),
    Kind("no callback", _TAKEN, "4000009900000046", comes_back=True),
    Kind("declined", _FAILED, "4000000000000002"),
    Kind("declined, then paid", _FAILED | _TAKEN, "4000009900000103"),
    Kind("overcharged", _FAILED, "4000009900000079"),
    Kind("charged in another currency", _FAILED, "4000009900000087"),
    Kind("cancelled", frozenset({"CANCELLED"}), cancels=True),
    Kind("abandoned", frozenset({"EXPIRED"}), expires_in=20),
    Kind("partially refunded", _REFUNDED, "4242424242424242", refunds=("10.00",)),
    Kind("two concurrent partial refunds", _REFUNDED, "4242424242424242", refunds=("9.99", "0.01")),
    Kind("two concurrent full refunds", _REFUNDED, "4242424242424242", refunds=("", "")),
    Kind("refund declined", _TAKEN, "4000009900000178", refunds=("",)),
    Kind("refund pending", _REFUNDED, "4000009900000160", refunds=("5.00",)),
    Kind("disputed and lost", _TAKEN, "4242424242424242", STRIPE, dispute="lost"),
    Kind("disputed and won", _TAKEN, "4242424242424242", STRIPE, dispute="won"),
    Kind("disputed", _TAKEN, "4242424242424242", STRIPE, dispute="open"),
)
