"""`payintent-cli trigger`: create a test payment that ends with the requested event."""

from __future__ import annotations

from payintent_sdk import Client
from payintent_sdk.models import CreatedPayment

from payintent_cli.keys import Access

_LIFE_S = 900
_PAYER = "payintent-trigger"


def trigger(access: Access, kind: str, *, amount: str, currency: str) -> None:
    """Create a payment, end it with an event of this kind, and print its id.

    To make the payment expire, the clock of the whole test merchant is advanced.
    """
    with Client(access.key, access.base_url) as client:
        payment = client.payments.create(
            amount=amount, currency=currency, payer_uid=_PAYER, expires_in=_LIFE_S
        )
        _KINDS[kind](client, payment)
    print(f"{payment.id}  {kind}", flush=True)


def _cancel(client: Client, payment: CreatedPayment) -> None:
    client.payments.cancel(payment.id)


def _expire(client: Client, payment: CreatedPayment) -> None:
    del payment  # expires together with all other payments
    client.test_clock.advance(_LIFE_S + 1)


def _pay(client: Client, payment: CreatedPayment) -> None:
    client.test_payments.pay(payment.id)


def _decline(client: Client, payment: CreatedPayment) -> None:
    client.test_payments.decline(payment.id)


_KINDS = {
    "payment.completed": _pay,
    "payment.failed": _decline,
    "payment.cancelled": _cancel,
    "payment.expired": _expire,
}
