"""The kinds of payments: what their buyers and gateways do, and how they may end."""

from dataclasses import dataclass
from typing import Final

_TAKEN: Final = frozenset({"PAID"})
_REFUNDED: Final = frozenset({"PAID", "PARTIALLY_REFUNDED", "REFUNDED"})  # a refund takes its time
_FAILED: Final = frozenset({"FAILED"})

CARD, STRIPE = "card", "stripe"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of payment."""

    name: str
    ends: frozenset[str]  # the states that it may be in at the end, whatever dies meanwhile
    card: str = ""  # entered at the gateway; without one the buyer never gets there
    gateway: str = CARD
    refunds: tuple[str, ...] = ()  # amounts that are asked back, all at once; "" is all of it
    dispute: str = ""  # what the bank decides: `won`, `lost`, or `open` where it does not
    cancels: bool = False
    comes_back: bool = False
    expires_in: int | None = None


KINDS: Final = (
    Kind("paid", _TAKEN, "4242424242424242"),
    Kind("told three times", _TAKEN, "4000009900000020"),
    Kind("told late", _TAKEN, "4000009900000012"),
    Kind("told with a wrong signature first", _TAKEN, "4000009900000095"),
    Kind("never told", _TAKEN, "4000009900000046", comes_back=True),
    Kind("declined", _FAILED, "4000000000000002"),
    Kind("declined, then paid", _FAILED | _TAKEN, "4000009900000103"),
    Kind("too much taken", _FAILED, "4000009900000079"),
    Kind("another currency taken", _FAILED, "4000009900000087"),
    Kind("cancelled", frozenset({"CANCELLED"}), cancels=True),
    Kind("left", frozenset({"EXPIRED"}), expires_in=20),
    Kind("refunded in part", _REFUNDED, "4242424242424242", refunds=("10.00",)),
    Kind("refunded in two parts at once", _REFUNDED, "4242424242424242", refunds=("9.99", "0.01")),
    Kind("refunded twice at once", _REFUNDED, "4242424242424242", refunds=("", "")),
    Kind("refund declined", _TAKEN, "4000009900000178", refunds=("",)),
    Kind("refund pending", _REFUNDED, "4000009900000160", refunds=("5.00",)),
    Kind("disputed and lost", _TAKEN, "4242424242424242", STRIPE, dispute="lost"),
    Kind("disputed and won", _TAKEN, "4242424242424242", STRIPE, dispute="won"),
    Kind("disputed", _TAKEN, "4242424242424242", STRIPE, dispute="open"),
)
