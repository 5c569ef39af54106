"""Statements: how people read a ledger fact."""

from payintent.accounting.statement_model import fact_label


def test_a_fact_is_named_in_words() -> None:
    assert fact_label("refund_reserved") == "refund reserved"
