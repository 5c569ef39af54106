"""The shop that is graded: its orders, and its receiver of webhooks."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import httpx
from payintent_sdk.decoding import as_object

from payintent_cli.signing import signed_headers
from payintent_cli.usage import UsageError

_TIMEOUT_S = 15.0  # what the service waits for an answer
_CUT_OFF_S = 3.0  # of a sender that crashes
_AT = "2026-01-02T03:04:05.678Z"
_LOOK_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Order:
    """An order that the shop has placed for the grader."""

    id: str
    payment_id: str
    amount: str
    currency: str


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How an order stands: its status, and how often its goods were handed out."""

    status: str
    handed_out: int

    def __str__(self) -> str:
        times = {0: "nothing handed out", 1: "handed out once"}
        return f"{self.status}, {times.get(self.handed_out, f'handed out {self.handed_out} times')}"


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """What is sent, and how it is signed."""

    body: bytes
    id: str
    age_s: int = 0
    secret: bytes | None = None  # another than the shop's
    other_first: bool = False  # a signature of another secret stands before the good one


class Shop:
    """A shop by its two URLs; use it with `with`."""

    def __init__(self, webhook_url: str, orders_url: str, key: bytes, settle_s: float) -> None:
        self._webhook_url = webhook_url
        self._orders_url = orders_url.rstrip("/")
        self._key = key
        self._settle_s = settle_s
        self._http = httpx.Client(timeout=_TIMEOUT_S, follow_redirects=False)

    def place_order(self) -> Order:
        """Have the shop place an order. Raises `UsageError` where it does not."""
        placed = self._ask("POST", self._orders_url)
        names = ("order_id", "payment_id", "amount", "currency")
        if not all(isinstance(placed.get(name), str) for name in names):
            raise UsageError(f"{self._orders_url} answers without {', '.join(names)}")
        order_id, payment_id, amount, currency = (placed[name] for name in names)
        return Order(id=order_id, payment_id=payment_id, amount=amount, currency=currency)

    def look(self, order: Order, *, expect_paid: bool) -> Standing:
        """Return how an order stands, when the shop has had time for its slow work."""
        end = time.monotonic() + (_TIMEOUT_S if expect_paid and self._settle_s else 0)
        while (now := self._standing(order)).handed_out == 0 and time.monotonic() < end:
            time.sleep(_LOOK_S)
        if self._settle_s:
            time.sleep(self._settle_s)  # for what it would do too much
            now = self._standing(order)
        return now

    def send(self, webhook: Webhook) -> int | None:
        """Deliver a webhook; gives the status, None where there was no answer."""
        try:
            return self._post(webhook, _TIMEOUT_S)
        except httpx.TransportError:
            return None

    def send_and_hang_up(self, webhook: Webhook) -> None:
        """Deliver a webhook and close the connection, with an answer or without."""
        try:
            self._post(webhook, _CUT_OFF_S)
        except httpx.TransportError:
            return

    def _post(self, webhook: Webhook, timeout_s: float) -> int:
        at = int(time.time()) - webhook.age_s
        headers = signed_headers(webhook.secret or self._key, webhook.id, at, webhook.body)
        if webhook.other_first:
            other = signed_headers(b"another" * 5, webhook.id, at, webhook.body)
            both = (other["webhook-signature"], headers["webhook-signature"])
            headers["webhook-signature"] = " ".join(both)
        with self._http.stream(
            "POST", self._webhook_url, content=webhook.body, headers=headers, timeout=timeout_s
        ) as answer:
            return answer.status_code

    def _standing(self, order: Order) -> Standing:
        said = self._ask("GET", f"{self._orders_url}/{order.id}")
        status, handed_out = said.get("status"), said.get("handed_out")
        if not isinstance(status, str) or not isinstance(handed_out, int):
            raise UsageError(f"{self._orders_url}/{order.id} answers without status, handed_out")
        return Standing(status=status, handed_out=handed_out)

    def _ask(self, method: str, url: str) -> dict[str, Any]:
        try:
            answer = self._http.request(method, url)
            return as_object(answer.raise_for_status().json())
        except (httpx.HTTPError, ValueError) as error:
            raise UsageError(f"{method} {url}: {error}") from error

    def __enter__(self) -> Shop:  # noqa: PYI034 - Python 3.10 has no Self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._http.close()


def event(order: Order, kind: str = "payment.completed", **changes: Any) -> Webhook:
    """Write the event of an order's payment; `changes` are fields of the payment."""
    payment: dict[str, Any] = {
        "id": order.payment_id,
        "status": "PAID" if kind == "payment.completed" else kind.rpartition(".")[2].upper(),
        "currency": order.currency,
        "amount": order.amount,
        "payer_uid": "payintent-grade",
        "metadata": {"order_id": order.id},
    }
    if kind == "payment.completed":
        payment |= {"receipt_id": "grade-1", "provider": "simulator", "paid_at": _AT}
    if kind == "payment.expired":
        payment["expired_at"] = _AT
    body = {"type": kind, "timestamp": _AT, "data": {"payment": payment | changes}}
    return Webhook(body=json.dumps(body).encode(), id=str(uuid.uuid4()))
