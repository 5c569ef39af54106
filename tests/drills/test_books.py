"""The checks of `python -m drills.books` count every injected error."""

from dataclasses import replace
from pathlib import Path

import pytest

from drills.books.journal import Journal
from drills.books.judge import FeedVerdict, judge_feed, judge_payments
from drills.books.kinds import KINDS
from drills.books.pages import Page, PagesVerdict, add_up, judge_pages
from payintent.payments.model import PaymentStatus


@pytest.mark.parametrize(
    ("read", "verdict"),
    [
        ("abcd", FeedVerdict(doubled=0, missing=0, unknown=0, misplaced=0)),
        ("abbcd", FeedVerdict(doubled=1, missing=0, unknown=0, misplaced=0)),
        ("abd", FeedVerdict(doubled=0, missing=1, unknown=0, misplaced=0)),
        ("abxcd", FeedVerdict(doubled=0, missing=0, unknown=1, misplaced=0)),
        ("abdc", FeedVerdict(doubled=0, missing=0, unknown=0, misplaced=2)),
        ("", FeedVerdict(doubled=0, missing=4, unknown=0, misplaced=0)),
    ],
)
def test_a_feed_is_clean_if_every_event_occurs_once_and_in_order(
    read: str, verdict: FeedVerdict
) -> None:
    found = judge_feed(list(read), list("abcd"))
    assert found == verdict
    assert found.is_clean == (read == "abcd")


def test_missing_payments_and_unexpected_final_statuses_are_detected() -> None:
    kinds = {"pay_1": "paid", "pay_2": "paid", "pay_3": "declined"}
    lost, wrong = judge_payments(kinds, {"pay_1": "PAID", "pay_3": "PAID"})
    assert (lost, wrong) == (["pay_2"], ["declined: PAID"])


def test_every_kind_ends_in_a_known_status() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    for kind in KINDS:
        assert kind.ends
        assert kind.ends <= {str(status) for status in PaymentStatus}


def test_a_reader_that_died_while_writing_a_page_reads_that_page_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "feed")
    assert journal.mend() is None
    journal.add("A1", ["a", "b"])
    journal.add("A2", ["c"])
    with journal.path.open("ab") as torn:
        torn.write(b'{"after": "A3", "ids": ["d"')
    assert journal.ids() == ["a", "b", "c"]
    assert journal.mend() == "A2"
    journal.add("A3", ["d"])
    assert journal.ids() == ["a", "b", "c", "d"]
    assert journal.mend() == "A3"


A, B, C = ("capture", "a"), ("capture", "b"), ("refund_reserved", "c")
OWED = {A: 100, B: 50, C: -30}
FIRST = Page(opening=0, moved=100, closing=100, lines=[(A, 100)])
SECOND = Page(opening=100, moved=50, closing=150, lines=[(B, 50)])


@pytest.mark.parametrize(
    ("pages", "balance", "wrong"),
    [
        ([FIRST, SECOND], 120, {}),
        ([], 120, {}),
        ([replace(FIRST, opening=1, closing=101), SECOND], 120, {"torn": 2}),
        ([FIRST, replace(SECOND, moved=49)], 120, {"unsummed": 1}),
        ([FIRST, replace(SECOND, lines=[])], 120, {"unsummed": 1, "unbalanced": 1}),
        ([FIRST, replace(SECOND, lines=[(A, 50)])], 120,
            {"doubled": 1, "unknown": 1, "unbalanced": 1}),
        ([FIRST, SECOND], 119, {"unbalanced": 1}),
    ],
)  # fmt: skip
def test_statements_are_clean_if_they_contain_each_entry_once_and_match_the_balance(
    pages: list[Page], balance: int, wrong: dict[str, int]
) -> None:
    verdict = judge_pages(pages, OWED, balance)
    errors = ("torn", "unsummed", "doubled", "unknown", "unbalanced")
    assert {name: getattr(verdict, name) for name in errors if getattr(verdict, name)} == wrong
    assert verdict.is_clean == (not wrong)
    assert add_up([verdict, PagesVerdict(torn=1)]).torn == verdict.torn + 1
