"""The shop's orders and their payments."""

import logging
import os
import sqlite3
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from payintent_sdk import AsyncClient
from payintent_sdk.errors import PayintentError
from payintent_sdk.models import Payment

log = logging.getLogger(__name__)
SHOP_URL = os.environ.get("SHOP_URL", "").rstrip("/")
ENDED_UNPAID = {"CANCELLED", "EXPIRED", "FAILED"}
#: The buyer's money may have arrived, so these payments need manual review.
REVIEWED = {"AMOUNT_MISMATCH", "TOKEN_MISMATCH", "ONCHAIN_TIMEOUT"}
client = AsyncClient(os.environ["PAYINTENT_API_KEY"], os.environ["PAYINTENT_URL"])
database = sqlite3.connect("orders.db", isolation_level=None)  # each statement is a transaction
database.execute(
    """
    CREATE TABLE IF NOT EXISTS orders (
        id TEXT PRIMARY KEY,
        attempt INTEGER NOT NULL DEFAULT 1,
        payment_id TEXT UNIQUE,
        amount TEXT NOT NULL,
        currency TEXT NOT NULL,
        status TEXT NOT NULL DEFAULT 'waiting' CHECK (status IN ('waiting', 'unpaid', 'paid')),
        handed_out INTEGER NOT NULL DEFAULT 0 CHECK (handed_out <= 1)
    )
    """
)


@dataclass(frozen=True)
class Order:
    """An order, with the payment of its latest attempt."""

    id: UUID
    attempt: int
    payment_id: str | None
    amount: str
    currency: str
    status: str  # waiting, unpaid or paid
    handed_out: int  # the number of deliveries

    @property
    def page(self) -> str:
        """Return the path of the page to which the buyer returns."""
        return f"/orders/{self.id}"

    @property
    def return_url(self) -> str | None:
        """Return the page's URL if `SHOP_URL` is set. Its origin must be registered."""
        return SHOP_URL + self.page if SHOP_URL else None


def find_order(order_id: UUID) -> Order | None:
    row = database.execute("SELECT * FROM orders WHERE id = ?", (str(order_id),)).fetchone()
    return None if row is None else read_order(row)


def place_order(order_id: UUID) -> Order:
    """Return the order with this id, and create it on the first click."""
    placed = database.execute(  # the server sets the price, never the page
        """
        INSERT INTO orders (id, amount, currency) VALUES (?, '1590.00', 'THB')
            ON CONFLICT (id) DO UPDATE SET id = excluded.id
        RETURNING *
        """,
        (str(order_id),),
    )
    return read_order(placed.fetchone())


def read_order(row: tuple[Any, ...]) -> Order:
    return Order(UUID(row[0]), *row[1:])


async def find_next_page(order: Order) -> str:
    """Return the URL of the order's checkout, or of the order page if there is nothing to pay.

    If the payment has ended unpaid, this function begins the next attempt. It reads the payment,
    because no event is sent when the buyer cancels, and because events can be late.
    """
    if order.status == "paid":
        return order.page
    if order.payment_id is not None:
        payment = await client.payments.get(order.payment_id)
        if payment.status in {"PENDING", "PROCESSING"}:
            return payment.checkout_url or order.page
        if payment.status not in ENDED_UNPAID or payment.failure_reason in REVIEWED:
            return order.page
        order = begin_attempt(order)
    created = await client.payments.create(
        amount=order.amount,
        currency=order.currency,
        payer_uid=f"guest-{order.id}",
        metadata={"order_id": str(order.id), "product": {"name": "Tides of the Chao Phraya"}},
        return_url=order.return_url,
        cancel_url=order.return_url,  # the same page, on which the buyer can try again
        idempotency_key=str(uuid5(order.id, str(order.attempt))),
    )
    database.execute(
        "UPDATE orders SET payment_id = ? WHERE id = ? AND attempt = ?",
        (created.id, str(order.id), order.attempt),
    )
    return created.checkout_url


def begin_attempt(order: Order) -> Order:
    """Begin the next attempt. Of two concurrent clicks, only one changes the order."""
    database.execute(
        """
        UPDATE orders SET attempt = attempt + 1, payment_id = NULL, status = 'waiting'
         WHERE id = ? AND attempt = ? AND status <> 'paid'
        """,
        (str(order.id), order.attempt),
    )
    return place_order(order.id)


def settle(payment_id: str, status: str, amount: str, currency: str) -> None:
    """Apply the status of a payment to its order. A paid order never changes again."""
    if status == "PAID":
        database.execute(
            """
            UPDATE orders SET status = 'paid', handed_out = handed_out + 1
             WHERE payment_id = ? AND amount = ? AND currency = ? AND status <> 'paid'
            """,
            (payment_id, amount, currency),
        )
    elif status in ENDED_UNPAID:
        database.execute(
            "UPDATE orders SET status = 'unpaid' WHERE payment_id = ? AND status = 'waiting'",
            (payment_id,),
        )


async def refresh(order: Order) -> tuple[Order, Payment | None]:
    """Apply the status of the order's payment, if any. Return the order and the payment."""
    if order.payment_id is None:
        return order, None
    payment = await client.payments.get(order.payment_id)
    settle(payment.id, payment.status, payment.amount, payment.currency)
    return place_order(order.id), payment


async def poll() -> None:
    """Refresh all open orders, because a webhook can be lost."""
    find = "SELECT * FROM orders WHERE status = 'waiting' AND payment_id IS NOT NULL"
    for order in map(read_order, database.execute(find).fetchall()):
        try:
            await refresh(order)
        except PayintentError as error:  # the next poll tries again
            log.warning("%s cannot be read: %s", order.payment_id, error)
