"""The simulator's test cards and their outcomes."""

from dataclasses import dataclass
from enum import StrEnum


class Calling(StrEnum):
    """The number and timing of the callbacks that report a capture."""

    ONCE = "once"
    LATE = "late"
    THRICE = "thrice"  # the same event, with different bytes each time
    NEVER = "never"
    BADLY_SIGNED = "badly_signed"  # only on the first attempt


class Refunding(StrEnum):
    """How refunds of a capture end."""

    AT_ONCE = "at_once"
    PENDING = "pending"  # pending for a minute, then successful
    REFUSED = "refused"
    OUT_OF_ORDER = "out_of_order"  # 503 until the rule `refunds_work` is added


class Late(StrEnum):
    """When an unexpected late capture happens."""

    AFTER_CLOSE = "after_close"
    AFTER_EXPIRY = "after_expiry"  # or after the close, whichever comes first


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card number and the outcome of a payment with it."""

    number: str
    title: str  # shown on the payment page
    decline_code: str | None = None
    paid_after_decline: bool = False
    challenge: bool = False
    late: Late | None = None
    extra_minor: int = 0
    other_currency: bool = False
    calling: Calling = Calling.ONCE
    refunding: Refunding = Refunding.AT_ONCE


_ALL = (
    Card(number="4242424242424242", title="approved immediately"),
    Card(number="4000000000000002", title="declined", decline_code="card_declined"),
    Card(number="4000000000009995", title="insufficient funds", decline_code="insufficient_funds"),
    Card(number="4000000000000069", title="expired card", decline_code="expired_card"),
    Card(number="4000000000000127", title="incorrect CVC", decline_code="incorrect_cvc"),
    Card(number="4000000000000119", title="processing error", decline_code="processing_error"),
    Card(number="4000002500003155", title="challenge page first", challenge=True),
    Card(number="4000009900000012", title="callback 30 s late", calling=Calling.LATE),
    Card(
        number="4000009900000020",
        title="callback sent three times with different bytes",
        calling=Calling.THRICE,
    ),
    Card(
        number="4000009900000046",
        title="no callback; an inquiry returns paid",
        calling=Calling.NEVER,
    ),
    Card(
        number="4000009900000053",
        title="success after the method was changed",
        late=Late.AFTER_CLOSE,
    ),
    Card(number="4000009900000061", title="success after expiry", late=Late.AFTER_EXPIRY),
    Card(number="4000009900000079", title="amount off by one minor unit", extra_minor=1),
    Card(number="4000009900000087", title="captured in a different currency", other_currency=True),
    Card(
        number="4000009900000095",
        title="first callback with a wrong signature",
        calling=Calling.BADLY_SIGNED,
    ),
    Card(
        number="4000009900000103",
        title="declined, then paid",
        decline_code="card_declined",
        paid_after_decline=True,
    ),
    Card(
        number="4000009900000160",
        title="approved; refunds are pending for 60 s",
        refunding=Refunding.PENDING,
    ),
    Card(
        number="4000009900000178",
        title="approved; refunds are refused",
        refunding=Refunding.REFUSED,
    ),
    Card(
        number="4000009900000186",
        title="approved; refunds return 503",
        refunding=Refunding.OUT_OF_ORDER,
    ),
)

CARDS: dict[str, Card] = {card.number: card for card in _ALL}
