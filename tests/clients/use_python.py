"""Run a merchant's actions with openapi-python-client's client, and print them as JSON.

Arguments: the service's URL, the key, the id of a paid payment, a buyer who is denied.
"""

import json
import sys
from uuid import uuid4

from payintent_client import AuthenticatedClient
from payintent_client.api.payments import (
    cancel_payment,
    create_payment,
    create_refund,
    get_payment,
    get_refund,
    list_payments,
)
from payintent_client.models import (
    ApiError,
    Cancelled,
    CreatedPayment,
    CreatePayment,
    CreateRefund,
    CurrencyCode,
    Denial,
    Metadata,
    Payment,
    PaymentList,
    PaymentStatus,
    Refund,
)


def main(base: str, key: str, paid: str, denied_payer: str) -> None:
    client = AuthenticatedClient(base_url=base, token=key, raise_on_unexpected_status=True)
    metadata = Metadata()
    metadata["order_id"] = "A-1009"
    order = CreatePayment(
        currency=CurrencyCode.THB, amount="1590.00", payer_uid="buyer-17", metadata=metadata
    )
    created = create_payment.sync(client=client, body=order, idempotency_key=str(uuid4()))
    assert isinstance(created, CreatedPayment)

    denied_order = CreatePayment(currency=CurrencyCode.THB, amount="1.00", payer_uid=denied_payer)
    denied = create_payment.sync(client=client, body=denied_order, idempotency_key=str(uuid4()))
    assert isinstance(denied, Denial)

    payment = get_payment.sync(created.id, client=client)
    assert isinstance(payment, Payment)
    page = list_payments.sync(
        client=client,
        status=PaymentStatus.PENDING,
        created_from=payment.created_at,
        limit=10,
    )
    assert isinstance(page, PaymentList)
    cancelled = cancel_payment.sync(created.id, client=client)
    assert isinstance(cancelled, Cancelled)
    again = cancel_payment.sync(created.id, client=client)
    assert isinstance(again, ApiError)

    part = CreateRefund(amount="90.00", reason="one page is torn")
    refund = create_refund.sync(paid, client=client, body=part, idempotency_key=str(uuid4()))
    assert isinstance(refund, Refund)
    stored_refund = get_refund.sync(refund.id, client=client)
    assert isinstance(stored_refund, Refund)

    saw: dict[str, str | list[str]] = {
        "created": created.id,
        "denied": denied.fds.code,
        "amount": payment.amount,
        "order": str(payment.metadata["order_id"]),
        "listed": [item.id for item in page.data],
        "cancelled": cancelled.status,
        "again": again.code.value,
        "refund": stored_refund.id,
        "refunded": stored_refund.amount,
    }
    print(json.dumps(saw))


if __name__ == "__main__":
    main(*sys.argv[1:])
