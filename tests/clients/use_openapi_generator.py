"""Run a merchant's actions with openapi-generator's Python client, and print the results as JSON.

Arguments: the service's URL, the key, the id of a paid payment, a buyer who is denied.
"""

import json
import sys
from uuid import uuid4

from payintent_client import ApiClient, Configuration
from payintent_client.api.payments_api import PaymentsApi
from payintent_client.exceptions import ConflictException
from payintent_client.models.api_error import ApiError
from payintent_client.models.create_payment import CreatePayment
from payintent_client.models.create_refund import CreateRefund
from payintent_client.models.currency_code import CurrencyCode
from payintent_client.models.payment_status import PaymentStatus


def main(base: str, key: str, paid: str, denied_payer: str) -> None:
    payments = PaymentsApi(ApiClient(Configuration(host=base, access_token=key)))
    order = CreatePayment(
        currency=CurrencyCode.THB,
        amount="1590.00",
        payer_uid="buyer-17",
        metadata={"order_id": "A-1009"},
    )
    created = payments.create_payment(str(uuid4()), order)

    denied_order = CreatePayment(currency=CurrencyCode.THB, amount="1.00", payer_uid=denied_payer)
    denied = payments.create_payment_without_preload_content(str(uuid4()), denied_order)
    assert denied.status == 200, denied.status

    payment = payments.get_payment(created.id)
    result = payments.list_payments(
        status=PaymentStatus.PENDING, created_from=payment.created_at, limit=10
    )
    cancelled = payments.cancel_payment(created.id)

    part = CreateRefund(amount="90.00", reason="one page is torn")
    refund = payments.create_refund(str(uuid4()), paid, create_refund=part)
    stored_refund = payments.get_refund(refund.id)

    saw: dict[str, str | list[str]] = {
        "created": created.id,
        "denied": json.loads(denied.data)["fds"]["code"],
        "amount": payment.amount,
        "order": payment.metadata["order_id"],
        "listed": [item.id for item in result.data],
        "cancelled": cancelled.status,
        "again": refused_cancel(payments, created.id),
        "refund": stored_refund.id,
        "refunded": stored_refund.amount,
    }
    print(json.dumps(saw))


def refused_cancel(payments: PaymentsApi, payment_id: str) -> str:
    """Cancel an ended payment; return the error code."""
    body: object = None
    try:
        payments.cancel_payment(payment_id)
    except ConflictException as refused:
        body = refused.data
    assert isinstance(body, ApiError)
    return body.code


if __name__ == "__main__":
    main(*sys.argv[1:])
