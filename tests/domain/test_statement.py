"""Statements: how people read a ledger fact."""

from payintent.domain.statement import words_of


def test_a_fact_is_named_in_words() -> None:
    assert words_of("refund_reserved") == "refund reserved"
