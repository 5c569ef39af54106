"""Descriptions of API requests; the clients send them.

The blocking and the asyncio client use the same descriptions, so both have the same operations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from payintent_sdk.credentials import read_idempotency_key
from payintent_sdk.decoding import as_object, decode
from payintent_sdk.errors import PaymentDeniedError, UnreadableAnswerError
from payintent_sdk.events import EventFeed, ReplayedEvent
from payintent_sdk.models import (
    AdvancedTestClock,
    BalanceList,
    Cancelled,
    Case,
    Catalog,
    CreatedPayment,
    Dispute,
    FraudDecision,
    Metadata,
    Page,
    Payment,
    PaymentLink,
    Refund,
    Statement,
    StatementWithLines,
    TestClock,
)
from payintent_sdk.onchain import Chain, OnchainSession

T = TypeVar("T")
Amount = str | Decimal


@dataclass(frozen=True, kw_only=True)
class Call(Generic[T]):
    """A request, and how to decode its response."""

    method: str
    path: str
    read: Callable[[Any], T]
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    key: str | None = None  # the idempotency key, the same for every attempt
    wait_s: float = 0.0  # duration of a long poll, in addition to the timeout

    @property
    def can_repeat(self) -> bool:
        """Return whether the request may be sent again if it is unknown whether it arrived."""
        return self.method == "GET" or self.key is not None


def create_payment(
    *,
    amount: Amount,
    currency: str,
    payer_uid: str,
    payer_email: str | None = None,
    expires_in: int | None = None,
    country: str | None = None,
    metadata: Metadata | None = None,
    include_pegged_assets: bool | None = None,
    return_url: str | None = None,
    cancel_url: str | None = None,
    idempotency_key: str | None = None,
) -> Call[CreatedPayment]:
    """Create a payment. Redirect the buyer to its `checkout_url`.

    `amount` is in major units (`"1590.00"`), `expires_in` in seconds. The checkout sends the buyer
    back to `return_url`, or to `cancel_url` if the buyer has not paid. The default
    `idempotency_key` is random and protects only the retries of this call. Pass a key that is
    stored with the order, so that a second call after a crash returns the same payment. Raises
    `PaymentDeniedError` if the fraud rules deny the payment.
    """
    body = _body(
        amount=_amount(amount),
        currency=currency,
        payer_uid=payer_uid,
        payer_email=payer_email,
        expires_in=expires_in,
        country=country,
        metadata=metadata,
        include_pegged_assets=include_pegged_assets,
        return_url=return_url,
        cancel_url=cancel_url,
    )
    return Call(
        method="POST",
        path="/v1/payments",
        read=_created,
        body=body,
        key=read_idempotency_key(idempotency_key),
    )


def get_payment(payment_id: str) -> Call[Payment]:
    """Return the current state of a payment."""
    return _get(f"/v1/payments/{_path_segment(payment_id)}", Payment)


def list_payments(
    *,
    status: str | None = None,
    currency: str | None = None,
    payer_uid: str | None = None,
    created_from: datetime | None = None,
    created_to: datetime | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Payment]]:
    """Return a page of the merchant's payments, newest first."""
    query = _query(
        status=status,
        currency=currency,
        payer_uid=payer_uid,
        created_from=created_from,
        created_to=created_to,
        limit=limit,
        cursor=cursor,
    )
    return _list("/v1/payments", Payment, query)


def cancel_payment(payment_id: str, *, idempotency_key: str | None = None) -> Call[Cancelled]:
    """Cancel an unpaid payment. Raises `InvalidStateError` if it has already ended."""
    return Call(
        method="POST",
        path=f"/v1/payments/{_path_segment(payment_id)}/cancel",
        read=lambda answer: decode(Cancelled, answer),
        key=read_idempotency_key(idempotency_key),
    )


def create_refund(
    payment_id: str,
    *,
    amount: Amount | None = None,
    reason: str | None = None,
    destination: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Refund]:
    """Refund a payment partially, or its full remainder if `amount` is not set."""
    body = _body(
        amount=None if amount is None else _amount(amount), reason=reason, destination=destination
    )
    return Call(
        method="POST",
        path=f"/v1/payments/{_path_segment(payment_id)}/refunds",
        read=lambda answer: decode(Refund, answer),
        body=body,
        key=read_idempotency_key(idempotency_key),
    )


def get_refund(refund_id: str) -> Call[Refund]:
    """Return the current state of a refund."""
    return _get(f"/v1/refunds/{_path_segment(refund_id)}", Refund)


def list_refunds(
    payment_id: str, *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Refund]]:
    """Return a page of a payment's refunds."""
    query = _query(limit=limit, cursor=cursor)
    return _list(f"/v1/payments/{_path_segment(payment_id)}/refunds", Refund, query)


def list_updated_refunds(
    *,
    status: str | None = None,
    updated_since: datetime | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Refund]]:
    """Return a page of the refunds of all payments, most recently changed first."""
    query = _query(status=status, updated_since=updated_since, limit=limit, cursor=cursor)
    return _list("/v1/refunds", Refund, query)


def create_payment_link(
    *,
    title: str,
    currency: str,
    amount: Amount | None = None,
    amount_min: Amount | None = None,
    amount_max: Amount | None = None,
    description: str | None = None,
    order_id: str | None = None,
    max_uses: int | None = None,
    expires_at: datetime | None = None,
    return_url: str | None = None,
    cancel_url: str | None = None,
    idempotency_key: str | None = None,
) -> Call[PaymentLink]:
    """Create a payment link. Without `amount`, the buyer enters an amount."""
    body = _body(
        title=title,
        currency=currency,
        amount=None if amount is None else _amount(amount),
        amount_min=None if amount_min is None else _amount(amount_min),
        amount_max=None if amount_max is None else _amount(amount_max),
        description=description,
        order_id=order_id,
        max_uses=max_uses,
        expires_at=None if expires_at is None else _text(expires_at),
        return_url=return_url,
        cancel_url=cancel_url,
    )
    return Call(
        method="POST",
        path="/v1/payment-links",
        read=lambda answer: decode(PaymentLink, answer),
        body=body,
        key=read_idempotency_key(idempotency_key),
    )


def get_payment_link(link_id: str) -> Call[PaymentLink]:
    """Return a payment link with its current status and number of uses."""
    return _get(f"/v1/payment-links/{_path_segment(link_id)}", PaymentLink)


def list_payment_links(
    *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[PaymentLink]]:
    """Return a page of the merchant's payment links, newest first."""
    return _list("/v1/payment-links", PaymentLink, _query(limit=limit, cursor=cursor))


def deactivate_payment_link(link_id: str) -> Call[PaymentLink]:
    """Deactivate a payment link permanently. Its open payments can still be paid."""
    return Call(
        method="POST",
        path=f"/v1/payment-links/{_path_segment(link_id)}/deactivate",
        read=lambda answer: decode(PaymentLink, answer),
    )


def list_events(
    *,
    after: str | None = None,
    types: Sequence[str] | None = None,
    limit: int | None = None,
    wait: int | None = None,
) -> Call[EventFeed]:
    """Return the next events of the feed. Wait up to `wait` seconds (at most 25) for the first."""
    named = ",".join(types) if types is not None else None
    return Call(
        method="GET",
        path="/v1/events",
        read=lambda answer: decode(EventFeed, answer),
        query=_query(after=after, types=named, limit=limit, wait=wait),
        wait_s=wait or 0,
    )


def replay_event(event_id: str) -> Call[ReplayedEvent]:
    """Resend the webhook of an event."""
    path = f"/v1/events/{_path_segment(event_id)}/replay"
    return Call(method="POST", path=path, read=lambda answer: decode(ReplayedEvent, answer))


def list_cases(
    *,
    status: str | None = None,
    kind: str | None = None,
    payment_id: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Case]]:
    """Return a page of the merchant's cases, which are about money that needs manual review."""
    query = _query(status=status, kind=kind, payment_id=payment_id, limit=limit, cursor=cursor)
    return _list("/v1/cases", Case, query)


def list_disputes(
    *, status: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Dispute]]:
    """Return a page of the disputes that the merchant's buyers have opened."""
    return _list("/v1/disputes", Dispute, _query(status=status, limit=limit, cursor=cursor))


def get_balance() -> Call[BalanceList]:
    """Return the current balances that are owed to the merchant."""
    return _get("/v1/balance", BalanceList)


def list_statements(
    *, currency: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Statement]]:
    """Return a page of the merchant's statements, newest first."""
    return _list("/v1/statements", Statement, _query(currency=currency, limit=limit, cursor=cursor))


def get_statement(
    statement_id: str, *, limit: int | None = None, cursor: str | None = None
) -> Call[StatementWithLines]:
    """Return a statement with a page of its lines."""
    return Call(
        method="GET",
        path=f"/v1/statements/{_path_segment(statement_id)}",
        read=lambda answer: decode(StatementWithLines, answer),
        query=_query(limit=limit, cursor=cursor),
    )


def get_catalog() -> Call[Catalog]:
    """Return the countries and currencies in which the merchant can be paid."""
    return _get("/v1/catalog", Catalog)


def get_chain(slug: str) -> Call[Chain]:
    """Return a chain, its payment contract, its deposit factory and its tokens."""
    return _get(f"/v1/chains/{_path_segment(slug)}", Chain)


def get_onchain_session(session_id: str) -> Call[OnchainSession]:
    """Return an on-chain session. Verify a deposit address before you use it.

    Raises `ApiError` with the code `SESSION_GONE` if the session has ended.
    """
    return _get(f"/v1/onchain/sessions/{_path_segment(session_id)}", OnchainSession)


def get_test_clock() -> Call[TestClock]:
    """Return how far the clock has been advanced in total. Requires a test key."""
    return _get("/v1/test/clock", TestClock)


def advance_test_clock(seconds: int) -> Call[AdvancedTestClock]:
    """Advance the test clock by `seconds`. Requires a test key."""
    return Call(
        method="POST",
        path="/v1/test/clock/advance",
        read=lambda answer: decode(AdvancedTestClock, answer),
        body=_body(seconds=seconds),
    )


def pay_test_payment(
    payment_id: str, *, card: str | None = None, idempotency_key: str | None = None
) -> Call[Payment]:
    """Pay with a test card, which determines the outcome. Requires a test key."""
    return _act(payment_id, "pay", _body(card=card), idempotency_key)


def decline_test_payment(
    payment_id: str, *, code: str | None = None, idempotency_key: str | None = None
) -> Call[Payment]:
    """Decline the buyer's card, for example with `insufficient_funds`. Requires a test key."""
    return _act(payment_id, "decline", _body(code=code), idempotency_key)


def dispute_test_payment(
    payment_id: str, *, state: str | None = None, idempotency_key: str | None = None
) -> Call[Payment]:
    """Dispute a payment as the buyer's bank: `open`, then `won` or `lost`. Requires a test key."""
    return _act(payment_id, "dispute", _body(state=state), idempotency_key)


def transfer_to_test_payment(
    payment_id: str,
    *,
    amount: str | Decimal | None = None,
    token: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Payment]:
    """Send tokens to the test address: by default, the remaining amount. Requires a test key."""
    body = _body(amount=None if amount is None else _amount(amount), token=token)
    return _act(payment_id, "transfer", body, idempotency_key)


def _act(payment_id: str, action: str, body: bytes, key: str | None) -> Call[Payment]:
    return Call(
        method="POST",
        path=f"/v1/test/payments/{_path_segment(payment_id)}/{action}",
        read=lambda answer: decode(Payment, answer),
        body=body,
        key=read_idempotency_key(key),
    )


def _get(path: str, kind: type[T]) -> Call[T]:
    return Call(method="GET", path=path, read=lambda answer: decode(kind, answer))


def _list(path: str, kind: type[T], query: Mapping[str, str]) -> Call[Page[T]]:
    def read(answer: Any) -> Page[T]:
        page = as_object(answer)
        if not isinstance(page.get("data"), list):
            raise UnreadableAnswerError("the response is not a list: `data` is missing")
        data = [decode(kind, item) for item in page["data"]]
        return Page(data=data, next_cursor=page.get("next_cursor"))

    return Call(method="GET", path=path, read=read, query=query)


def _created(answer: Any) -> CreatedPayment:
    created = as_object(answer)
    if "id" not in created and "fds" in created:
        raise PaymentDeniedError(decode(FraudDecision, created["fds"]))
    return decode(CreatedPayment, answer)


def _amount(amount: object) -> str:
    if isinstance(amount, str):
        return amount
    if isinstance(amount, Decimal):
        return f"{amount:f}"
    raise TypeError("an amount must be a str or a Decimal, because a float is not exact")


def _body(**fields: Any) -> bytes:
    given = {name: value for name, value in fields.items() if value is not None}
    return json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode()


def _query(**fields: object) -> dict[str, str]:
    return {name: _text(value) for name, value in fields.items() if value is not None}


def _text(value: object) -> str:
    if not isinstance(value, datetime):
        return str(value)
    if value.tzinfo is None:
        raise ValueError("a time must have a time zone")
    return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def _path_segment(id_: str) -> str:
    if id_ in {"", ".", ".."}:  # they would change the request's path
        raise ValueError(f"invalid id: {id_!r}")
    return quote(id_, safe="")
