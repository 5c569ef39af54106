"""Helpers for a merchant's tests: a test merchant, and a receiver of its webhooks."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from payintent_sdk import webhooks
from payintent_sdk.calls import Amount
from payintent_sdk.client import Client
from payintent_sdk.credentials import read_webhook_secret
from payintent_sdk.errors import WebhookError
from payintent_sdk.events import Event, UnknownEvent
from payintent_sdk.models import AdvancedTestClock, CreatedPayment, Metadata, Payment

WAIT_S = 30.0
_REQUEST_S = 10.0
_TOLD_MAX = 20


class HasId(Protocol):
    """A payment, or any object with a payment's id."""

    @property
    def id(self) -> str:
        """Return the id, such as `pay_…`."""
        ...


class TestSide:
    """A test merchant: its payments, the actions of buyers and banks, and its clock."""

    __test__ = False  # not a test class for pytest

    def __init__(self, client: Client) -> None:
        self.client = client

    def create_payment(
        self,
        amount: Amount = "10.00",
        currency: str = "USD",
        *,
        payer_uid: str = "buyer-1",
        expires_in: int | None = None,
        metadata: Metadata | None = None,
    ) -> CreatedPayment:
        """Create a payment. `client.payments.create` accepts more parameters."""
        return self.client.payments.create(
            amount=amount,
            currency=currency,
            payer_uid=payer_uid,
            expires_in=expires_in,
            metadata=metadata,
        )

    def pay(self, payment: HasId, card: str | None = None) -> Payment:
        """Pay with a test card, which determines the outcome."""
        return self.client.test_payments.pay(payment.id, card=card)

    def decline(self, payment: HasId, code: str | None = None) -> Payment:
        """Decline the buyer's card, for example with `insufficient_funds`."""
        return self.client.test_payments.decline(payment.id, code=code)

    def dispute(self, payment: HasId, state: str | None = None) -> Payment:
        """Dispute the payment as the buyer's bank: `open`, then `won` or `lost`."""
        return self.client.test_payments.dispute(payment.id, state=state)

    def advance(self, seconds: int) -> AdvancedTestClock:
        """Advance the clock. Work that becomes due runs shortly afterwards."""
        return self.client.test_clock.advance(seconds)


@dataclass(frozen=True, kw_only=True)
class ReceivedWebhook:
    """A verified webhook. `id` is its `webhook-id`."""

    id: str
    event: Event


class WebhookReceiver:
    """A loopback server that stores each verified webhook once.

    Use it in a `with` statement, or call `close`. `port` 0 selects any free port.
    """

    def __init__(self, secrets: str | Iterable[str], port: int = 0) -> None:
        self._secrets = [secrets] if isinstance(secrets, str) else list(secrets)
        for secret in self._secrets:
            read_webhook_secret(secret)  # rejected now instead of with the first webhook
        self._changed = threading.Condition()
        self._received: dict[str, ReceivedWebhook] = {}
        self._refused: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Return the receiver's URL. Any path works."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    @property
    def received(self) -> list[ReceivedWebhook]:
        """Return the received events, in order of arrival."""
        with self._changed:
            return list(self._received.values())

    @property
    def refused(self) -> list[str]:
        """Return the reasons for rejected webhooks."""
        with self._changed:
            return list(self._refused)

    def wait(
        self,
        type: str | None = None,  # noqa: A002 - the name of the event's field
        payment: HasId | None = None,
        *,
        timeout_s: float = WAIT_S,
    ) -> Any:
        """Wait for the first event of a type for a payment, and return it.

        Raises `TimeoutError` with a list of the received events.
        """

        def find() -> Event | None:
            for item in self._received.values():
                if type in {None, item.event.type} and _is_of(item.event, payment):
                    return item.event
            return None

        with self._changed:
            found = self._changed.wait_for(find, timeout_s)
            if found is None:
                raise TimeoutError(self._explain(type, payment, timeout_s))
        return found

    def take(self, body: bytes, headers: dict[str, str]) -> int:
        """Store a verified webhook. Return the response status."""
        try:
            event = webhooks.verify(body, headers, self._secrets)
        except WebhookError as error:
            with self._changed:
                self._refused.append(str(error))
            return 400
        with self._changed:
            self._received.setdefault(event.id, ReceivedWebhook(id=event.id, event=event))
            self._changed.notify_all()
        return 204

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> WebhookReceiver:  # noqa: PYI034 - Python 3.10 has no Self
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _explain(self, kind: str | None, payment: HasId | None, timeout_s: float) -> str:
        of = f" for {payment.id}" if payment else ""
        came = [
            f"{item.event.type} for {_payment_id(item.event)}" for item in self._received.values()
        ]
        return (
            f"no {kind or 'webhook'}{of} within {timeout_s:g} s at {self.url}; "
            f"received: {came[-_TOLD_MAX:]}; rejected: {self._refused[-_TOLD_MAX:]}"
        )


def _is_of(event: Event, payment: HasId | None) -> bool:
    return payment is None or _payment_id(event) == payment.id


def _payment_id(event: Event) -> str | None:
    return None if isinstance(event, UnknownEvent) else event.data.payment.id


def _handler(receiver: WebhookReceiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_S

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal():
                self._answer(411)
                return
            self._answer(receiver.take(self.rfile.read(int(length)), dict(self.headers)))

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Keep the log out of the tests' output."""

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return Handler
