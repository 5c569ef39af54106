"""Run a merchant's actions with the Python SDK, and print the results as JSON.

Arguments: sync or async, the service's URL, the key, the id of a paid payment, a denied buyer.
"""

import asyncio
import json
import sys
from decimal import Decimal

from payintent_sdk import AsyncClient, Client, PaymentDeniedError
from payintent_sdk.errors import InvalidStateError


def use_sync(base: str, key: str, paid: str, denied_payer: str) -> dict[str, object]:
    with Client(key, base) as client:
        created = client.payments.create(
            amount="1590.00",
            currency="THB",
            payer_uid="buyer-17",
            metadata={"order_id": "A-1009"},
        )
        denied = second_cancellation = ""
        try:
            client.payments.create(amount="1.00", currency="THB", payer_uid=denied_payer)
        except PaymentDeniedError as error:
            denied = error.decision.code
        payment = client.payments.get(created.id)
        since = payment.created_at
        payments = list(client.payments.iterate(status="PENDING", created_from=since, limit=1))
        cancelled = client.payments.cancel(created.id)
        try:
            client.payments.cancel(created.id)
        except InvalidStateError as error:
            second_cancellation = error.code
        part = client.refunds.create(paid, amount="90.00", reason="one page is torn")
        refund = client.refunds.get(part.id)
        assert [item.id for item in client.refunds.iterate(paid)] == [refund.id]
        assert refund.id in [item.id for item in client.refunds.list_updated().data]
        events = list(client.events.iterate())
        assert all(item.event.id == item.id for item in events)
        kinds = [item.event.type for item in events]
        assert kinds == ["payment.completed", "payment.cancelled"], kinds
        assert client.cases.list().data == []
        assert client.disputes.list().data == []
        assert client.catalog.get().countries
        return {
            "created": created.id,
            "denied": denied,
            "amount": payment.amount,
            "order": payment.metadata["order_id"],
            "listed": [item.id for item in payments],
            "cancelled": cancelled.status,
            "again": second_cancellation,
            "refund": refund.id,
            "refunded": refund.amount,
        }


async def use_async(base: str, key: str, paid: str, denied_payer: str) -> dict[str, object]:
    async with AsyncClient(key, base) as client:
        created = await client.payments.create(
            amount=Decimal(1590).quantize(Decimal("0.01")),
            currency="THB",
            payer_uid="buyer-17",
            metadata={"order_id": "A-1009"},
        )
        denied = second_cancellation = ""
        try:
            await client.payments.create(amount="1.00", currency="THB", payer_uid=denied_payer)
        except PaymentDeniedError as error:
            denied = error.decision.code
        payment = await client.payments.get(created.id)
        payments = client.payments.iterate(
            status="PENDING", created_from=payment.created_at, limit=1
        )
        payment_ids = [item.id async for item in payments]
        cancelled = await client.payments.cancel(created.id)
        try:
            await client.payments.cancel(created.id)
        except InvalidStateError as error:
            second_cancellation = error.code
        part = await client.refunds.create(paid, amount="90.00", reason="one page is torn")
        refund = await client.refunds.get(part.id)
        kinds = [item.event.type async for item in client.events.iterate()]
        assert kinds == ["payment.completed", "payment.cancelled"], kinds
        return {
            "created": created.id,
            "denied": denied,
            "amount": payment.amount,
            "order": payment.metadata["order_id"],
            "listed": payment_ids,
            "cancelled": cancelled.status,
            "again": second_cancellation,
            "refund": refund.id,
            "refunded": refund.amount,
        }


if __name__ == "__main__":
    _, mode, *uses = sys.argv
    print(json.dumps(use_sync(*uses) if mode == "sync" else asyncio.run(use_async(*uses))))
