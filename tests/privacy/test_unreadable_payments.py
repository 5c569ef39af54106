"""If a payment cannot be decrypted, captures, expiry and the readable payments are unaffected."""

import json
from uuid import UUID

import pytest
from prometheus_client import REGISTRY

from payintent.core import ids
from payintent.payments import store as payment_store
from payintent.payments.expire import expire_pending
from payintent.payments.model import PaymentStatus
from payintent.payments.operations import SearchPayments
from payintent.privacy import seals_store
from payintent.privacy.operations import ExportPayer
from payintent.privacy.seals_store import PayerDataSealer
from payintent.runtime.encryption import EncryptionKeyError
from payintent.runtime.settings import Settings
from payintent.webhooks import feed_store, outbox_store
from payintent.webhooks.model import OutgoingDelivery
from tests.console.operator_browser import sign_in_as
from tests.portal.member_browser import member
from tests.privacy.test_payer_erasure import erase_with_approval, erasure, mark_delivered
from tests.privacy.test_payer_sealing import EMAIL, METADATA, process
from tests.refunds.refund_setup import create_paid_payment
from tests.support.fakes import captured
from tests.support.world import Api, World

_SPOIL = """
    UPDATE payment
    SET metadata = to_json(replace(metadata #>> '{}', split_part(metadata #>> '{}', ':', 4),
        reverse(split_part(metadata #>> '{}', ':', 4))))
    WHERE id = $1
"""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"seal_payer_data": True})


async def corrupt(world: World, payment_id: UUID) -> str:
    """Corrupt a payment's metadata; return the original."""
    [row] = await world.rows("SELECT metadata::text AS m FROM payment WHERE id = $1", payment_id)
    await world.rows(_SPOIL, payment_id)
    with pytest.raises(EncryptionKeyError):
        await payment_store.get(world.database, payment_id)
    return row["m"]


def count_unreadable(table: str = "payment") -> float:
    """Return the number of failed reads that the metric has counted."""
    name = "payintent_payer_rows_unreadable_total"
    return REGISTRY.get_sample_value(name, {"table": table}) or 0.0


async def create_payment(api: Api) -> UUID:
    answer = await api.create(metadata={"order_id": "A-77"}, payer_email=EMAIL)
    parsed = ids.parse_id(ids.PAYMENT, answer.json["id"])
    assert parsed is not None
    return parsed


async def claim_due_events(world: World) -> list[OutgoingDelivery]:
    """Make all deliveries due, and claim them."""
    await world.rows("UPDATE merchant SET callback_url = 'https://shop.example/hook'")
    await world.rows("UPDATE delivery SET state = 'pending', next_at = '-infinity'")
    return await outbox_store.claim_due(world.database, [(world.merchant_id, 10)], 1.0)


async def test_lists_and_batch_reads_skip_unreadable_payments(
    api: Api,
) -> None:
    world = api.world
    corrupt_id, intact_id = await create_payment(api), await create_payment(api)
    await corrupt(world, corrupt_id)
    before = count_unreadable()
    response = await api.send("GET", "/v1/payments", headers=api.bearer())
    assert [item["id"] for item in response.json["data"]] == [ids.format_id(ids.PAYMENT, intact_id)]
    assert count_unreadable() == before + 1
    first = await api.send("GET", "/v1/payments?limit=1", headers=api.bearer())
    after = first.json["next_cursor"]
    assert after is not None
    rest = await api.send("GET", f"/v1/payments?cursor={after}", headers=api.bearer())
    assert (rest.status, rest.json["data"]) == (200, [])
    refused = await api.get(ids.format_id(ids.PAYMENT, corrupt_id))
    assert (refused.status, refused.json["code"]) == (500, "INTERNAL_ERROR")
    assert "decrypted" in refused.json["message"]
    batch = await payment_store.get_batch(world.database, [corrupt_id, intact_id])
    readable = [item is not None and payment_store.is_readable(item.payment) for item in batch]
    assert readable == [False, True]


async def test_without_the_new_key_payments_proceed_and_only_their_events_wait(
    world: World,
) -> None:
    async with process(world, ring="ba") as newer:
        dues = [
            await create_paid_payment(newer, payer_email=EMAIL, metadata=METADATA) for _ in range(2)
        ]
        payments = [await newer.create(payer_email=EMAIL, metadata=METADATA) for _ in range(2)]
        selected = (await newer.select(payments[0])).session
        plain_payment = await world.create(metadata=METADATA)
        price = selected.quote
        money = captured(price.total_minor, price.price.currency, reference="cap-of-b")
        assert (await world.report(payments[0], selected.id, money)).status is PaymentStatus.PAID
        await world.move_clock(3600)
        async with world.database.transaction() as tx:
            assert await expire_pending(tx, 10) == 2
        assert [await newer.status(item) for item in (payments[1], plain_payment)] == [
            "EXPIRED",
            "EXPIRED",
        ]
        deliveries = await claim_due_events(world)
        assert [item.payment_id for item in deliveries] == [plain_payment.id]
        deliveries = await claim_due_events(newer)
        payment_ids = {payment.id for payment in (*dues, *payments, plain_payment)}
        assert {item.payment_id for item in deliveries} == payment_ids
        assert all(
            METADATA.encode() in item.body and b"sealed:" not in item.body for item in deliveries
        )
        assert all(json.loads(item.body)["data"]["payment"]["metadata"] for item in deliveries)


async def test_the_feed_skips_an_unreadable_event(world: World) -> None:
    payments = [
        await create_paid_payment(world, payer_email=EMAIL, metadata=METADATA) for _ in range(3)
    ]
    await world.rows("UPDATE event SET body = body || 'A' WHERE payment_id = $1", payments[1].id)
    database, before = world.database, count_unreadable("event")
    await feed_store.number_new_events(database, world.merchant_id)
    start = await feed_store.get_first_cursor(database, world.merchant_id)
    kinds = ["payment.completed"]
    first = await feed_store.read_page(database, world.merchant_id, start, kinds, 2)
    assert (len(first.events), first.has_more) == (1, True)
    last = await feed_store.read_page(database, world.merchant_id, first.cursor, kinds, 2)
    assert (len(last.events), last.has_more) == (1, False)
    assert count_unreadable("event") == before + 1


async def test_a_worker_reseals_readable_payments_and_then_stops(world: World) -> None:
    payments = [
        await create_paid_payment(world, payer_email=EMAIL, metadata=METADATA) for _ in range(3)
    ]
    await corrupt(world, payments[0].id)
    await world.rows("UPDATE event SET body = body || 'A' WHERE payment_id = $1", payments[0].id)
    async with process(world, ring="ba") as second:
        sealer = PayerDataSealer(second.database, -60.0, batch=1)
        for _ in range(20):
            if not await sealer.step():
                break
        else:
            pytest.fail("the worker does not stop")
        for payment in payments[1:]:
            [row] = await world.rows(
                "SELECT split_part(payer_email, ':', 2) AS key FROM payment WHERE id = $1",
                payment.id,
            )
            assert row["key"] == "b"
        left = await seals_store.list_payments_with_old_keys(second.database, 10)
        assert left == [payments[0].id]


async def test_search_and_export_include_an_unreadable_payment_and_erasure_clears_it(
    world: World,
) -> None:
    payments = [
        await create_paid_payment(world, payer_uid="zora-17", payer_email=EMAIL, metadata=METADATA)
        for _ in range(2)
    ]
    await corrupt(world, payments[0].id)
    await world.rows("UPDATE event SET body = body || 'A' WHERE payment_id = $1", payments[0].id)
    results = await world.perform(SearchPayments(text=EMAIL))
    assert sorted(item.order_id or "" for item in results) == ["", "A-77"]
    export = ExportPayer(merchant_id=world.merchant_id, payer_uid="zora-17")
    exported = await world.perform(export)
    metadata = [bytes(item.metadata).decode() for item in exported]
    assert sorted(metadata) == ['"(cannot be decrypted)"', METADATA]
    for payment in payments:
        await mark_delivered(world, payment)
    await erase_with_approval(world, erasure(world))
    for payment in payments:
        snapshot = await payment_store.get(world.database, payment.id)
        assert snapshot is not None
        assert (snapshot.payment.payer_email, snapshot.payment.metadata) == (None, "{}")
        [row] = await world.rows("SELECT id FROM event WHERE payment_id = $1", payment.id)
        event = await outbox_store.get_event(world.database, row["id"])
        assert event is not None
        assert "Zora" not in event.body


@pytest.mark.parametrize(
    "metadata", ['{"metadata":"sealed:b::AAAA"}', '{"a":{"b":{"metadata":"sealed:b::AAAA"}}}']
)
async def test_metadata_that_looks_sealed_is_delivered_unchanged(
    world: World, metadata: str
) -> None:
    payment = await create_paid_payment(world, metadata=metadata)
    [delivery] = await claim_due_events(world)
    assert delivery.payment_id == payment.id
    assert metadata.encode() in delivery.body


async def test_pages_of_an_unreadable_payment_explain_the_problem(operator: Api, api: Api) -> None:
    corrupt_id = await create_payment(api)
    await corrupt(api.world, corrupt_id)
    [row] = await api.world.rows("SELECT checkout_id FROM payment WHERE id = $1", corrupt_id)
    payment_name = ids.format_id(ids.PAYMENT, corrupt_id)
    thai = {"Accept-Language": "th"}
    answers = (
        (await api.send("GET", f"/c/{row['checkout_id']}", headers=thai), "โปรดติดต่อร้านค้า"),
        (
            await (await member(api)).get(f"/merchant/payments/{payment_name}"),
            "Contact your payment service provider",
        ),
        (
            await (await sign_in_as(operator)).get(f"/payments/{payment_name}"),
            "cannot be decrypted",
        ),
    )
    for answer, text in answers:
        assert answer.status == 500
        assert answer.headers["Content-Type"].startswith("text/html")
        assert text in answer.body.decode()
        assert "A-77" not in answer.body.decode()
