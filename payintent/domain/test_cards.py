"""The test cards of the test gateway, and the amounts that fail, as data."""

from dataclasses import dataclass
from enum import StrEnum


class TestRefunding(StrEnum):
    AT_ONCE = "at_once"
    PENDING = "pending"  # for `PENDING_REFUND_S`, then done
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCard:
    number: str
    title: str  # shown on the card page
    decline_code: str | None = None
    paid_after_decline: bool = False
    challenge: bool = False  # 3-D Secure: the buyer approves, or not
    decided_later: bool = False  # approved after `DECISION_S`
    extra_minor: int = 0
    other_currency: bool = False
    times_told: int = 1  # how often the result is called back; 0: the service has to ask
    disputed: bool = False
    refunding: TestRefunding = TestRefunding.AT_ONCE


DECISION_S = 30
PENDING_REFUND_S = 60
APPROVED_CARD = "4242424242424242"
CHALLENGE_CARD = "4000002500003155"
CHALLENGE_FAILED = "authentication_failed"

_ALL = (
    TestCard(number=APPROVED_CARD, title="approved"),
    TestCard(number="4000000000000002", title="declined", decline_code="card_declined"),
    TestCard(
        number="4000000000009995", title="declined: no funds", decline_code="insufficient_funds"
    ),
    TestCard(
        number="4000000000000069", title="declined: expired card", decline_code="expired_card"
    ),
    TestCard(number="4000000000000127", title="declined: wrong CVC", decline_code="incorrect_cvc"),
    TestCard(number="4000000000000119", title="processing error", decline_code="processing_error"),
    TestCard(number=CHALLENGE_CARD, title="asks for 3-D Secure first", challenge=True),
    TestCard(
        number="4000009900000012",
        title=f"in progress for {DECISION_S} s, then approved",
        decided_later=True,
    ),
    TestCard(
        number="4000009900000020",
        title="approved; the result is told three times",
        times_told=3,
    ),
    TestCard(
        number="4000009900000046",
        title="approved; the result is not told, the service has to ask",
        times_told=0,
    ),
    TestCard(number="4000009900000079", title="one minor unit too much is taken", extra_minor=1),
    TestCard(number="4000009900000087", title="another currency is taken", other_currency=True),
    TestCard(
        number="4000009900000103",
        title="declined, then paid",
        decline_code="card_declined",
        paid_after_decline=True,
    ),
    TestCard(number="4000000000000259", title="approved, then disputed", disputed=True),
    TestCard(
        number="4000009900000160",
        title=f"approved; refunds are pending for {PENDING_REFUND_S} s",
        refunding=TestRefunding.PENDING,
    ),
    TestCard(
        number="4000009900000178",
        title="approved; refunds are declined",
        refunding=TestRefunding.REFUSED,
    ),
)
TEST_CARDS: dict[str, TestCard] = {card.number: card for card in _ALL}

#: The card that is declined with each code.
DECLINED_CARDS: dict[str, str] = {
    card.decline_code: card.number
    for card in _ALL
    if card.decline_code is not None and not card.paid_after_decline
} | {CHALLENGE_FAILED: CHALLENGE_CARD}

#: Amounts, in minor units of any currency, at which something fails whatever the card is.
REJECTED_MINOR = 66_601  # the gateway opens no session
UNANSWERED_MINOR = 66_602  # the gateway does not answer the opening of a session
DECLINED_MINOR = {66_603: "card_declined", 66_604: "insufficient_funds"}
