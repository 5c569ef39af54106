"""The shop that is graded: its orders and its webhook receiver."""

from __future__ import annotations

import socket
import ssl
import time
import uuid
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from types import TracebackType
from typing import Any

import httpx
from payintent_sdk.decoding import as_object

from payintent_cli.grading.events import Order, Webhook
from payintent_cli.signing import signed_headers
from payintent_cli.targets import exact_target, is_untrusted, tls_context
from payintent_cli.usage import UsageError

_TIMEOUT_S = 15.0  # the service's webhook timeout
_HUNG_UP_S = 3.0  # time for work that a shop does after the response timeout
_LOOK_S = 0.05
_TRIES = 3  # attempts to deliver a webhook that gets error responses
#: The status with which a shop rejects an unsupported request.
REFUSED = 409


@dataclass(frozen=True, kw_only=True)
class Standing:
    """An order's status, and the number of times that its goods were delivered."""

    status: str
    handed_out: int

    def __str__(self) -> str:
        times = {0: "not delivered", 1: "delivered once"}
        return f"{self.status}, {times.get(self.handed_out, f'delivered {self.handed_out} times')}"


class Shop:
    """A shop with its two URLs. Use it as a context manager."""

    def __init__(
        self,
        webhook_url: str,
        orders_url: str,
        key: bytes,
        settle_s: float,
        *,
        insecure: bool = False,
    ) -> None:
        self._webhook_url = webhook_url
        self._orders_url = orders_url.rstrip("/")
        self._key = key
        self._settle_s = settle_s
        self._tls = tls_context(insecure=insecure)
        self._http = httpx.Client(timeout=_TIMEOUT_S, verify=self._tls)

    def place_order(self) -> Order:
        """Place an order in the shop. Raises `UsageError` if this fails."""
        return self._buy(str(uuid.uuid4()))

    def place_orders(self, count: int) -> list[Order]:
        """Place several orders sequentially."""
        return [self.place_order() for _ in range(count)]

    def click_twice(self, cart_id: str | None = None) -> list[Order]:
        """Buy a cart twice concurrently. The default is a new cart."""
        cart_id = cart_id or str(uuid.uuid4())
        with ThreadPoolExecutor(2) as clicks:
            return list(clicks.map(self._buy, [cart_id, cart_id]))

    def buy_again(self, order: Order) -> Order | int:
        """Buy the same cart again. Return the status if the shop rejects the request."""
        body = {"cart_id": order.cart_id}
        answer = self._request("POST", self._orders_url, body)
        if not answer.is_success:
            return answer.status_code
        return _order(self._orders_url, _object(answer), order.cart_id)

    def pay_again(self, order: Order) -> Order | None:
        """Start a second payment for an order. Return None if the shop does not allow it."""
        return self._ask_for(order, "pay_again")

    def change(self, order: Order) -> Order | None:
        """Change an order's amount. Return None if the shop does not change existing orders."""
        return self._ask_for(order, "change")

    def poll(self) -> None:
        """Run the shop's scheduled poll. A shop without this route polls on its own schedule."""
        self._request("POST", f"{self._orders_url}/poll", None)

    def visit(self, return_url: str, payment_id: str) -> int:
        """Open the shop's return page, with a query that claims that the payment is paid.

        Return the status.
        """
        query = {"payment_id": payment_id, "status": "PAID"}
        url = str(httpx.URL(return_url).copy_merge_params(query))
        return self._request("GET", url, None).status_code

    @staticmethod
    def name_return() -> str:
        """Create the id of a return. Two clicks on the same page have the same id."""
        return str(uuid.uuid4())

    def refund(self, order: Order, return_id: str, amount: Decimal) -> int:
        """Request a refund for a return, as the shop's staff would. Return the status."""
        url = f"{self._orders_url}/{order.id}/refund"
        body = {"return_id": return_id, "amount": str(amount)}
        return self._request("POST", url, body).status_code

    def refund_at_once(
        self, order: Order, returns: Sequence[tuple[str, Decimal]]
    ) -> list[int | None]:
        """Request refunds with several concurrent clicks."""
        with ThreadPoolExecutor(len(returns)) as clicks:
            calls = [clicks.submit(self.refund, order, *each) for each in returns]
        return [call.result() for call in calls]

    def look_refunded(self, order: Order, expected: Decimal) -> Decimal:
        """Return the refunded amount that the shop shows after it has had time for an update."""
        end = time.monotonic() + (_TIMEOUT_S if self._settle_s else 0)
        while (shown := self._refunded(order)) != expected and time.monotonic() < end:
            time.sleep(_LOOK_S)
        return shown

    def look(self, order: Order, *, expect_paid: bool) -> Standing:
        """Return an order's status, after the shop has had time for background work."""
        now = self._wait_for_goods(order, _TIMEOUT_S if expect_paid and self._settle_s else 0)
        if self._settle_s:
            time.sleep(self._settle_s)  # time for actions that the shop should not take
            now = self._standing(order)
        return now

    def send(self, webhook: Webhook) -> int | None:
        """Deliver a webhook. Return the status, or None if there is no response in time."""
        try:
            with self._http.stream(
                "POST",
                self._webhook_url,
                content=webhook.body,
                headers=self._signed(webhook),
                extensions=exact_target(self._webhook_url),
            ) as answer:
                return answer.status_code
        except httpx.TransportError:
            return None

    def send_at_once(self, webhooks: Sequence[Webhook]) -> list[int | None]:
        """Deliver webhooks concurrently."""
        with ThreadPoolExecutor(len(webhooks)) as senders:
            return list(senders.map(self.send, webhooks))

    def send_again(self, webhook: Webhook) -> int | None:
        """Deliver a webhook with a few retries, until the response is 2xx."""
        for _ in range(_TRIES - 1):
            status = self.send(webhook)
            if status is not None and httpx.codes.is_success(status):
                return status
        return self.send(webhook)

    def send_and_hang_up(self, webhook: Webhook, order: Order) -> None:
        """Deliver a webhook, and close the connection without reading the response."""
        request = self._http.build_request(
            "POST", self._webhook_url, content=webhook.body, headers=self._signed(webhook)
        )
        try:
            with _sent(request, self._tls):
                self._wait_for_goods(order, _HUNG_UP_S)
        except OSError:
            return

    def _signed(self, webhook: Webhook) -> dict[str, str]:
        sent = (webhook.id, webhook.at_s, webhook.body)
        headers = signed_headers(webhook.secret or self._key, *sent)
        if webhook.other_first:
            other = signed_headers(b"another" * 5, *sent)
            both = (other["webhook-signature"], headers["webhook-signature"])
            headers["webhook-signature"] = " ".join(both)
        return headers

    def _wait_for_goods(self, order: Order, timeout_s: float) -> Standing:
        end = time.monotonic() + timeout_s
        while (now := self._standing(order)).handed_out == 0 and time.monotonic() < end:
            time.sleep(_LOOK_S)
        return now

    def _buy(self, cart_id: str) -> Order:
        said = self._ask("POST", self._orders_url, {"cart_id": cart_id})
        return _order(self._orders_url, said, cart_id)

    def _ask_for(self, order: Order, what: str) -> Order | None:
        url = f"{self._orders_url}/{order.id}/{what}"
        answer = self._request("POST", url, None)
        if answer.status_code == REFUSED:
            return None
        return _order(url, _object(answer), order.cart_id)

    def _standing(self, order: Order) -> Standing:
        said = self._ask("GET", f"{self._orders_url}/{order.id}")
        status, handed_out = said.get("status"), said.get("handed_out")
        if not isinstance(status, str) or not isinstance(handed_out, int):
            raise UsageError(
                f"{self._orders_url}/{order.id} does not return a valid status and handed_out"
            )
        return Standing(status=status, handed_out=handed_out)

    def _refunded(self, order: Order) -> Decimal:
        url = f"{self._orders_url}/{order.id}"
        try:
            return Decimal(str(self._ask("GET", url)["refunded"]))
        except (KeyError, InvalidOperation):
            raise UsageError(f"{url} does not return a valid refunded amount") from None

    def _ask(self, method: str, url: str, body: Any = None) -> dict[str, Any]:
        return _object(self._request(method, url, body))

    def _request(self, method: str, url: str, body: Any) -> httpx.Response:
        try:
            return self._http.request(method, url, json=body)
        except httpx.HTTPError as error:
            untrusted = isinstance(error, httpx.TransportError) and is_untrusted(error)
            hint = "; --insecure accepts any certificate" if untrusted else ""
            raise UsageError(f"{method} {url}: {error}{hint}") from error

    def __enter__(self) -> Shop:  # noqa: PYI034 - Python 3.10 has no Self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._http.close()


def _object(answer: httpx.Response) -> dict[str, Any]:
    what = f"{answer.request.method} {answer.request.url}"
    if not answer.is_success:
        raise UsageError(f"{what}: responded {answer.status_code}")
    try:
        return as_object(answer.json())
    except ValueError as error:
        raise UsageError(f"{what}: {error}") from error


def _order(url: str, said: dict[str, Any], cart_id: str) -> Order:
    names = ("order_id", "payment_id", "amount", "currency")
    if not all(isinstance(said.get(name), str) for name in names):
        raise UsageError(f"{url} does not return a valid {', '.join(names)}")
    order_id, payment_id, amount, currency = (said[name] for name in names)
    return Order(
        id=order_id, cart_id=cart_id, payment_id=payment_id, amount=amount, currency=currency
    )


@contextmanager
def _sent(request: httpx.Request, tls: ssl.SSLContext) -> Generator[None, None, None]:
    """Send a request over a separate connection, without reading the response."""
    url = request.url
    secure = url.scheme == "https"
    lines = [f"POST {url.raw_path.decode()} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    address = (url.host, url.port or (443 if secure else 80))
    with socket.create_connection(address, timeout=_TIMEOUT_S) as plain:
        sock = tls.wrap_socket(plain, server_hostname=url.host) if secure else plain
        sock.sendall("\r\n".join([*lines, "", ""]).encode() + request.content)
        yield
