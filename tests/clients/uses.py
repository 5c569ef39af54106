"""What every generated client is used for, and what it must have seen."""

from typing import Any

DENIED = "buyer-99"


def check_what_was_done(saw: dict[str, Any]) -> None:
    """Compare what a program printed with what happened to its payments."""
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
