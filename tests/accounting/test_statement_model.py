"""The descriptions of ledger facts in statements."""

from payintent.accounting.statement_model import format_fact


def test_a_fact_is_named_in_words() -> None:
    assert format_fact("refund_reserved") == "refund reserved"
