"""The test cards of the 2C2P emulator, and the outcome of each, as data."""

from dataclasses import dataclass

APPROVED, IN_PROGRESS, CANCELLED = "0000", "2001", "5010"
PAID_MORE, PAID_LESS, PAID_LATE = "5015", "5016", "5017"
#: Outcomes in which the merchant receives money.
PAID = frozenset({APPROVED, PAID_MORE, PAID_LESS, PAID_LATE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card number and the outcome of a payment with it."""

    number: str
    title: str  # shown on the payment page
    code: str = APPROVED
    silent: bool = False  # the merchant is not notified
    settled: bool = True  # if not, it can be voided but not refunded
    bare: bool = False  # inquiries lack `tranRef`, as in the published sample


_ALL = (
    Card(number="4111111111111111", title="approved"),
    Card(number="4000000000000002", title="declined", code="4005"),
    Card(number="4000000000009995", title="insufficient funds", code="4051"),
    Card(number="4000000000000069", title="expired card", code="4054"),
    Card(number="4000009900000046", title="approved without a notification", silent=True),
    Card(number="4000009900000012", title="in progress; approved 30 s later", code=IN_PROGRESS),
    Card(number="4000009900000194", title="approved but not yet settled", settled=False),
    Card(number="4000009900000343", title="approved; inquiries lack tranRef", bare=True),
    Card(number="4000009900000509", title="the buyer pays too much", code=PAID_MORE),
    Card(number="4000009900000517", title="the buyer pays too little", code=PAID_LESS),
    Card(number="4000009900000525", title="the buyer pays too late", code=PAID_LATE),
)

CARDS: dict[str, Card] = {card.number: card for card in _ALL}

#: The description of each response code.
WORDS = {
    APPROVED: "Success",
    CANCELLED: "Payment Canceled By Payer",
    PAID_MORE: "Customer paid more than transaction amount",
    PAID_LESS: "Customer paid less than transaction amount",
    PAID_LATE: "Paid Expired",
    IN_PROGRESS: "Transaction in progress",
    "2002": "Transaction not found",
    "4130": "Chargeback",
    "4131": "Chargeback Rejected",  # not documented by 2C2P
    "4005": "Do not honor",
    "4051": "Insufficient Funds",
    "4054": "Expired Card",
    "9004": "The value is not valid",
    "9007": "Invalid merchant",
    "9015": "Existing invoice number",
    "9042": "Hash value does not match",
}
