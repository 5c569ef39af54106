"""Merchants read payments in each status, and cancel them."""

from decimal import Decimal
from uuid import uuid4

import pytest

from payintent.gateways.port import GatewaySessionState, SessionReport
from payintent.merchants.taxes import SetTaxRate
from payintent.payment_sessions.expire import expire_processing
from payintent.payments import sessions_store as session_store
from tests.support.arrange import (
    bring_to,
    callback,
    cancel,
    captured,
    payment_of,
    post,
    refusal,
    select,
)
from tests.support.arrange import document as body_of
from tests.support.world import Api

_ALWAYS = {
    *("id", "checkout_id", "checkout_url", "merchant_id", "status", "currency", "amount"),
    *("payer_uid", "tax_amount", "refunded_amount", "include_pegged_assets", "tax_manager"),
    *("created_at", "updated_at", "metadata"),
}
_SELECTED = {
    *("payment_method_id", "provider", "fee_mode", "fee_rate", "fee_amount", "estimated_tax"),
    "quote_total_amount",
}
_FIELDS = {
    "PENDING": _ALWAYS | {"expires_at"},
    "PROCESSING": _ALWAYS | _SELECTED | {"expires_at"},
    "PAID": _ALWAYS | _SELECTED | {"paid_at", "receipt_id"},
    "FAILED": _ALWAYS | _SELECTED | {"failed_at", "failure_reason"},
    "EXPIRED": _ALWAYS | {"expired_at"},
    "CANCELLED": _ALWAYS | {"cancelled_at"},
}


@pytest.mark.parametrize("status", _FIELDS)
async def test_a_payment_has_exactly_the_fields_of_its_status(api: Api, status: str) -> None:
    created = await api.create(metadata={"order_id": "A-1"}, country="TH", payer_email="a@b.co")
    await bring_to(api, created, status)
    stored = await api.get(created.json["id"])
    assert stored.status == 200
    assert stored.json["status"] == status
    assert set(stored.json) == _FIELDS[status]
    assert None not in stored.json.values()
    unchanged = {
        "id",
        "checkout_id",
        "merchant_id",
        "amount",
        "payer_uid",
        "created_at",
        "metadata",
    }
    assert all(stored.json[name] == created.json[name] for name in unchanged)
    assert stored.json["checkout_url"] == f"http://pay.test/c/{created.json['checkout_id']}"
    assert (await api.get(created.json["id"])).body == stored.body


async def test_a_paid_payment_has_its_quote_receipt_and_payment_time(api: Api) -> None:
    created = await api.create()
    await bring_to(api, created, "PAID")
    stored = (await api.get(created.json["id"])).json
    assert stored["payment_method_id"] == api.world.card
    assert stored["provider"] == "fake"
    assert (stored["fee_mode"], stored["fee_rate"], stored["fee_amount"]) == (
        "INCLUSIVE",
        "0.029",
        "46.11",
    )
    assert (stored["estimated_tax"], stored["tax_amount"]) == ("0", "0")
    assert (stored["quote_total_amount"], stored["refunded_amount"]) == ("1590.00", "0")
    assert stored["receipt_id"].startswith("rcpt_")
    assert len(stored["receipt_id"]) == len("rcpt_") + 22
    assert stored["paid_at"] == stored["updated_at"] > stored["created_at"]


async def test_tax_is_an_estimate_until_the_payment_is_paid(api: Api) -> None:
    await api.world.rows("UPDATE merchant SET tax_manager = 'SERVICE'")
    await api.world.perform(SetTaxRate(country="TH", rate=Decimal("0.07")))
    created = await api.create()
    assert (created.json["tax_manager"], created.json["tax_amount"]) == ("SERVICE", "0")
    assert (await select(api, created, country="TH")).status == 200
    stored = (await api.get(created.json["id"])).json
    assert (stored["tax_amount"], stored["estimated_tax"]) == ("0", "111.30")
    assert stored["quote_total_amount"] == "1701.30"
    payment = await payment_of(api, created)
    assert (await callback(api, payment.session_id, captured(170130))).status == 200
    stored = (await api.get(created.json["id"])).json
    assert (stored["status"], stored["tax_amount"], stored["estimated_tax"]) == (
        "PAID",
        "111.30",
        "111.30",
    )


async def test_a_payment_that_expired_after_a_selection_keeps_its_quote(api: Api) -> None:
    created = await api.create()
    await bring_to(api, created, "PROCESSING")
    await api.world.move_clock(1800)
    assert (await api.get(created.json["id"])).json["status"] == "PROCESSING"
    service = api.world.service
    async with api.world.database.transaction() as tx:
        await expire_processing(tx, 10, 0)
    api.world.gateway.answer_close = SessionReport(state=GatewaySessionState.CLOSED)
    for due_session in await session_store.claim_due(api.world.database, 10, 60, []):
        await service.session_inquirer.inquire(due_session)
    stored = await api.get(created.json["id"])
    assert stored.json["status"] == "EXPIRED"
    assert set(stored.json) == _ALWAYS | _SELECTED | {"expired_at"}


async def test_reading_an_overdue_payment_expires_it_with_an_event(api: Api) -> None:
    created = await api.create(expires_in=60)
    await api.world.move_clock(60)
    stored = await api.get(created.json["id"])
    assert stored.json["status"] == "EXPIRED"
    assert await api.world.events(await payment_of(api, created)) == ["payment.expired"]


async def test_a_pending_payment_is_cancelled_once_with_an_event(api: Api) -> None:
    created = await api.create()
    answer = await cancel(api, created)
    assert (answer.status, answer.body) == (200, b'{"status":"cancelled"}')
    assert "Idempotency-Replayed" not in answer.headers
    assert refusal(await cancel(api, created)) == (409, "INVALID_PAYMENT_STATE")
    assert await api.world.events(await payment_of(api, created)) == ["payment.cancelled"]


@pytest.mark.parametrize("status", ["PROCESSING", "PAID", "FAILED", "EXPIRED", "CANCELLED"])
async def test_a_payment_that_is_not_pending_cannot_be_cancelled(api: Api, status: str) -> None:
    created = await api.create()
    await bring_to(api, created, status)
    events = await api.world.events(await payment_of(api, created))
    answer = await cancel(api, created, str(uuid4()))
    assert refusal(answer) == (409, "INVALID_PAYMENT_STATE")
    assert status in answer.json["message"]
    assert (await api.get(created.json["id"])).json["status"] == status
    assert await api.world.events(await payment_of(api, created)) == events


async def test_a_cancellation_key_is_replayed_and_belongs_to_its_payment(api: Api) -> None:
    first, second, key = await api.create(), await api.create(), str(uuid4())
    answer = await cancel(api, first, key)
    again = await cancel(api, first, key.upper())
    assert (again.status, again.body) == (200, answer.body)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert refusal(await cancel(api, second, key)) == (409, "IDEMPOTENCY_CONFLICT")
    assert (await api.get(second.json["id"])).json["status"] == "PENDING"
    assert refusal(await cancel(api, second, "not-a-uuid")) == (400, "BAD_REQUEST")
    await api.world.move_clock(24 * 3600)
    assert refusal(await cancel(api, first, key)) == (409, "INVALID_PAYMENT_STATE")


async def test_a_key_can_be_reused_after_a_refused_cancellation(api: Api) -> None:
    processing, key = await api.create(), str(uuid4())
    await bring_to(api, processing, "PROCESSING")
    assert refusal(await cancel(api, processing, key))[0] == 409
    assert (await cancel(api, await api.create(), key)).status == 200


async def test_creates_and_cancellations_have_separate_keys(api: Api) -> None:
    key = str(uuid4())
    created = await post(api, body_of(), Idempotency_Key=key)
    assert (await cancel(api, created, key)).status == 200


async def test_a_cancellation_accepts_any_body(api: Api) -> None:
    for data in (None, b"", b"{}", b"not JSON"):
        created = await api.create()
        path = f"/v1/payments/{created.json['id']}/cancel"
        answer = await api.send("POST", path, headers=api.bearer(), data=data)
        assert answer.status == 200
