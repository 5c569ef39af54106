"""Payer data is encrypted at rest: every reader decrypts it, and no table contains plain text."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from uuid import UUID

import pytest
from pydantic import SecretStr

from payintent.checkout.buyer_mails import compose_receipt
from payintent.core import ids
from payintent.core.errors import StorageUnavailableError
from payintent.db.sealing import PayerSealing, find_order_id
from payintent.merchants.model import TaxManager
from payintent.operators.operation import Actor
from payintent.payment_history import store as history_store
from payintent.payments import new_store as new_payments
from payintent.payments import store as payment_store
from payintent.payments.model import CreatePaymentRequest, Payment
from payintent.payments.new_store import NewPayment
from payintent.payments.operations import SearchPayments
from payintent.privacy import seals_store
from payintent.privacy.keyring_operations import RotateKeyring, ShowKeyring
from payintent.privacy.operations import ExportPayer
from payintent.privacy.seals_store import PayerDataSealer
from payintent.runtime.encryption import Encryption, EncryptionKeyError
from payintent.runtime.settings import Settings
from payintent.service import open_service
from payintent.webhooks import feed_store, outbox_store
from tests.privacy.test_payer_erasure import (
    erase_with_approval,
    erasure,
    find_words,
    mark_delivered,
)
from tests.refunds.refund_setup import (
    DONE,
    create_paid_payment,
    process_due_refunds,
    request_refund,
    send_refund_callback,
)
from tests.support.plans import Recorder
from tests.support.world import Api, World

ADA = Actor("cli:ada", "ticket 7")
EMAIL = "Zora@example.com"
#: Spaces, an escape and a decimal number, which must be stored exactly as sent.
METADATA = '{"title": "Zora\'s book",  "odd":"\\u00e9","n":1.50,"order_id":"A-77"}'
WORDS = (EMAIL, EMAIL.lower(), "Zora's book", "A-77")
_MIN_AGE_S = -60.0  # seals payments even if they were just created
_KEYS = {name: base64.b64encode(name.encode() * 32).decode() for name in ("b", "c")}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"seal_payer_data": True})


@asynccontextmanager
async def process(world: World, *, is_on: bool = True, ring: str = "a") -> AsyncGenerator[World]:
    """Run a second process on the same database with these keys (`a` is the world's key)."""
    ours = world.service.settings.keyring.get_secret_value().split(",")[0]
    keys = {"a": ours} | {name: f"{name}:{key}" for name, key in _KEYS.items()}
    changes = {"seal_payer_data": is_on, "keyring": SecretStr(",".join(keys[k] for k in ring))}
    settings = world.service.settings.model_copy(update=changes)
    service = await open_service(settings, {"fake": world.gateway})
    try:
        yield replace(world, service=service)
    finally:
        await service.close()


async def buy(world: World) -> Payment:
    """Pay and partly refund a payment, and deliver its event."""
    payment = await create_paid_payment(
        world, payer_uid="zora-17", payer_email=EMAIL, metadata=METADATA
    )
    refund = await request_refund(world, payment, "10")
    await process_due_refunds(world)
    await send_refund_callback(world, refund.id, DONE)
    await mark_delivered(world, payment)
    return payment


async def seal_all(world: World) -> None:
    sealer = PayerDataSealer(world.database, _MIN_AGE_S)
    while await sealer.step():
        pass


async def search(world: World, text: str) -> set[str]:
    """Search as the console does, and check the order ids of the results."""
    payments = await world.perform(SearchPayments(text=text))
    assert {item.order_id for item in payments} <= {"A-77"}
    return {item.id for item in payments}


async def check_readers(world: World, *payments: Payment) -> None:
    """Check that every reader returns the data exactly as the merchant sent it."""
    database = world.database
    payment_ids = {ids.format_id(ids.PAYMENT, payment.id) for payment in payments}
    for text in ("zora@EXAMPLE.com", "A-77"):
        assert await search(world, text) == payment_ids
    exported = await world.perform(ExportPayer(merchant_id=world.merchant_id, payer_uid="zora-17"))
    assert [item.payer_email for item in exported] == [EMAIL] * len(payments)
    assert [bytes(item.metadata).decode() for item in exported] == [METADATA] * len(payments)
    assert all(METADATA in bytes(item.events).decode() for item in exported)
    for payment in payments:
        snapshot = await payment_store.get(database, payment.id)
        assert snapshot is not None
        assert (snapshot.payment.payer_email, snapshot.payment.metadata) == (EMAIL, METADATA)
        [row] = await world.rows("SELECT id FROM event WHERE payment_id = $1", payment.id)
        event = await outbox_store.get_event(database, row["id"])
        assert event is not None
        assert METADATA in event.body


async def test_sealed_payer_data_is_in_no_table_and_readable_everywhere(
    world: World,
) -> None:
    payment = await buy(world)
    assert await find_words(world, WORDS) == {}
    await check_readers(world, payment)
    history = await history_store.list_entries(world.database, payment.id)
    assert [
        METADATA in entry.details["body"] for entry in history.entries if entry.kind == "event"
    ] == [True]
    mail = await compose_receipt(world.database, payment.id)
    assert mail is not None
    assert mail.recipient == EMAIL
    await erase_with_approval(world, erasure(world))
    assert await search(world, EMAIL) == await search(world, "A-77") == set()
    [row] = await world.rows("SELECT id FROM event WHERE payment_id = $1", payment.id)
    event = await outbox_store.get_event(world.database, row["id"])
    assert event is not None
    assert '"payer_uid":"(erased)"' in event.body.replace(" ", "")


async def test_merchants_and_buyers_see_decrypted_payer_data(api: Api) -> None:
    world = api.world
    metadata = {"title": "Zora's book", "order_id": "A-77"}
    created = await api.create(metadata=metadata, payer_email="first@example.com")
    checkout = created.json["checkout_url"].rpartition("/")[2]
    await api.send("PATCH", f"/v1/checkout/{checkout}", json={"payer_email": EMAIL})
    payment = await api.get(created.json["id"])
    assert payment.json["metadata"] == metadata
    payments = await api.send("GET", "/v1/payments", headers=api.bearer())
    assert [item["metadata"] for item in payments.json["data"]] == [metadata]
    view = await api.send("GET", f"/v1/checkout/{checkout}")
    assert view.json["payer_email"].endswith("example.com")
    assert await search(world, EMAIL) == {created.json["id"]}
    assert await find_words(world, (*WORDS, "first@example.com")) == {}
    assert (await api.create(metadata=json.dumps("sealed:test::AAAA"))).status == 400
    assert (await api.create(payer_email="sealed:test::a@example.com")).status == 400


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE payment p SET payer_email = o.payer_email FROM payment o WHERE o.id <> p.id",
        "UPDATE payment p SET metadata = o.metadata FROM payment o WHERE o.id <> p.id",
        "UPDATE payment SET metadata = to_json(payer_email)",
        "UPDATE event e SET body = o.body FROM event o WHERE o.id <> e.id",
    ],
)
async def test_values_moved_to_another_row_or_column_cannot_be_decrypted(
    world: World, change: str
) -> None:
    payments = [
        await create_paid_payment(world, payer_email=EMAIL, metadata=METADATA) for _ in range(2)
    ]
    await read_both(world, payments[1])
    await world.rows(change)
    with pytest.raises(EncryptionKeyError, match="another row"):
        await read_both(world, payments[1])


async def test_an_event_that_cannot_be_decrypted_does_not_delay_other_events(world: World) -> None:
    for _ in range(2):
        await create_paid_payment(world, payer_email=EMAIL, metadata=METADATA)
    corrupt_id, intact_id = [
        row["id"] for row in await world.rows("SELECT id FROM event ORDER BY id")
    ]
    await world.rows(
        "UPDATE event SET body = (SELECT body FROM event WHERE id = $2) WHERE id = $1",
        corrupt_id,
        intact_id,
    )
    await world.rows("UPDATE merchant SET callback_url = 'https://shop.example/hook'")
    await world.rows("UPDATE delivery SET state = 'pending', next_at = '-infinity'")
    due = [(world.merchant_id, 10)]
    deliveries = await outbox_store.claim_due(world.database, due, 45.0)
    assert [item.event_id for item in deliveries] == [intact_id]
    await world.move_clock(60)
    due_rows = await world.rows("SELECT event_id FROM delivery WHERE next_at <= clock() ORDER BY 1")
    assert [row["event_id"] for row in due_rows] == [corrupt_id, intact_id]


async def read_both(world: World, payment: Payment) -> None:
    """Read a payment and its event."""
    await payment_store.get(world.database, payment.id)
    [row] = await world.rows("SELECT id FROM event WHERE payment_id = $1", payment.id)
    await outbox_store.get_event(world.database, row["id"])


async def test_a_worker_seals_old_rows_even_if_it_is_interrupted(world: World) -> None:
    async with process(world, is_on=False) as before:
        old = [await buy(before) for _ in range(3)]
    assert set(await find_words(world, WORDS)) == set(WORDS) - {EMAIL.lower()}
    await check_readers(world, *old)
    rows_before = await world.rows(
        "SELECT id, version, updated_at, status FROM payment ORDER BY id"
    )
    connection = await world.open_connection()
    try:
        async with process(world) as killed, connection.transaction():
            await connection.execute("SELECT FROM payment WHERE id = $1 FOR UPDATE", old[2].id)
            sealer = PayerDataSealer(killed.service.database, _MIN_AGE_S, batch=1)
            sealing = asyncio.create_task(sealer.step())
            while await sealed_payments(world) < 2:
                await asyncio.sleep(0.01)
            killed.service.database.drop_connections()
            with pytest.raises(StorageUnavailableError):
                await sealing
    finally:
        await connection.close()
    assert await sealed_payments(world) == 2
    await check_readers(world, *old)
    await seal_all(world)
    assert await find_words(world, WORDS) == {}
    await check_readers(world, *old)
    # Only the stored format has changed, and a second pass has nothing to do.
    rows = await world.rows("SELECT id, version, updated_at, status FROM payment ORDER BY id")
    assert rows == rows_before
    stored = await world.rows("SELECT payer_email, metadata::text FROM payment ORDER BY id")
    await seal_all(world)
    resealed = await world.rows("SELECT payer_email, metadata::text FROM payment ORDER BY id")
    assert resealed == stored


async def sealed_payments(world: World) -> int:
    [row] = await world.rows(
        "SELECT count(*) AS n FROM payment WHERE json_typeof(metadata) = 'string'"
    )
    return row["n"]


async def test_sealed_and_plain_rows_are_readable_after_sealing_is_disabled_again(
    world: World,
) -> None:
    sealed = await buy(world)
    async with process(world, is_on=False) as off:
        await check_readers(off, sealed)
        plain = await buy(off)
        await check_readers(off, sealed, plain)
        await seal_all(off)  # does not change the format of stored rows
        assert await sealed_payments(world) == 1
    await check_readers(world, sealed, plain)


async def test_a_rotation_retires_a_key_once_no_payer_data_needs_it(world: World) -> None:
    payment = await buy(world)
    old = world.service.encryption.current_key_name
    async with process(world, ring="ba") as second, process(world, is_on=False, ring="ba") as off:
        rotation = await second.perform(RotateKeyring())
        assert (rotation.retired, rotation.payer_values) == ([], 3)
        later = await buy(second)
        await check_readers(second, payment, later)
        await seal_all(off)  # sealed values are resealed with the first key
        assert await seals_store.count_values_with_old_keys(second.service.database, 10) == 0
        await check_readers(second, payment, later)
        rotation = await second.perform(RotateKeyring())
        assert (rotation.retired, rotation.payer_values) == ([old], 0)
        # If an old process writes with the old key again, every ring must contain this key.
        straggler = await buy(world)
        with pytest.raises(EncryptionKeyError, match="lacks key"):
            async with process(world, ring="b"):
                pass
        await seal_all(second)
        await check_readers(second, payment, later, straggler)
    async with process(world, ring="b") as last:
        await check_readers(last, payment, later, straggler)
        assert {key.name for key in await last.perform(ShowKeyring()) if not key.retired_at} == {
            "b"
        }


async def test_the_feed_and_deliveries_contain_the_original_event_body(world: World) -> None:
    payment = await create_paid_payment(world, payer_email=EMAIL, metadata=METADATA)
    database = world.database
    await world.rows("UPDATE merchant SET callback_url = 'https://shop.example/hook'")
    await world.rows("UPDATE delivery SET state = 'pending', next_at = '-infinity'")
    [delivery] = await outbox_store.claim_due(database, [(world.merchant_id, 10)], 1.0)
    assert delivery.payment_id == payment.id
    assert METADATA.encode() in delivery.body
    await feed_store.number_new_events(database, world.merchant_id)
    start = await feed_store.get_first_cursor(database, world.merchant_id)
    page = await feed_store.read_page(database, world.merchant_id, start, ["payment.completed"], 10)
    assert [event.body for event in page.events] == [delivery.body.decode()]


@pytest.mark.parametrize(
    "metadata",
    [
        '{"order_id": "A-1"}',
        '{"order_id" : 17.50 }',
        '{"order_id":null}',
        '{"order_id":true}',
        '{"order_id":{"a": 1}}',
        '{"order_id":"A\\u00e9\\n"}',
        '{"order_id":"\\ud83d"}',
        '{"odd":"\\ud83d","order_id":"A-1"}',
        '{"other":1}',
        '{"order_id":"A","order_id":"B"}',
    ],
)
async def test_the_service_and_the_database_extract_the_same_order_id(
    world: World, metadata: str
) -> None:
    [row] = await world.rows("SELECT payment_order_id($1::json) AS found", metadata)
    assert find_order_id(metadata) == row["found"]
    sealing, payment_id = world.database.payer_sealing, UUID(int=7)
    stored = sealing.seal_metadata(payment_id, metadata)
    assert sealing.unseal_metadata(payment_id, stored) == metadata != stored


async def test_creating_a_payment_uses_the_same_statement_with_and_without_sealing() -> None:
    request = CreatePaymentRequest(
        currency="THB",
        amount=Decimal(10),
        amount_text="10",
        payer_uid="zora-17",
        payer_email=EMAIL,
        include_pegged_assets=False,
        metadata=METADATA,
        tax_manager=TaxManager.NONE,
        merchant_id=1,
        key=UUID(int=1),
        request_hash=b"",
        country=None,
        expires_in_s=60,
    )
    new = NewPayment(UUID(int=2), "cs_1", request)
    statements: set[str] = set()
    for is_on in (False, True):
        recorder = Recorder()
        recorder.payer_sealing = PayerSealing(Encryption(bytes(32), {"a": bytes(32)}), is_on=is_on)
        await new_payments.create_batch(recorder, [new])
        assert (EMAIL in str(recorder.args)) is not is_on
        statements.add(recorder.query)
    assert len(statements) == 1
