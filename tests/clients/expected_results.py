"""The expected results of every generated client."""

from typing import Any

DENIED = "buyer-99"


def check_what_was_done(saw: dict[str, Any]) -> None:
    """Compare a program's output with the state of its payments."""
    assert saw == {
        "created": saw["created"],
        "denied": "PAYER_BLOCKED",
        "amount": "1590.00",
        "order": "A-1009",
        "listed": [saw["created"]],
        "cancelled": "cancelled",
        "again": "INVALID_PAYMENT_STATE",
        "refund": saw["refund"],
        "refunded": "90.00",
    }
