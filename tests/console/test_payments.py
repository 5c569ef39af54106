"""Payments in the console are found by any of their data, listed in pages, and explained."""

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
from tests.console.visitor import Visitor, signed_in, words
from tests.support.fakes import captured
from tests.support.rows import write_payments
from tests.support.world import Answer, Api, World

pytestmark = pytest.mark.full

_LISTED = re.compile(r'class="id" href="/payments/(pay_\w+)["?]')
_OLDER = re.compile(r'href="([^"]+)" rel="next">')


def name(payment: Payment) -> str:
    return ids.format_id(ids.PAYMENT, payment.id)


def listed(answer: Answer) -> list[str]:
    return _LISTED.findall(answer.body.decode())


def older(answer: Answer) -> str | None:
    found = _OLDER.search(answer.body.decode())
    return found[1].replace("&amp;", "&") if found else None


async def event_of(world: World, payment: Payment) -> UUID:
    [row] = await world.rows("SELECT id FROM event WHERE payment_id = $1", payment.id)
    return row["id"]


async def attempts(world: World, event_id: UUID, count: int, **changed: Any) -> None:
    """Store attempts to deliver an event, like the sender."""
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
    made = [
        AttemptRecord(
            id=world.id_generator.new_id(),
            event_id=event_id,
            number=number,
            **(fields | changed),
        )
        for number in range(1, count + 1)
    ]
    await outbox_store.record(world.database, made)


async def cancelled(world: World) -> Payment:
    payment = await world.create()
    async with world.database.transaction() as tx:
        await cancel_by_merchant(tx, payment, None)
    return payment


async def test_a_search_for_an_id_redirects_to_its_payment(operator: Api, world: World) -> None:
    await world.create(payer_uid="other")
    payment = await world.create(payer_email="Ann@Shop.example")
    session = (await world.select(payment)).session
    visitor = await signed_in(operator, role=Role.VIEWER)
    for text in (name(payment), payment.checkout_id, session.reference or ""):
        answer = await visitor.get(f"/payments?text={quote(text)}")
        assert (answer.status, answer.headers["Location"]) == (303, f"/payments/{name(payment)}")
    for text, how in (("buyer-1", "payer"), ("ann@shop.EXAMPLE", "email")):
        answer = await visitor.get(f"/payments?text={quote(text)}")
        assert listed(answer) == [name(payment)]
        assert how in words(answer)
    answer = await visitor.get("/payments?text=nothing")
    assert "No payments match" in words(answer)


async def test_filters_are_in_the_url_and_in_the_form(operator: Api, world: World) -> None:
    paying = await world.create(amount_text="20.00", amount=20)
    await world.select(paying)
    other = await world.create()
    visitor = await signed_in(operator, role=Role.VIEWER)
    for query, found in (
        ("", [other, paying]),
        ("status=PROCESSING", [paying]),
        ("amount_max=100", [paying]),
        ("amount_min=100&amount_max=", [other]),
        ("kind=card", [paying]),
        ("kind=qr", []),
        ("provider=fake&currency=THB", [paying]),
        ("currency=USD", []),
        ("since=2020-01-01T00:00", [other, paying]),
        ("until=2020-01-01T00:00", []),
    ):
        answer = await visitor.get(f"/payments?{query}")
        assert (answer.status, listed(answer)) == (200, [name(item) for item in found]), query
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
    visitor = await signed_in(operator, role=Role.VIEWER)
    for query, count in (("", 130), ("?amount_min=1", 130), ("?amount_min=2", 0)):
        path: str | None = f"/payments{query}"
        seen: list[str] = []
        while path is not None:
            answer = await visitor.get(path)
            seen += listed(answer)
            path = older(answer)
        assert len(seen) == len(set(seen)) == count, query


async def test_a_filter_without_an_index_is_searched_in_limited_batches(
    operator: Api, world: World
) -> None:
    await write_payments(world, 10_500, at_once=7, statuses=("PENDING",))
    ends = "SELECT id FROM payment WHERE merchant_id > 0 ORDER BY created_at {}, id {} OFFSET {}"
    for direction, skipped in (("ASC", 0), ("DESC", 5_000)):
        query = ends.format(direction, direction, skipped) + " LIMIT 1"
        await world.rows(f"UPDATE payment SET amount = 5 WHERE id = ({query})")
    visitor = await signed_in(operator, role=Role.VIEWER)
    first = await visitor.get("/payments?amount_min=5")
    assert len(listed(first)) == 1
    further = older(first)
    assert further is not None
    second = await visitor.get(further)
    assert len({*listed(first), *listed(second)}) == 2
    assert older(second) is None
    none = await visitor.get("/payments?amount_min=6")
    assert "among the newest 10,000" in words(none)


async def test_the_timeline_shows_delivery_attempts_and_their_responses(
    operator: Api, world: World
) -> None:
    payment = await cancelled(world)
    await attempts(world, await event_of(world, payment), 1)
    visitor = await signed_in(operator, role=Role.VIEWER)
    answer = await visitor.get(f"/payments/{name(payment)}")
    said, page = words(answer), answer.body.decode()
    assert "&lt;b&gt;try later&lt;/b&gt;" in page
    assert "attempt 1: http_error, HTTP 500, 12 ms, https://shop.example.com/hooks" in said
    assert "payment.cancelled" in said
    assert "Request body" in said
    assert payment.checkout_id not in page
    of_events = await visitor.get(f"/payments/{name(payment)}?of=events")
    assert "http_error" in words(of_events)
    assert "from payer buyer-1" not in words(of_events)


async def test_the_timeline_shows_operations_of_operators(operator: Api, world: World) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(159_000, reference="ch_9"))
    await world.perform(RefundPayment(payment_id=name(payment), amount="10.00"))
    visitor = await signed_in(operator, role=Role.VIEWER)
    whole = words(await visitor.get(f"/payments/{name(payment)}"))
    assert "payment.refund: it is arranged by test" in whole
    assert "credited, account" in whole
    theirs = words(await visitor.get(f"/payments/{name(payment)}?of=operators"))
    assert "payment.refund: it is arranged" in theirs
    assert "credited, account" not in theirs


async def test_a_timeline_with_many_attempts_is_paginated(operator: Api, world: World) -> None:
    payment = await cancelled(world)
    event_id = await event_of(world, payment)
    await attempts(world, event_id, 1)
    await world.rows(
        """
        INSERT INTO attempt (id, event_id, number, outcome, detail, answer, duration_ms, started_at)
        SELECT gen_random_uuid(), $1, n, 'timeout', '', '', 1, clock() + n * interval '1 s'
        FROM generate_series(2, 10000) n
        """,
        event_id,
    )
    visitor = await signed_in(operator, role=Role.VIEWER)
    first = await visitor.get(f"/payments/{name(payment)}")
    assert "Page 1 of 101" in words(first)
    assert first.body.count(b'<li class="attempt">') < 100
    last = await visitor.get(f"/payments/{name(payment)}?page=101")
    assert "attempt 10000: timeout" in words(last)
    assert "attempt 9800: " not in words(last)
    assert (await visitor.get(f"/payments/{name(payment)}?page=0")).status == 400


@pytest.mark.parametrize("role", Role)
async def test_a_payment_offers_only_operations_that_the_role_allows(
    operator: Api, world: World, role: Role
) -> None:
    pending, ended = await world.create(), await cancelled(world)
    paid = await world.create()
    session = (await world.select(paid)).session
    await world.report(paid, session.id, captured(159_000, reference="ch_9"))
    visitor = await signed_in(operator, role=role)
    for payment, form, least in (
        (pending, "payment/cancel", Role.SUPPORT),
        (ended, "webhooks/replay", Role.SUPPORT),
        (paid, "payment/refund", Role.FINANCE),
    ):
        page = (await visitor.get(f"/payments/{name(payment)}")).body.decode()
        found = re.search(rf'href="(/operations/{form}\?[^"]+)"', page)
        assert (found is not None) == role.includes(least), form
        answer = await visitor.get(found[1] if found else f"/operations/{form}")
        assert answer.status == (200 if role.includes(least) else 403), form


async def test_unknown_ids_are_not_found(operator: Api) -> None:
    visitor = await signed_in(operator)
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

    visitor = await signed_in(operator)
    monkeypatch.setattr("payintent.console.payments.read_query", fail)
    page = await visitor.get("/payments")
    assert (page.status, page.headers["Content-Type"]) == (500, "text/html; charset=utf-8")
    assert "see the log for details" in words(page)
    assert b"planted" not in page.body


async def test_a_payment_explains_which_methods_are_offered(operator: Api, world: World) -> None:
    payment = await world.create()
    await world.rows("UPDATE payment_method SET enabled = false WHERE id = $1", world.transfer)
    visitor = await signed_in(operator, role=Role.VIEWER)
    path = f"/payments/{name(payment)}"
    page = words(await visitor.get(path))
    assert re.search(r"Payment methods .* All countries", page)
    assert re.search(r"Card fake THB offered 1,590.00 THB In TH", page)
    assert "Transfer fake – not offered – The method is disabled" in page
    page = words(await visitor.get(f"{path}?country=JP&of=payment"))
    assert "Card fake THB not offered – THB is not used in JP" in page
    assert (await visitor.get(f"{path}?country=ZZ")).status == 422
    await world.select(payment, country="TH")
    assert "TH, as selected" in words(await visitor.get(path))
