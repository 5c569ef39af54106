"""The descriptions of ledger facts in statements."""

from payintent.accounting.statement_model import format_fact


def test_facts_are_formatted_as_words() -> None:
    assert format_fact("refund_reserved") == "refund reserved"
