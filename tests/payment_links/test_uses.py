"""A link never has more open or paid payments than uses, even with concurrent requests."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from payintent.core.errors import ErrorCode, RefusedError
from payintent.fraud.model import FraudDeniedError, FraudRuleKind
from payintent.fraud.operations import AddFraudRule
from payintent.payment_links import store as link_store
from payintent.payment_links.model import LinkClosedError, LinkState, PaymentLink
from payintent.payment_links.open_payment import USED_UP_CACHE_S
from payintent.payments.cancel import cancel_by_buyer
from payintent.payments.expire import expire_pending
from payintent.payments.model import Payment
from payintent.runtime.caches import TtlMap
from payintent.runtime.settings import Settings
from tests.payment_links.link_setup import make_link, make_link_payments, order
from tests.support.fakes import captured, declined
from tests.support.race_staging import hold_transaction, wait_until_blocked
from tests.support.world import World, patient

_ENDED_UNPAID = {"FAILED", "EXPIRED", "CANCELLED"}


@pytest.fixture(name="settings")
def patient_settings(settings: Settings) -> Settings:
    return patient(settings)


async def pay(world: World, payment: Payment) -> None:
    selected = await world.select(payment)
    await world.report(payment, selected.session.id, captured(159000))


async def fail(world: World, payment: Payment) -> None:
    selected = await world.select(payment)
    await world.report(payment, selected.session.id, declined())


async def cancel(world: World, payment: Payment) -> None:
    async with world.database.transaction() as tx:
        await cancel_by_buyer(tx, payment.id)


async def expire(world: World, payment: Payment) -> None:
    await world.rows("UPDATE payment SET expires_at = created_at WHERE id = $1", payment.id)
    await expire_pending(world.database, 100)


async def holders(world: World, link: PaymentLink) -> list[str]:
    rows = await world.rows(
        """
        SELECT p.status FROM payment p
        WHERE p.metadata->>'payment_link_id' IS NOT NULL AND p.merchant_id = $1
        """,
        link.merchant_id,
    )
    return [row["status"] for row in rows if row["status"] not in _ENDED_UNPAID]


async def uses(world: World, link: PaymentLink) -> int:
    stored = await link_store.get(world.database, link.id)
    assert stored is not None
    return stored.uses


async def test_a_payment_has_the_terms_of_its_link(world: World) -> None:
    link = await make_link(world, description="Saturday", order_id="W-7")
    payment = await make_link_payments(world).open_payment(order(link))
    assert (payment.amount_text, payment.currency) == ("1590.00", "THB")
    assert payment.payer_uid.startswith("link_")
    [row] = await world.rows("SELECT metadata::text FROM payment WHERE id = $1", payment.id)
    assert '"order_id":"W-7"' in row["metadata"]
    assert '"product":{"name":"Workshop","detail":"Saturday"}' in row["metadata"]
    assert await uses(world, link) == 1


async def test_a_payment_has_the_link_urls_unless_their_origin_was_removed(world: World) -> None:
    await world.rows("UPDATE merchant SET allowed_origins = '{https://shop.test,https://a.test}'")
    urls = {"return_url": "https://shop.test/thanks", "cancel_url": "https://a.test/cart"}
    link, links = await make_link(world, **urls), make_link_payments(world)
    payment = await links.open_payment(order(link))
    assert (payment.return_url, payment.cancel_url) == tuple(urls.values())
    await world.rows("UPDATE merchant SET allowed_origins = '{https://a.test}'")
    payment = await links.open_payment(order(link))
    assert (payment.return_url, payment.cancel_url) == (None, urls["cancel_url"])


@pytest.mark.parametrize("count", [1, 7])
async def test_a_hundred_concurrent_buyers_create_as_many_payments_as_the_link_allows(
    world: World, count: int
) -> None:
    link, links = await make_link(world, max_uses=count), make_link_payments(world)
    results = await asyncio.gather(
        *(links.open_payment(order(link)) for _ in range(100)), return_exceptions=True
    )
    outcomes = Counter(
        result.state if isinstance(result, LinkClosedError) else type(result).__name__
        for result in results
    )
    assert outcomes == {"Payment": count, LinkState.USED_UP: 100 - count}
    assert await holders(world, link) == ["PENDING"] * count
    assert await links.find_state(link) is LinkState.USED_UP


async def test_a_second_buyer_waits_for_the_last_use_and_is_refused(world: World) -> None:
    link, links = await make_link(world, max_uses=1), make_link_payments(world)
    async with hold_transaction(world, lambda tx: link_store.lock(tx, link.id)) as first:
        tasks = [asyncio.create_task(links.open_payment(order(link))) for _ in range(2)]
        await wait_until_blocked(world, *tasks)
        await first.commit()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["LinkClosedError", "Payment"]
    assert len(await world.rows("SELECT FROM payment")) == 1


@pytest.mark.parametrize("end", [fail, cancel, expire])
async def test_a_payment_that_ended_unpaid_releases_its_use(world: World, end: object) -> None:
    link, links = await make_link(world, max_uses=1), make_link_payments(world)
    payment = await links.open_payment(order(link))
    with pytest.raises(LinkClosedError):
        await links.open_payment(order(link))
    await end(world, payment)  # type: ignore[operator]
    assert (await uses(world, link), await links.find_state(link)) == (0, LinkState.OPEN)
    second = await links.open_payment(order(link))
    assert await world.status(second) == "PENDING"
    with pytest.raises(LinkClosedError):
        await links.open_payment(order(link))


async def test_a_paid_and_a_refunded_payment_keep_their_use(world: World) -> None:
    link, links = await make_link(world, max_uses=1), make_link_payments(world)
    payment = await links.open_payment(order(link))
    await pay(world, payment)
    assert await links.find_state(link) is LinkState.USED_UP
    await world.rows(
        "UPDATE payment SET status = 'REFUNDED', refunded_amount = amount WHERE id = $1", payment.id
    )
    with pytest.raises(LinkClosedError):
        await links.open_payment(order(link))


async def test_a_form_submitted_twice_creates_one_payment_even_with_the_last_use(
    world: World,
) -> None:
    link, links = await make_link(world, max_uses=1), make_link_payments(world)
    payments = await asyncio.gather(
        *(links.open_payment(order(link, form="same")) for _ in range(5))
    )
    assert len({payment.id for payment in payments}) == 1


async def test_a_browser_continues_an_open_payment_but_not_an_ended_payment(
    world: World,
) -> None:
    link, links = await make_link(world), make_link_payments(world)
    first = await links.open_payment(order(link, form="same"))
    assert await links.open_payment(order(link, previous=first)) == first
    await cancel(world, first)
    ended = (await world.read(first)).payment
    second = await links.open_payment(order(link, previous=ended, form="same"))
    assert second.id != first.id
    assert second.payer_uid == first.payer_uid


async def test_a_different_amount_replaces_a_pending_payment(world: World) -> None:
    link = await make_link(world, amount=None, max_uses=1, amount_min="10", amount_max="90")
    links = make_link_payments(world)
    first = await links.open_payment(order(link, "20"))
    second = await links.open_payment(order(link, "30", previous=first))
    assert await world.status(first) == "CANCELLED"
    assert (second.amount_text, await uses(world, link)) == ("30", 1)


async def test_a_form_with_a_new_amount_submitted_twice_creates_one_payment(
    world: World,
) -> None:
    link, links = await make_link(world, amount=None), make_link_payments(world)
    first = await links.open_payment(order(link, "20"))
    payments = await asyncio.gather(
        *(links.open_payment(order(link, "30", first, form="same")) for _ in range(4))
    )
    assert len({payment.id for payment in payments}) == 1
    assert await world.status(first) == "CANCELLED"


async def test_a_different_amount_does_not_replace_a_payment_with_a_selected_method(
    world: World,
) -> None:
    link, links = await make_link(world, amount=None), make_link_payments(world)
    first = await links.open_payment(order(link, "20"))
    await world.select(first)
    assert await links.open_payment(order(link, "30", previous=first)) == first
    assert await world.status(first) == "PROCESSING"


async def test_a_closed_link_keeps_the_open_payment_despite_a_different_amount(
    world: World,
) -> None:
    link, links = await make_link(world, amount=None), make_link_payments(world)
    first = await links.open_payment(order(link, "20"))
    async with world.database.transaction() as tx:
        await link_store.deactivate(tx, link.id, "test")
    inactive = await link_store.find_by_token(world.database, link.token)
    assert inactive is not None
    with pytest.raises(LinkClosedError):
        await links.open_payment(order(inactive, "30", previous=first))
    assert await world.status(first) == "PENDING"


@pytest.mark.parametrize("amount", [None, "", "9.99", "90.01", "1e1", "-20", "20.001", "٢٠"])
async def test_an_amount_outside_the_links_limits_is_refused(
    world: World, amount: str | None
) -> None:
    link = await make_link(world, amount=None, amount_min="10", amount_max="90")
    with pytest.raises(RefusedError) as refused:
        await make_link_payments(world).open_payment(order(link, amount))
    assert refused.value.code is ErrorCode.INVALID_AMOUNT
    assert await world.rows("SELECT FROM payment") == []


async def test_an_entered_amount_does_not_change_a_fixed_amount(world: World) -> None:
    link = await make_link(world)
    payment = await make_link_payments(world).open_payment(order(link, "1"))
    assert payment.amount_text == "1590.00"


async def test_a_link_accepts_payments_until_just_before_its_deadline(world: World) -> None:
    deadline = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    link, links = await make_link(world, expires_at=deadline.isoformat()), make_link_payments(world)
    await world.set_clock(f"'{deadline - timedelta(milliseconds=1)}'::timestamptz")
    await links.open_payment(order(link))
    await world.set_clock(f"'{deadline}'::timestamptz")
    assert await links.find_state(link) is LinkState.EXPIRED
    with pytest.raises(LinkClosedError) as refused:
        await links.open_payment(order(link))
    assert refused.value.state is LinkState.EXPIRED
    assert len(await world.rows("SELECT FROM payment")) == 1


@pytest.mark.parametrize("take", ["take_new_slot", "take_released_slot"])
async def test_a_link_that_expires_while_a_payment_is_created_refuses_it(
    world: World, monkeypatch: pytest.MonkeyPatch, take: str
) -> None:
    deadline = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    link = await make_link(world, max_uses=1, expires_at=deadline.isoformat())
    links = make_link_payments(world)
    if take == "take_released_slot":
        await cancel(world, await links.open_payment(order(link)))
    take_slot = getattr(link_store, take)

    async def take_late(*arguments: object) -> bool:
        await world.set_clock(f"'{deadline}'::timestamptz")
        return await take_slot(*arguments)

    monkeypatch.setattr(link_store, take, take_late)
    with pytest.raises(LinkClosedError) as refused:
        await links.open_payment(order(link))
    assert refused.value.state is LinkState.EXPIRED
    assert "PENDING" not in [
        row["status"] for row in await world.rows("SELECT status FROM payment")
    ]


async def test_a_deactivated_link_refuses_a_payment_that_waited_for_it(world: World) -> None:
    link, links = await make_link(world), make_link_payments(world)
    async with hold_transaction(
        world, lambda tx: link_store.deactivate(tx, link.id, "test")
    ) as first:
        task = asyncio.create_task(links.open_payment(order(link)))
        await wait_until_blocked(world, task)
        await first.commit()
        with pytest.raises(LinkClosedError) as refused:
            await task
    assert refused.value.state is LinkState.INACTIVE


async def test_a_link_of_a_suspended_merchant_creates_no_payments(world: World) -> None:
    link = await make_link(world)
    await world.rows("UPDATE merchant SET activation = 'SUSPENDED'")
    with pytest.raises(RefusedError) as refused:
        await make_link_payments(world).open_payment(order(link))
    assert refused.value.code is ErrorCode.UNPROCESSABLE


async def test_a_denied_buyer_does_not_consume_a_use(world: World) -> None:
    link, links = await make_link(world, max_uses=1), make_link_payments(world)
    first = await links.open_payment(order(link))
    await cancel(world, first)
    await world.perform(AddFraudRule(kind=FraudRuleKind.PAYER, value=first.payer_uid))
    ended = (await world.read(first)).payment
    with pytest.raises(FraudDeniedError):
        await links.open_payment(order(link, previous=ended))
    assert await links.find_state(link) is LinkState.OPEN


async def test_visitors_cannot_exhaust_the_merchants_create_limit(world: World) -> None:
    await world.rows(
        "INSERT INTO rate_limit (merchant_id, class, per_s, burst) VALUES ($1, 'create', 10, 10)",
        world.merchant_id,
    )
    link, links = await make_link(world), make_link_payments(world)
    results = await asyncio.gather(
        *(links.open_payment(order(link)) for _ in range(30)), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, RefusedError)]
    assert {result.code for result in refused} == {ErrorCode.RATE_LIMITED}
    assert len(refused) <= 20
    rows = await world.rows("SELECT class FROM rate_state")
    assert [row["class"] for row in rows] == ["link"]


async def _insert(world: World, link: PaymentLink, slot: int, payment: Payment) -> None:
    await world.rows(
        """
        INSERT INTO payment_link_use (link_id, slot, slots, payment_id)
        SELECT id, $2, slots, $3 FROM payment_link WHERE id = $1
        """,
        link.id,
        slot,
        payment.id,
    )


async def _refuse(world: World, query: str, constraint: str, *args: object) -> None:
    connection = await world.open_connection()
    try:
        with pytest.raises(asyncpg.IntegrityConstraintViolationError) as refused:
            await connection.execute(query, *args)
    finally:
        await connection.close()
    assert refused.value.constraint_name == constraint


_TAKE = """
    INSERT INTO payment_link_use (link_id, slot, slots, payment_id)
    SELECT id, $2, coalesce($4, slots), $3 FROM payment_link WHERE id = $1
"""


async def test_the_database_refuses_a_slot_beyond_the_uses(world: World) -> None:
    link, payment = await make_link(world, max_uses=2), await world.create()
    await _refuse(world, _TAKE, "payment_link_use_slot", link.id, 3, payment.id, None)
    await _refuse(world, _TAKE, "payment_link_use_link", link.id, 3, payment.id, 3)
    await _insert(world, link, 2, payment)
    other = await world.create()
    await _refuse(world, _TAKE, "payment_link_use_pkey", link.id, 2, other.id, None)
    await _refuse(world, _TAKE, "payment_link_use_payment", link.id, 1, payment.id, None)


async def test_the_database_refuses_to_replace_an_open_or_paid_payment(world: World) -> None:
    link, payment, other = await make_link(world), await world.create(), await world.create()
    await _insert(world, link, 1, payment)
    replace = "UPDATE payment_link_use SET payment_id = $2 WHERE link_id = $1"
    await _refuse(world, replace, "payment_link_use_allowed", link.id, other.id)
    await pay(world, payment)
    await _refuse(world, replace, "payment_link_use_allowed", link.id, other.id)


async def test_the_database_refuses_payments_that_do_not_match_the_link(world: World) -> None:
    other = await world.add_merchant()
    link, payment = await make_link(world), await world.create()
    for change in (
        f"UPDATE payment SET merchant_id = {other.merchant.id}",
        "UPDATE payment SET merchant_id = 1, currency = 'USD'",
        "UPDATE payment SET currency = 'THB', amount = 1",
    ):
        await world.rows(change.replace("= 1,", f"= {world.merchant_id},"))
        await _refuse(world, _TAKE, "payment_link_use_allowed", link.id, 1, payment.id, None)
    ranged = await make_link(world, amount=None, amount_min="2", amount_max="3")
    for amount in ("1", "4"):
        await world.rows(f"UPDATE payment SET amount = {amount}")
        await _refuse(world, _TAKE, "payment_link_use_allowed", ranged.id, 1, payment.id, None)


async def test_the_database_refuses_uses_of_closed_links(world: World) -> None:
    inactive, payment = await make_link(world), await world.create()
    async with world.database.transaction() as tx:
        await link_store.deactivate(tx, inactive.id, "test")
    await _refuse(world, _TAKE, "payment_link_use_allowed", inactive.id, 1, payment.id, None)
    soon = (datetime.now(UTC) + timedelta(seconds=9)).isoformat()
    expiring = await make_link(world, expires_at=soon)
    await world.move_clock(10)
    await _refuse(world, _TAKE, "payment_link_use_allowed", expiring.id, 1, payment.id, None)


@pytest.mark.parametrize(
    "change",
    [
        "title = 'Other'",
        "amount = 1",
        "max_uses = 9",
        "expires_at = clock() + interval '1 day'",
        f"token = 'lnk_{'0' * 22}'",
        "return_url = 'https://evil.test'",
    ],
)
async def test_the_database_refuses_changed_terms(world: World, change: str) -> None:
    link = await make_link(world)
    update = f"UPDATE payment_link SET {change} WHERE id = $1"
    await _refuse(world, update, "payment_link_frozen", link.id)


async def test_the_database_refuses_to_activate_a_link_again(world: World) -> None:
    link = await make_link(world)
    async with world.database.transaction() as tx:
        await link_store.deactivate(tx, link.id, "test")
    update = "UPDATE payment_link SET deactivated_at = NULL, deactivated_by = NULL WHERE id = $1"
    await _refuse(world, update, "payment_link_frozen", link.id)


_STEPS = st.one_of(
    st.tuples(st.just("open"), st.integers(1, 4)),
    st.tuples(st.sampled_from(["pay", "fail", "cancel", "expire"]), st.integers(0, 9)),
)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(max_uses=st.integers(1, 3), steps=st.lists(_STEPS, min_size=1, max_size=10))
async def test_a_link_never_has_more_payments_than_uses(
    world: World, max_uses: int, steps: list[tuple[str, int]]
) -> None:
    await world.rows("UPDATE payment SET metadata = '{}'")  # from earlier histories
    link, links = await make_link(world, max_uses=max_uses), make_link_payments(world)
    opened: list[Payment] = []
    for name, number in steps:
        before = len(await holders(world, link))
        if name == "open":
            orders = (links.open_payment(order(link, form=uuid4().hex)) for _ in range(number))
            results = await asyncio.gather(*orders, return_exceptions=True)
            payments = [result for result in results if isinstance(result, Payment)]
            assert len(payments) == min(number, max_uses - before)
            opened += payments
        elif opened:
            payment = opened[number % len(opened)]
            if await world.status(payment) == "PENDING":
                ends = {"pay": pay, "fail": fail, "cancel": cancel, "expire": expire}
                await ends[name](world, payment)
        held_count = len(await holders(world, link))
        assert held_count == await uses(world, link) <= max_uses
        state = await make_link_payments(world).find_state(link)
        assert (state is LinkState.USED_UP) == (held_count == max_uses)


async def test_a_used_up_link_is_checked_at_most_once_a_second(world: World) -> None:
    now = 0.0
    link = await make_link(world, max_uses=1)
    cache: TtlMap[UUID, bool] = TtlMap(USED_UP_CACHE_S, 10, lambda: now)
    links = replace(make_link_payments(world), used_up_links=cache)
    payment = await links.open_payment(order(link))
    assert await links.find_state(link) is LinkState.USED_UP
    await fail(world, payment)
    assert await links.find_state(link) is LinkState.USED_UP
    now = USED_UP_CACHE_S
    assert await links.find_state(link) is LinkState.OPEN
