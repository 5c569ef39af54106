"""Payments in the console: search, filters, pagination and timelines."""

import re
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

from payintent.core import ids
from payintent.core.access import Role
from payintent.payments.cancel import cancel_by_merchant
from payintent.payments.model import Payment
from payintent.refunds.operations import RefundPayment
from payintent.webhooks import outbox_store
from payintent.webhooks.outbox_store import AttemptRecord
from tests.console.operator_browser import Visitor, sign_in_as, words
from tests.support.fakes import captured
from tests.support.rows import write_payments
from tests.support.world import Answer, Api, World

pytestmark = pytest.mark.full

_LISTED = re.compile(r'class="id" href="/payments/(pay_\w+)["?]')
_OLDER = re.compile(r'href="([^"]+)" rel="next">')


def format_payment_id(payment: Payment) -> str:
    return ids.format_id(ids.PAYMENT, payment.id)


def list_payment_ids(answer: Answer) -> list[str]:
    return _LISTED.findall(answer.body.decode())


def find_next_page(answer: Answer) -> str | None:
    match = _OLDER.search(answer.body.decode())
    return match[1].replace("&amp;", "&") if match else None


async def get_event_id(world: World, payment: Payment) -> UUID:
    [row] = await world.rows("SELECT id FROM event WHERE payment_id = $1", payment.id)
    return row["id"]


async def add_attempts(world: World, event_id: UUID, count: int, **changes: Any) -> None:
    """Store delivery attempts of an event, like the sender."""
    fields: dict[str, Any] = {
        "url": "https://shop.example.com/hooks",
        "outcome": "http_error",
        "status": 500,
        "detail": "HTTP 500",
        "answer": "<b>try later</b>",
        "duration_ms": 12,
        "delivered": False,
        "next_wait_s": 1.0,
    }
    records = [
        AttemptRecord(
            id=world.id_generator.new_id(),
            event_id=event_id,
            number=number,
            **(fields | changes),
        )
        for number in range(1, count + 1)
    ]
    await outbox_store.record(world.database, records)


async def create_cancelled_payment(world: World) -> Payment:
    payment = await world.create()
    async with world.database.transaction() as tx:
        await cancel_by_merchant(tx, payment, None)
    return payment


async def test_a_search_for_an_id_redirects_to_its_payment(operator: Api, world: World) -> None:
    await world.create(payer_uid="other")
    payment = await world.create(payer_email="Ann@Shop.example")
    session = (await world.select(payment)).session
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    for text in (format_payment_id(payment), payment.checkout_id, session.reference or ""):
        answer = await visitor.get(f"/payments?text={quote(text)}")
        assert (answer.status, answer.headers["Location"]) == (
            303,
            f"/payments/{format_payment_id(payment)}",
        )
    for text, label in (("buyer-1", "payer"), ("ann@shop.EXAMPLE", "email")):
        answer = await visitor.get(f"/payments?text={quote(text)}")
        assert list_payment_ids(answer) == [format_payment_id(payment)]
        assert label in words(answer)
    answer = await visitor.get("/payments?text=nothing")
    assert "No payments match" in words(answer)


async def test_filters_are_in_the_url_and_in_the_form(operator: Api, world: World) -> None:
    processing = await world.create(amount_text="20.00", amount=20)
    await world.select(processing)
    pending = await world.create()
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    for query, expected in (
        ("", [pending, processing]),
        ("status=PROCESSING", [processing]),
        ("amount_max=100", [processing]),
        ("amount_min=100&amount_max=", [pending]),
        ("kind=card", [processing]),
        ("kind=qr", []),
        ("provider=fake&currency=THB", [processing]),
        ("currency=USD", []),
        ("since=2020-01-01T00:00", [pending, processing]),
        ("until=2020-01-01T00:00", []),
    ):
        answer = await visitor.get(f"/payments?{query}")
        assert (answer.status, list_payment_ids(answer)) == (
            200,
            [format_payment_id(item) for item in expected],
        ), query
    answer = await visitor.get("/payments?kind=card&amount_max=100&until=2030-01-01T00:00")
    page = answer.body.decode()
    assert "<option selected>card</option>" in page
    assert 'name="amount_max" value="100"' in page
    assert 'value="2030-01-01T00:00"' in page
    for query in ("currency=XXX", "status=x", "amount_min=many", "merchant_id=999", "since=x"):
        answer = await visitor.get(f"/payments?{query}")
        assert answer.status in {400, 404}, query
        assert "Find a payment" in words(answer), query


async def test_pages_of_payments_have_no_gaps_or_duplicates(operator: Api, world: World) -> None:
    await write_payments(world, 130, at_once=7)
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    for query, count in (("", 130), ("?amount_min=1", 130), ("?amount_min=2", 0)):
        path: str | None = f"/payments{query}"
        payment_ids: list[str] = []
        while path is not None:
            answer = await visitor.get(path)
            payment_ids += list_payment_ids(answer)
            path = find_next_page(answer)
        assert len(payment_ids) == len(set(payment_ids)) == count, query


async def test_a_filter_without_an_index_is_searched_in_limited_batches(
    operator: Api, world: World
) -> None:
    await write_payments(world, 10_500, at_once=7, statuses=("PENDING",))
    ends = "SELECT id FROM payment WHERE merchant_id > 0 ORDER BY created_at {}, id {} OFFSET {}"
    for direction, offset in (("ASC", 0), ("DESC", 5_000)):
        query = ends.format(direction, direction, offset) + " LIMIT 1"
        await world.rows(f"UPDATE payment SET amount = 5 WHERE id = ({query})")
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    first = await visitor.get("/payments?amount_min=5")
    assert len(list_payment_ids(first)) == 1
    next_path = find_next_page(first)
    assert next_path is not None
    second = await visitor.get(next_path)
    assert len({*list_payment_ids(first), *list_payment_ids(second)}) == 2
    assert find_next_page(second) is None
    empty_page = await visitor.get("/payments?amount_min=6")
    assert "among the newest 10,000" in words(empty_page)


async def test_the_timeline_shows_delivery_attempts_and_their_responses(
    operator: Api, world: World
) -> None:
    payment = await create_cancelled_payment(world)
    await add_attempts(world, await get_event_id(world, payment), 1)
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    answer = await visitor.get(f"/payments/{format_payment_id(payment)}")
    text, page = words(answer), answer.body.decode()
    assert "&lt;b&gt;try later&lt;/b&gt;" in page
    assert "attempt 1: http_error, HTTP 500, 12 ms, https://shop.example.com/hooks" in text
    assert "payment.cancelled" in text
    assert "Request body" in text
    assert payment.checkout_id not in page
    events_page = await visitor.get(f"/payments/{format_payment_id(payment)}?of=events")
    assert "http_error" in words(events_page)
    assert "from payer buyer-1" not in words(events_page)


async def test_the_timeline_shows_operations_of_operators(operator: Api, world: World) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(159_000, reference="ch_9"))
    await world.perform(RefundPayment(payment_id=format_payment_id(payment), amount="10.00"))
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    full_text = words(await visitor.get(f"/payments/{format_payment_id(payment)}"))
    assert "payment.refund: it is arranged by test" in full_text
    assert "credited, account" in full_text
    operators_text = words(
        await visitor.get(f"/payments/{format_payment_id(payment)}?of=operators")
    )
    assert "payment.refund: it is arranged" in operators_text
    assert "credited, account" not in operators_text


async def test_a_timeline_with_many_attempts_is_paginated(operator: Api, world: World) -> None:
    payment = await create_cancelled_payment(world)
    event_id = await get_event_id(world, payment)
    await add_attempts(world, event_id, 1)
    await world.rows(
        """
        INSERT INTO attempt (id, event_id, number, outcome, detail, answer, duration_ms, started_at)
        SELECT gen_random_uuid(), $1, n, 'timeout', '', '', 1, clock() + n * interval '1 s'
        FROM generate_series(2, 10000) n
        """,
        event_id,
    )
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    first = await visitor.get(f"/payments/{format_payment_id(payment)}")
    assert "Page 1 of 101" in words(first)
    assert first.body.count(b'<li class="attempt">') < 100
    last = await visitor.get(f"/payments/{format_payment_id(payment)}?page=101")
    assert "attempt 10000: timeout" in words(last)
    assert "attempt 9800: " not in words(last)
    assert (await visitor.get(f"/payments/{format_payment_id(payment)}?page=0")).status == 400


@pytest.mark.parametrize("role", Role)
async def test_a_payment_offers_only_operations_that_the_role_allows(
    operator: Api, world: World, role: Role
) -> None:
    pending, ended = await world.create(), await create_cancelled_payment(world)
    paid = await world.create()
    session = (await world.select(paid)).session
    await world.report(paid, session.id, captured(159_000, reference="ch_9"))
    visitor = await sign_in_as(operator, role=role)
    for payment, form, lowest_role in (
        (pending, "payment/cancel", Role.SUPPORT),
        (ended, "webhooks/replay", Role.SUPPORT),
        (paid, "payment/refund", Role.FINANCE),
    ):
        page = (await visitor.get(f"/payments/{format_payment_id(payment)}")).body.decode()
        match = re.search(rf'href="(/operations/{form}\?[^"]+)"', page)
        assert (match is not None) == role.includes(lowest_role), form
        answer = await visitor.get(match[1] if match else f"/operations/{form}")
        assert answer.status == (200 if role.includes(lowest_role) else 403), form


async def test_unknown_ids_are_not_found(operator: Api) -> None:
    visitor = await sign_in_as(operator)
    for path in (f"/payments/pay_{22 * '0'}", "/payments/x", "/cases/x", "/refunds/x"):
        assert (await visitor.get(path)).status == 404
    for path in ("/merchants/999", "/merchants/x", "/webhooks/events/x"):
        assert (await visitor.get(path)).status == 404


@pytest.mark.parametrize(
    "path",
    ["/payments", "/cases", "/refunds", "/disputes", "/webhooks", "/webhooks/events", "/merchants"],
)
async def test_lists_require_a_session(operator: Api, path: str) -> None:
    answer = await Visitor(operator).get(path)
    assert answer.status == 303
    assert answer.headers["Location"].startswith("/sign-in")


async def test_an_unexpected_error_is_shown_as_a_page(
    operator: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("planted")

    visitor = await sign_in_as(operator)
    monkeypatch.setattr("payintent.console.payments.read_query", fail)
    page = await visitor.get("/payments")
    assert (page.status, page.headers["Content-Type"]) == (500, "text/html; charset=utf-8")
    assert "see the log for details" in words(page)
    assert b"planted" not in page.body


async def test_a_payment_explains_which_methods_are_offered(operator: Api, world: World) -> None:
    payment = await world.create()
    await world.rows("UPDATE payment_method SET enabled = false WHERE id = $1", world.transfer)
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    path = f"/payments/{format_payment_id(payment)}"
    page = words(await visitor.get(path))
    assert re.search(r"Payment methods .* All countries", page)
    assert re.search(r"Card fake THB offered 1,590.00 THB In TH", page)
    assert "Transfer fake – not offered – The method is disabled" in page
    page = words(await visitor.get(f"{path}?country=JP&of=payment"))
    assert "Card fake THB not offered – THB is not used in JP" in page
    assert (await visitor.get(f"{path}?country=ZZ")).status == 422
    await world.select(payment, country="TH")
    assert "TH, as selected" in words(await visitor.get(path))
