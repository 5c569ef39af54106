"""Webhooks in the console: the health of endpoints, and resends of events."""

from payintent.core.access import Role
from payintent.merchants.operations import SetCallbackUrl
from payintent.webhooks import endpoints_store as endpoint_store
from payintent.webhooks.model import CircuitReport
from payintent.webhooks.operations import ListEndpoints
from tests.console.operator_browser import sign_in_as, words
from tests.console.test_payments import (
    add_attempts,
    create_cancelled_payment,
    format_payment_id,
    get_event_id,
)
from tests.support.world import Api, World

_HOOKS = "https://93.184.216.34/hooks"


async def test_endpoints_show_the_results_of_their_latest_attempts(
    operator: Api, world: World
) -> None:
    await world.perform(SetCallbackUrl(merchant_id=world.merchant_id, callback_url=_HOOKS))
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    assert "no attempts" in words(await visitor.get("/webhooks"))
    first = await get_event_id(world, await create_cancelled_payment(world))
    await add_attempts(world, first, 1, next_wait_s=None)
    failing_text = words(await visitor.get("/webhooks"))
    assert "failing" in failing_text
    assert "0 of 1" in failing_text
    assert "HTTP 500" in failing_text
    assert "try later" in failing_text
    second = await get_event_id(world, await create_cancelled_payment(world))
    delivered = {"outcome": "delivered", "status": 200, "delivered": True, "duration_ms": 40}
    await add_attempts(world, second, 1, **delivered)
    healthy_text = words(await visitor.get(f"/webhooks?merchant_id={world.merchant_id}"))
    assert "healthy" in healthy_text
    assert "1 of 2" in healthy_text
    assert "40 ms" in healthy_text
    await world.move_clock(3600)
    await create_cancelled_payment(world)
    await world.move_clock(7200)
    assert "late" in words(await visitor.get("/webhooks"))


async def test_an_endpoint_shows_its_circuit_latency_and_latest_responses(
    operator: Api, world: World
) -> None:
    await world.perform(SetCallbackUrl(merchant_id=world.merchant_id, callback_url=_HOOKS))
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    assert "no attempts closed" in words(await visitor.get("/webhooks"))
    event_id = await get_event_id(world, await create_cancelled_payment(world))
    for number in range(1, 8):
        fields = {"duration_ms": 10 * number, "answer": f"answer {number}"}
        await add_attempts(world, event_id, 1, next_wait_s=None, **fields)
    database = world.database
    report = CircuitReport(merchant_id=world.merchant_id, open_s=30, detail="timeout: no answer")
    await endpoint_store.open_circuit(database, report)
    [endpoint] = await world.perform(ListEndpoints())
    assert (endpoint.median_ms, endpoint.p95_ms, endpoint.slowest_ms) == (50, 70, 70)
    assert [answer.answer for answer in endpoint.answers] == [
        f"answer {n}" for n in (7, 6, 5, 4, 3)
    ]
    text = words(await visitor.get("/webhooks"))
    assert "failing open Why" in text
    assert "Next retry" in text
    assert "timeout: no answer" in text
    assert "answer 7 " in text
    assert "answer 3 " in text
    await world.move_clock(31)
    await endpoint_store.open_circuit(database, report)
    assert "opened 2 times" in words(await visitor.get("/webhooks"))
    await world.move_clock(62)
    assert "half-open Why" in words(await visitor.get("/webhooks"))
    assert await endpoint_store.delete_old(database, 10) == 0
    await world.move_clock(3662)
    assert await endpoint_store.delete_old(database, 10) == 1
    assert "closed" in words(await visitor.get("/webhooks"))


async def test_events_can_be_filtered_by_state_merchant_and_time(
    operator: Api, world: World
) -> None:
    payment = await create_cancelled_payment(world)
    event_id = await get_event_id(world, payment)
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    for query, is_listed in (
        ("", True),
        ("state=skipped", True),
        ("state=dead", False),
        ("state=pending", False),
        ("state=delivered", False),
        (f"merchant_id={world.merchant_id}&state=skipped", True),
        ("since=2020-01-01T00:00&state=skipped", True),
        ("until=2020-01-01T00:00", False),
    ):
        page = (await visitor.get(f"/webhooks/events?{query}")).body.decode()
        assert (str(event_id) in page) == is_listed, query
    assert format_payment_id(payment) in words(await visitor.get(f"/webhooks/events/{event_id}"))


async def test_a_bulk_resend_shows_the_number_of_events_before_it_runs(
    operator: Api, world: World
) -> None:
    for _ in range(3):
        await create_cancelled_payment(world)
    visitor = await sign_in_as(operator, role=Role.SUPPORT)
    events = await visitor.get(
        f"/webhooks/events?merchant_id={world.merchant_id}&since=2020-01-01T00:00"
    )
    form = f"/operations/webhooks/replay-missed?merchant_id={world.merchant_id}&amp;since=2020"
    assert form in events.body.decode()
    fields = {"merchant_id": str(world.merchant_id), "why": "they were down"}
    path = "/operations/webhooks/replay-missed"
    dry_run = await visitor.post(path, **fields, step="dry-run")
    assert "Events 3" in words(dry_run)
    confirmation = await visitor.post(path, **fields)
    assert "3 events will be resent" in words(confirmation)
    assert "Events 3" in words(await visitor.post(path, **fields, step="confirmed"))
    states = await world.rows("SELECT DISTINCT state FROM delivery")
    assert [row["state"] for row in states] == ["pending"]


async def test_a_viewer_cannot_resend_events(operator: Api, world: World) -> None:
    event_id = await get_event_id(world, await create_cancelled_payment(world))
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    for path in ("/webhooks", "/webhooks/events", f"/webhooks/events/{event_id}"):
        assert b"/operations/webhooks/replay" not in (await visitor.get(path)).body
    answer = await visitor.post(
        "/operations/webhooks/replay", event_id=str(event_id), why="ticket 9"
    )
    assert answer.status == 403
