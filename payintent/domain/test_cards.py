"""Cards and amounts that the test gateway treats specially."""

from dataclasses import dataclass
from enum import StrEnum


class TestRefunding(StrEnum):
    AT_ONCE = "at_once"
    PENDING = "pending"  # succeeds after `PENDING_REFUND_S`
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCard:
    number: str
    title: str  # shown on the card page
    decline_code: str | None = None
    paid_after_decline: bool = False
    challenge: bool = False  # 3-D Secure, which the buyer approves or declines
    decided_later: bool = False  # approved after `DECISION_S`
    extra_minor: int = 0
    other_currency: bool = False
    callbacks: int = 1  # per result; 0 leaves the service to inquire
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
        title="approved; the callback is sent three times",
        callbacks=3,
    ),
    TestCard(
        number="4000009900000046",
        title="approved; no callback is sent, the service has to inquire",
        callbacks=0,
    ),
    TestCard(number="4000009900000079", title="one minor unit too much is captured", extra_minor=1),
    TestCard(number="4000009900000087", title="another currency is captured", other_currency=True),
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

#: Amounts, in minor units of any currency, that fail with any card.
REJECTED_MINOR = 66_601  # the gateway rejects the session
UNANSWERED_MINOR = 66_602  # the gateway does not answer when a session is opened
DECLINED_MINOR = {66_603: "card_declined", 66_604: "insufficient_funds"}
