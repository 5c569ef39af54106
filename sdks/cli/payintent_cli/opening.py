"""`payintent-cli open pay_…`: open a payment's checkout in the browser."""

from __future__ import annotations

import webbrowser

from payintent_sdk import Client

from payintent_cli.keys import Access
from payintent_cli.usage import UsageError


def open_checkout(access: Access, payment_id: str, *, only_print: bool) -> None:
    """Print a payment's checkout URL, and open it unless `only_print` is set."""
    with Client(access.key, access.base_url) as client:
        payment = client.payments.get(payment_id)
    url = payment.checkout_url
    if url is None or not url.startswith(("https://", "http://")):
        raise UsageError(f"{payment_id} has no checkout URL: its status is {payment.status}")
    print(url, flush=True)
    if not only_print and not webbrowser.open(url):
        raise UsageError("the browser could not be opened")
