"""The navigation shows the number of open items in each queue."""

import re

from payintent.console.queue_counts import QueueCounts, format_queue_count
from payintent.core.access import Role
from payintent.overview.store import QUEUE_COUNT_MAX, count_queues
from tests.console.operator_browser import Visitor, sign_in_as
from tests.support.operation_examples import add_refunds_for_approval
from tests.support.timeouts import wait_until
from tests.support.world import Api, World

_COUNT = re.compile(r'href="/(\w+)"[^>]* aria-label="\w+ (\S+) ([^"]+)">')
_MANY_CASES = """
    INSERT INTO money_case (id, kind, merchant_id, subject, opened_at)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'RECONCILIATION', $1, 'line ' || n, clock()
    FROM generate_series(1, $2) n
"""


async def read_counts(visitor: Visitor, path: str = "/audit") -> dict[str, tuple[str, str]]:
    page = (await visitor.get(path)).body.decode()
    return {name: (count, unit) for name, count, unit in _COUNT.findall(page)}


async def test_every_queue_is_counted_and_empty_queues_show_no_count(
    operator: Api, world: World
) -> None:
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    assert await read_counts(visitor) == {}
    await add_refunds_for_approval(world)
    await world.rows(_MANY_CASES, world.merchant_id, 3)
    [refunds] = await world.rows("SELECT count(*) AS many FROM refund WHERE step = 'approval'")
    [cases] = await world.rows("SELECT count(*) AS many FROM money_case WHERE status = 'OPEN'")
    figures = await QueueCounts(world.database).get()
    assert figures == {
        "Cases": cases["many"],
        "Refunds": refunds["many"],
        "Disputes": 0,
        "Webhooks": 0,
        "Approvals": refunds["many"],
    }

    async def is_shown() -> bool:
        page_counts = await read_counts(visitor)
        return {name: int(count) for name, (count, _) in page_counts.items()} == {
            name.lower(): count for name, count in figures.items() if count
        }

    await wait_until(is_shown, "the counts on the page")  # the console counts at most once a second


async def test_the_count_of_a_queue_is_limited(world: World) -> None:
    await world.rows(_MANY_CASES, world.merchant_id, QUEUE_COUNT_MAX + 5)
    figures = await count_queues(world.database)
    assert figures.cases == QUEUE_COUNT_MAX
    assert format_queue_count(figures.cases) == "99+"
    assert format_queue_count(QUEUE_COUNT_MAX - 1) == "99"


async def test_the_count_is_shared_by_operators_and_refreshed_after_a_change(world: World) -> None:
    moment = [0.0]
    counts = QueueCounts(world.database, lambda: moment[0])
    assert (await counts.get())["Cases"] == 0
    await world.rows(_MANY_CASES, world.merchant_id, 1)
    assert (await counts.get())["Cases"] == 0
    assert (await counts.get(is_changed=True))["Cases"] == 1
    assert (await counts.get())["Cases"] == 1
    await world.rows(
        "UPDATE money_case SET status = 'DISMISSED', closed_by = 'a', closed_at = clock()"
    )
    moment[0] += 2.0
    assert (await counts.get())["Cases"] == 0


async def test_a_decided_case_is_no_longer_counted_on_the_next_page(
    operator: Api, world: World
) -> None:
    await world.rows(_MANY_CASES, world.merchant_id, 2)
    visitor = await sign_in_as(operator)
    assert await read_counts(visitor) == {"cases": ("2", "open")}
    page = (await visitor.get("/cases")).body.decode()
    case_id = re.findall(r"/cases/(case_\w+)", page)[0]
    answer = await visitor.post(
        "/operations/case/resolve",
        case_id=case_id, resolution="dismiss", why="known", step="confirmed",
    )  # fmt: skip
    assert answer.status == 200
    assert _COUNT.findall(answer.body.decode()) == [("cases", "1", "open")]
