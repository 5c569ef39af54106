"""The payment service of the shop, accessed with the shop's test key."""

from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Decimal
from typing import TypeVar

import httpx
from payintent_sdk import Client
from payintent_sdk.errors import InvalidStateError, NotFoundError
from payintent_sdk.models import Payment

from payintent_cli.feed import Entry, Feed
from payintent_cli.grading.events import Order, Webhook
from payintent_cli.keys import Access
from payintent_cli.usage import UsageError

T = TypeVar("T")

_PATIENCE_S = 30.0  # time for the service's workers to act
_LONG_POLL_S = 5
_LOOK_S = 0.05


class Service:
    """A test merchant. Use it as a context manager."""

    def __init__(self, access: Access) -> None:
        self._client = Client(access.key, access.base_url)
        self._checkouts = f"{access.base_url.rstrip('/')}/v1/checkout"
        self._feed = Feed(access)
        self._after = self._feed.newest()
        self._seen = dict[tuple[str, str], Entry]()

    def find(self, order: Order) -> Payment:
        """Return the order's payment. Raises `UsageError` if the key cannot access it."""
        try:
            return self._client.payments.get(order.payment_id)
        except NotFoundError:
            raise UsageError(
                f"the grader's key cannot read {order.payment_id}: the shop's key and the grader's "
                "key must belong to the same test merchant"
            ) from None

    def return_urls(self, order: Order) -> list[str]:
        """Return the pages of the shop to which the checkout redirects the order's buyer."""
        real = self.find(order)
        return list(dict.fromkeys(filter(None, (real.return_url, real.cancel_url))))

    def pay(self, order: Order, card: str | None = None) -> None:
        """Pay as the buyer. Raises `UsageError` if the payment cannot be paid."""
        try:
            self._client.test_payments.pay(order.payment_id, card=card)
        except InvalidStateError as error:
            raise UsageError(f"{order.payment_id} cannot be paid: {error}") from error

    def decline(self, order: Order) -> None:
        """Decline the buyer's card."""
        self._client.test_payments.decline(order.payment_id)

    def cancel_as_buyer(self, order: Order) -> None:
        """Cancel on the checkout page. This does not send an event. Raises `UsageError`."""
        url = f"{self._checkouts}/{self.find(order).checkout_id}/cancel"
        try:
            answer = httpx.post(url, timeout=_PATIENCE_S)
        except httpx.HTTPError as error:
            raise UsageError(f"POST {url}: {error}") from error
        if not answer.is_success:
            raise UsageError(f"{order.payment_id} cannot be cancelled: {answer.status_code}")

    def let_expire(self, order: Order) -> None:
        """Advance the test merchant's clock until the order's payment has expired."""
        self.pass_time(self.lifetime_s(order) + 1)
        self._wait(
            lambda: self.find(order).status == "EXPIRED" or None,
            f"the expiry of {order.payment_id}",
        )

    def event(self, order: Order, kind: str = "payment.completed") -> Webhook:
        """Wait for an event about the order's payment, and return its webhook."""
        name = (order.payment_id, kind)
        entry = self._wait(lambda: self._read_on(name), f"{kind} for {order.payment_id}")
        return Webhook(body=entry.body, id=entry.id, at_s=int(time.time()))

    def lifetime_s(self, order: Order) -> int:
        """Return the time from the creation of the order's payment to its expiry."""
        real = self.find(order)
        if real.expires_at is None:
            raise UsageError(f"{order.payment_id} is no longer open")
        return int((real.expires_at - real.created_at).total_seconds())

    def pass_time(self, seconds: int) -> None:
        """Advance the test merchant's clock, which affects all of its payments."""
        self._client.test_clock.advance(max(1, seconds))

    def wait_for_case(self, order: Order) -> None:
        """Wait until money has arrived that cannot be credited to the order's payment."""
        self._wait(
            lambda: self._client.cases.list(payment_id=order.payment_id).data or None,
            f"a case for {order.payment_id}",
        )

    def refund(self, order: Order, amount: Decimal) -> None:
        """Refund as another client of the same merchant.

        The refund may still be pending afterwards.
        """
        self._client.refunds.create(order.payment_id, amount=amount)

    def given_back(self, order: Order) -> Decimal:
        """Wait until all refunds of the order's payment have ended. Return the refunded amount."""
        self._wait(
            lambda: self._refunds_ended(order) or None, f"the refunds of {order.payment_id} to end"
        )
        return Decimal(self.find(order).refunded_amount)

    def _refunds_ended(self, order: Order) -> bool:
        refunds = self._client.refunds.iterate(order.payment_id)
        return all(refund.status != "PENDING" for refund in refunds)

    def _read_on(self, name: tuple[str, str]) -> Entry | None:
        if name not in self._seen:
            page = self._feed.read(self._after, wait=_LONG_POLL_S)
            self._after = page.after
            self._seen |= {(entry.payment_id, entry.event.type): entry for entry in page.entries}
        return self._seen.get(name)

    def _wait(self, look: Callable[[], T | None], what: str) -> T:
        end = time.monotonic() + _PATIENCE_S
        while (found := look()) is None:
            if time.monotonic() > end:
                raise UsageError(
                    f"timed out after {_PATIENCE_S:.0f} seconds waiting for {what}; "
                    "check that the workers are running"
                )
            time.sleep(_LOOK_S)
        return found

    def __enter__(self) -> Service:  # noqa: PYI034 - Python 3.10 has no Self
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._feed.__exit__(None, None, None)
