"""The shop's pages to which the buyer returns from the checkout."""

import re
from collections.abc import Set as AbstractSet
from urllib.parse import unquote_plus, urlencode, urlsplit

from payintent.core import ids
from payintent.core.addresses import get_linkable_url, parse_web_origin
from payintent.core.errors import BadRequestError
from payintent.core.texts import check_text
from payintent.gateways.port import FailureReason
from payintent.merchants.model import Merchant
from payintent.payments.model import Payment, PaymentStatus

_CHARS_MAX = 2_048
#: Characters that all browsers and gateways interpret in the same way. They exclude the start of a
#: fragment.
_CHARS = re.compile(r"[!$-;=?-\[\]_a-z~]+")
_UNPAID = frozenset(
    {
        PaymentStatus.PENDING,
        PaymentStatus.FAILED,
        PaymentStatus.EXPIRED,
        PaymentStatus.CANCELLED,
    }
)
#: The buyer's money may have been sent, so another attempt could charge the buyer twice.
_MONEY_MAY_ARRIVE = frozenset(
    {FailureReason.AMOUNT_MISMATCH, FailureReason.TOKEN_MISMATCH, FailureReason.ONCHAIN_TIMEOUT}
)


def check_return_url(name: str, url: str | None) -> None:
    """Raise `BAD_REQUEST` if a string is not a web URL, or has a user name or a fragment."""
    check_text(name, url, _CHARS_MAX)
    if url is not None and (not _CHARS.fullmatch(url) or parse_web_origin(url) is None):
        raise BadRequestError(
            f"{name} must be an absolute URL without a fragment,"
            " such as https://shop.example.com/thanks; percent-encode special characters"
        )


def require_return_origin(name: str, url: str | None, origins: AbstractSet[str]) -> None:
    """Raise `BAD_REQUEST` if a URL does not have one of the merchant's origins."""
    if url is not None and parse_web_origin(url) not in origins:
        raise BadRequestError(f"{name} must use one of the merchant's origins")


def money_may_arrive(payment: Payment) -> bool:
    """Return whether a failed payment's money has arrived, or may still arrive."""
    return payment.failure_reason in _MONEY_MAY_ARRIVE


def find_return_url(payment: Payment, selected_url: str | None, merchant: Merchant) -> str | None:
    """Return the shop's page for a buyer who has paid, or None.

    `selected_url` is the return URL of the current session. URLs whose origin is no longer
    registered are skipped.
    """
    return _find_allowed(merchant, selected_url, payment.return_url)


def choose_return_url(payment: Payment, selected_url: str | None, merchant: Merchant) -> str | None:
    """Return the shop's page for the buyer in the payment's current status, or None."""
    is_unpaid = payment.status in _UNPAID and not money_may_arrive(payment)
    cancel_url = payment.cancel_url if is_unpaid else None
    return _find_allowed(merchant, cancel_url, selected_url, payment.return_url)


def _find_allowed(merchant: Merchant, *urls: str | None) -> str | None:
    origins = merchant.return_origins
    allowed_urls = (url for url in urls if url and parse_web_origin(url) in origins)
    return next(allowed_urls, get_linkable_url(merchant.return_url))


def add_return_query(url: str, payment: Payment) -> str:
    """Append the payment's id and status to a URL, replacing parameters with the same names.

    The shop must not trust them, and must query the API instead.
    """
    hints = {"payment_id": ids.format_id(ids.PAYMENT, payment.id), "status": payment.status.value}
    parts = urlsplit(url)
    parameters = [
        parameter
        for parameter in parts.query.split("&")
        if parameter and unquote_plus(parameter.partition("=")[0]) not in hints
    ]
    return parts._replace(query="&".join([*parameters, urlencode(hints)])).geturl()
