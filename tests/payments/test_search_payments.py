"""Payments are found by any of their fields, and listed in pages."""

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from payintent.core import ids
from payintent.evm.port import PaidLog
from payintent.onchain import pending_store as pending_transfers
from payintent.payments import search_store as payment_search
from payintent.payments.model import Payment, PaymentStatus
from payintent.payments.operations import ListPayments, SearchPayments
from payintent.payments.search_store import PaymentRecord
from payintent.refunds.operations import RefundPayment
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.contracts import (
    PAYER,
    bill,
    contract_service,
    log_of,
    offer_tokens,
    record_final_logs,
)
from tests.support.fakes import FakeGateway, captured
from tests.support.rows import write_payments
from tests.support.world import World

_HOUR_S = 3600


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


async def search(world: World, text: str, **more: Any) -> dict[str, str | None]:
    """Search; return the field by which each payment was found."""
    payments = await world.perform(SearchPayments(text=text, **more))
    return {payment.id: payment.found_by for payment in payments}


async def list_ids(world: World, **filters: Any) -> list[str]:
    payments: list[PaymentRecord] = await world.perform(ListPayments(**filters))
    return [payment.id for payment in payments]


def public_id(payment: Payment) -> str:
    return ids.format_id(ids.PAYMENT, payment.id)


async def test_a_payment_is_found_by_each_of_its_ids(world: World) -> None:
    await world.create()
    payment = await world.create(payer_uid="buyer-2")
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(159_000, reference="ch_9"))
    refund = await world.perform(RefundPayment(payment_id=public_id(payment), amount="10.00"))
    await world.rows("UPDATE refund SET reference = 're_9'")
    [event] = await world.rows("SELECT id FROM event")
    for text, field in (
        (public_id(payment), "payment"),
        (payment.checkout_id, "checkout"),
        (ids.format_id(ids.SESSION, session.id), "session"),
        (refund.id, "refund"),
        (str(event["id"]), "event"),
        (session.reference, "reference"),
        ("ch_9", "reference"),
        ("re_9", "reference"),
        (" buyer-2 ", "payer"),
    ):
        assert await search(world, text) == {public_id(payment): field}, text
    for text in ("buyer-3", "ch_", f"pay_{22 * '0'}", "cs_0000000000000000", str(UUID(int=5)), "%"):
        assert await search(world, text) == {}, text


async def test_a_payment_is_found_by_its_case_and_its_dispute(world: World) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(1))
    [case] = await world.rows("SELECT id, capture_id FROM money_case")
    assert await search(world, ids.format_id(ids.CASE, case["id"])) == {public_id(payment): "case"}
    await world.rows(
        """
        INSERT INTO dispute (id, account_id, reference, capture_id, case_id, state, funds,
            amount_minor, currency, held_minor)
        VALUES ($1, $2, 'dp_1', $3, $4, 'open', 'untouched', 1, 'THB', 0)
        """,
        UUID(int=7),
        world.account_id,
        case["capture_id"],
        case["id"],
    )
    assert await search(world, "dp_1") == {public_id(payment): "reference"}


async def test_an_order_id_is_found_in_any_metadata(world: World) -> None:
    """Metadata is stored even if PostgreSQL cannot parse it, as with a lone surrogate."""
    orders = {
        '{"order_id":"A-7","note":{"order_id":"B"}}': "A-7",
        '{"order_id":7}': "7",
        '{"order_id":"\\u0e01\\u0e02"}': "\u0e01\u0e02",
    }
    for metadata, order in orders.items():
        payment = await world.create(metadata=metadata)
        assert await search(world, order) == {public_id(payment): "order"}
        [record] = await world.perform(ListPayments(order_id=order))
        assert record.order_id == order
    for metadata in (
        f'{{"order_id":"{"x" * 15_000}"}}',
        '{"order_id":"\\ud800"}',
        '{"note":"\\u0000","order_id":"A-8"}',
        '{"product":{"order_id":"A-9"}}',
    ):
        await world.create(metadata=metadata)
    assert await search(world, "A-8") == await search(world, "A-9") == {}
    assert len(await list_ids(world)) == 7


async def test_a_payment_is_found_by_its_posted_pending_and_final_transactions(
    world: World,
) -> None:
    methods = await offer_tokens(world)
    payment, session = await bill(world, methods["NATIVED"])
    posted, pending, log = bytes([1] * 32), bytes([2] * 32), log_of(session)
    async with world.database.transaction() as tx:
        await pending_transfers.add_posted_hash(tx, session.id, posted, "pay")
    await pending_transfers.save_pending(
        world.database,
        "native",
        [
            pending_transfers.PendingTransfer(
                tx_hash=pending, log_index=0, session_id=session.id, exact=True, block=6
            )
        ],
    )
    await record_final_logs(world, log)
    for tx_hash in (posted, pending, log.tx_hash):
        text = f"0x{tx_hash.hex()}"
        assert await search(world, text) == {public_id(payment): "transaction"}
        assert await search(world, text.upper().replace("0X", "0x")) == {
            public_id(payment): "transaction"
        }
        assert await list_ids(world, tx_hash=text) == [public_id(payment)]
    assert await search(world, f"0x{bytes(32).hex()}") == {}


async def test_a_search_returns_the_matches_of_every_field(world: World) -> None:
    by_payer = await world.create(payer_uid="77", metadata="{}")
    by_order = await world.create(metadata='{"order_id":"77"}')
    assert await search(world, "77") == {public_id(by_payer): "payer", public_id(by_order): "order"}
    other_merchant_id = (await world.add_merchant(methods="none")).merchant.id
    assert await search(world, "77", merchant_id=other_merchant_id) == {}


async def test_pages_have_no_gaps_or_duplicates(world: World) -> None:
    await write_payments(world, 60, at_once=7)
    for filters in (
        {},
        {"status": PaymentStatus.PAID},
        {"payer_uid": "ann"},
        {"amount_min": Decimal(1)},
        {"merchant_id": world.merchant_id, "status": PaymentStatus.PENDING, "payer_uid": "bob"},
    ):
        expected = await list_ids(world, limit=1000, **filters)
        pages: list[str] = []
        while page := await list_ids(
            world, limit=7, before=pages[-1] if pages else None, **filters
        ):
            pages += page
        assert pages == expected, filters
        assert len(expected) == len(set(expected)) > 2
    rows = await world.rows(
        "SELECT id FROM payment WHERE merchant_id > 0 ORDER BY created_at DESC, id DESC"
    )
    assert await list_ids(world, limit=1000) == [
        ids.format_id(ids.PAYMENT, row["id"]) for row in rows
    ]


@pytest.mark.parametrize("amount_min", [None, Decimal(1)], ids=["all", "filtered by scan"])
async def test_pages_contain_every_payment_once_while_payments_are_created(
    world: World, amount_min: Decimal | None
) -> None:
    created = [await world.create() for _ in range(10)]
    pages: list[str] = []
    while page := await list_ids(
        world, limit=3, before=pages[-1] if pages else None, amount_min=amount_min
    ):
        pages += page
        await world.create()
    assert pages == [public_id(payment) for payment in reversed(created)]


async def test_payments_can_be_listed_by_their_age(world: World) -> None:
    old_payment = await world.create()
    await world.select(old_payment)
    await world.move_clock(2 * _HOUR_S)
    new_payment = await world.create()
    await world.select(new_payment)
    processing = {"status": PaymentStatus.PROCESSING}
    assert await list_ids(world, **processing) == [public_id(new_payment), public_id(old_payment)]
    for age in ("1h", "60m", "3600s"):
        assert await list_ids(world, older_than=age, **processing) == [public_id(old_payment)]
    assert await list_ids(world, older_than="1d", **processing) == []


async def test_a_listed_payment_matches_all_filters(world: World) -> None:
    payment = await world.create(payer_uid="ann", metadata='{"order_id":"A-1"}')
    session = (await world.select(payment)).session
    await world.create(payer_uid="bob", metadata='{"order_id":"A-1"}')
    matching = {
        "merchant_id": world.merchant_id,
        "status": PaymentStatus.PROCESSING,
        "payer_uid": "ann",
        "order_id": "A-1",
        "reference": session.reference,
    }
    assert await list_ids(world, **matching) == [public_id(payment)]
    other_merchant_id = (await world.add_merchant(methods="none")).merchant.id
    for field, value in (
        ("merchant_id", other_merchant_id),
        ("status", PaymentStatus.PAID),
        ("payer_uid", "bob"),
        ("order_id", "A-2"),
        ("reference", "x"),
    ):
        assert await list_ids(world, **(matching | {field: value})) == [], field


async def test_a_list_shows_details_for_operators_but_not_the_checkout_id(world: World) -> None:
    payment = await world.create()
    await world.select(payment)
    [record] = await world.perform(ListPayments())
    assert (record.status, record.amount, record.currency) == ("PROCESSING", "1590.00", "THB")
    assert (record.payer_uid, record.order_id, record.provider) == ("buyer-1", "A-1", "fake")
    assert payment.checkout_id not in str(record)


async def test_matches_of_one_merchant_do_not_hide_matches_of_another_merchant(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payment_search, "MATCHES_MAX", 3)
    other_merchant_id = (await world.add_merchant()).merchant.id
    await write_payments(world, 8)
    payment = await world.create(merchant_id=other_merchant_id)
    await world.rows(
        """
        UPDATE payment
        SET metadata = json_build_object('order_id', '1001'), payer_email = 'ann@shop.example'
        """
    )
    for text, field in (("1001", "order"), ("ann@shop.example", "email")):
        assert len(await search(world, text)) == 3, field
        assert await search(world, text, merchant_id=other_merchant_id) == {
            public_id(payment): field
        }
    assert await list_ids(world, order_id="1001", merchant_id=other_merchant_id) == [
        public_id(payment)
    ]


async def test_an_address_that_paid_two_merchants_is_found_for_each_of_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payment_search, "MATCHES_MAX", 1)
    methods = await offer_tokens(world)
    logs: list[PaidLog] = []
    payment_ids: dict[int, str] = {}
    for merchant_id in (world.merchant_id, (await world.add_merchant()).merchant.id):
        payment, session = await bill(world, methods["NATIVED"])
        logs.append(log_of(session, tx_hash=bytes([merchant_id] * 32)))
        payment_ids[merchant_id] = public_id(payment)
    await record_final_logs(world, *logs)
    await world.rows("UPDATE payment SET merchant_id = $1 WHERE id = $2", merchant_id, payment.id)
    for merchant_id, payment_id in payment_ids.items():
        assert await search(world, PAYER, merchant_id=merchant_id) == {payment_id: "address"}
