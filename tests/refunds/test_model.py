"""The refundable amount of a capture, and the effect of a provider's report on a refund."""

from dataclasses import dataclass
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from payintent.cases.model import AUTO_REFUND_KINDS, CaseKind
from payintent.gateways.port import GatewayRefundState, RefundReport
from payintent.refunds.model import RefundableRemainder, convert_to_capture_units, decide_refund
from payintent.refunds.model import RefundStatus as Status

#: The effect of each reported state on a refund with each status.
EXPECTED = """
PENDING   | done     | succeed
PENDING   | pending  | wait
PENDING   | declined | fail
PENDING   | absent   | wait
SUCCEEDED | done     | none
SUCCEEDED | pending  | none
SUCCEEDED | declined | contradict
SUCCEEDED | absent   | none
FAILED    | done     | contradict
FAILED    | pending  | none
FAILED    | declined | none
FAILED    | absent   | none
"""
TABLE = {
    (Status(status), GatewayRefundState(state)): effect
    for status, state, effect in (
        [cell.strip() for cell in line.split("|")] for line in EXPECTED.strip().splitlines()
    )
}


def test_the_table_contains_every_status_and_every_reported_state() -> None:
    assert TABLE.keys() == {(status, state) for status in Status for state in GatewayRefundState}


@pytest.mark.parametrize(("status", "state"), TABLE)
def test_a_reported_state_has_the_effect_in_the_table(
    status: Status, state: GatewayRefundState
) -> None:
    for reference in (None, "re_1"):
        report = RefundReport(state=state, reference=reference, detail="whatever")
        assert decide_refund(status, report) == TABLE[status, state]


def test_an_ended_refund_cannot_end_again() -> None:
    for status in (Status.SUCCEEDED, Status.FAILED):
        effects = {decide_refund(status, RefundReport(state=state)) for state in GatewayRefundState}
        assert effects == {"none", "contradict"}


def test_exactly_these_kinds_of_cases_are_not_refunded_automatically() -> None:
    by_hand = {CaseKind.UNKNOWN_REFERENCE, CaseKind.REFUND_REVERSED, CaseKind.RECONCILIATION}
    by_hand |= {CaseKind.UNDECIDED, CaseKind.DISPUTE}
    by_hand |= {CaseKind.OUTSIDE_REFUND, CaseKind.FRAUD_WARNING, CaseKind.SURPLUS}
    assert frozenset(CaseKind) - AUTO_REFUND_KINDS == by_hand


@dataclass
class Book:
    """A payment of `amount` cents and its capture, of which parts are refunded."""

    amount: int
    capture: int
    unit: int = 1

    def __post_init__(self) -> None:
        self.left, self.capture_left = self.amount, self.capture

    def refund(self, part: int) -> int:
        """Refund a part in cents; return the refunded capture units, 0 if they round to nothing."""
        remainder = RefundableRemainder(
            amount=Decimal(self.amount).scaleb(-2),
            remaining=Decimal(self.left).scaleb(-2),
            capture_minor=self.capture,
            capture_remaining_minor=self.capture_left,
        )
        capture_units = convert_to_capture_units(Decimal(part).scaleb(-2), remainder, self.unit)
        assert capture_units % self.unit == 0
        if capture_units:
            self.left -= part
            self.capture_left -= capture_units
            self.check_remainder()
        return capture_units

    def release(self, part: int, capture_units: int) -> None:
        """Release a refund that failed."""
        self.left += part
        self.capture_left += capture_units
        self.check_remainder()

    def check_remainder(self) -> None:
        assert 0 <= self.capture_left <= self.capture
        assert (self.left == 0) is (self.capture_left == 0), "the last takes all"


units = st.sampled_from((1, 100))
parts = st.lists(st.floats(0, 1), max_size=12)


@st.composite
def books(draw: st.DrawFn) -> Book:
    """Generate payments in whole units, in which the capture can include a fee and a tax."""
    unit, amount = draw(units), draw(st.integers(1, 10**6))
    capture = max(1, (amount + draw(st.integers(0, amount))) // unit) * unit
    return Book(amount=amount, capture=capture, unit=unit)


@given(book=books(), shares=parts)
def test_any_partial_refunds_and_the_remainder_add_up_to_the_capture(
    book: Book, shares: list[float]
) -> None:
    refunded = 0
    for share in shares:
        part = min(book.left, max(1, round(share * book.left)))
        refunded += book.refund(part) if part else 0
    refunded += book.refund(book.left) if book.left else 0
    assert refunded == book.capture
    assert book.left == book.capture_left == 0


@given(
    book=books(),
    steps=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 11), st.booleans()), max_size=30),
)
@example(  # three failed refunds were rounded down and released less than the share of their sum
    book=Book(amount=1000, capture=1030),
    steps=[(0.097, 0, True), (0.1074, 0, True), (0.1203, 0, True), (1, 0, True)]
    + [(0, 0, False)] * 3
    + [(0.9966, 0, True)],
)
def test_the_full_capture_can_be_refunded_whichever_partial_refunds_fail(
    book: Book, steps: list[tuple[float, int, bool]]
) -> None:
    refunds: list[tuple[int, int]] = []
    for share, index, is_refund in steps:
        if is_refund and book.left:
            part = min(book.left, max(1, round(share * book.left)))
            if capture_units := book.refund(part):
                refunds.append((part, capture_units))
        elif not is_refund and refunds:
            book.release(*refunds.pop(index % len(refunds)))
    if book.left:
        refunds.append((book.left, book.refund(book.left)))
    assert sum(capture_units for _, capture_units in refunds) == book.capture
    assert sum(part for part, _ in refunds) == book.amount


@given(book=books(), share=st.floats(0, 1))
def test_the_first_partial_refund_is_its_share_of_the_capture_rounded_down(
    book: Book, share: float
) -> None:
    part = min(book.amount - 1, round(share * book.amount))
    if part > 0:
        exact_share = book.capture * part // book.amount
        assert book.refund(part) == exact_share // book.unit * book.unit


def test_refunds_are_whole_units_if_the_gateway_has_no_decimals() -> None:
    book = Book(amount=10_000, capture=10_500, unit=100)
    assert [book.refund(3_333), book.refund(3_333), book.refund(3_334)] == [3_400, 3_400, 3_700]


def test_a_refund_can_be_as_small_as_a_tokens_smallest_unit() -> None:
    remainder = RefundableRemainder(
        amount=Decimal("0.000000000000000003"),
        remaining=Decimal("0.000000000000000003"),
        capture_minor=3,
        capture_remaining_minor=3,
    )
    assert convert_to_capture_units(Decimal("0.000000000000000001"), remainder, 1) == 1
