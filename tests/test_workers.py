"""A worker's loops over two cells: what is away delays its own work alone, and catches up."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import Gauge
from structlog.testing import capture_logs

from payintent.domain.errors import CellRestsError, StorageUnavailableError
from payintent.domain.payment import Payment
from payintent.operations.merchants import SetCallbackUrl
from payintent.payments.inquire_sessions import SessionInquirer
from payintent.payments.leased_tasks import AccountLoads, LeasedTaskRunner
from payintent.payments.send_refund import RefundSender
from payintent.storage import outbox
from payintent.worker_metrics import CELL_UP, DELIVERIES, WaitingMeasures
from payintent.worker_steps import refund_submitters, session_inquirers
from payintent.workers import outbox_of
from tests.payments.refunding import asked
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import copy_tables
from tests.support.databases import Databases
from tests.support.fakes import captured
from tests.support.http_server import clean_up
from tests.support.patience import until
from tests.support.two_cells import TwoCells, two_cells
from tests.support.workers import working
from tests.support.world import World

pytestmark = OF_CELLS
_OFTEN_S = 0.05
_ENDS = ["EXPIRED", "PAID", "REFUNDED"]


@dataclass
class Shops:
    """Two merchants, one in each cell, and what their common endpoint was told."""

    url: str
    merchants: Sequence[int]
    came: Counter[str]

    def told(self, payment: Payment) -> int:
        """Count the webhooks of a payment's merchant that came."""
        return self.came[f"/{payment.merchant_id}"]


@pytest.fixture
async def two(world: World, databases: Databases) -> AsyncIterator[TwoCells]:
    often = ("expire_every_s", "inquire_every_s", "refund_every_s", "webhook_poll_s")
    more = {"database_acquire_timeout_s": 0.5, "database_statement_timeout_ms": 1_000}
    async with two_cells(world, databases, **dict.fromkeys(often, _OFTEN_S), **more) as made:
        yield made


@pytest.fixture
async def shops(two: TwoCells) -> AsyncIterator[Shops]:
    other = (await two.world.other_merchant()).merchant.id
    came: Counter[str] = Counter()
    ids = set[str]()

    async def receive(request: web.Request) -> web.Response:
        assert request.headers["webhook-id"] not in ids, "a webhook came twice"
        ids.add(request.headers["webhook-id"])
        came[request.path] += 1
        return web.Response()

    app = web.Application()
    app.router.add_post("/{merchant}", receive)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    merchants = (other, two.world.merchant_id)
    for merchant_id in merchants:
        address = f"{url}/{merchant_id}"
        await two.world.perform(SetCallbackUrl(merchant_id=merchant_id, callback_url=address))
    await copy_tables(two.world.service.cells)
    yield Shops(url, merchants, came)
    await clean_up(runner)


async def _work(two: TwoCells, cell: int, shops: Shops) -> list[Payment]:
    """Let a cell have a payment to end, one to ask its gateway about, and one to refund."""
    world, merchant_id = two.world, shops.merchants[cell]
    database = world.service.cells.at(cell)
    [method] = await world.service.cells.control.fetch(
        "SELECT id FROM payment_method WHERE merchant_id = $1 ORDER BY position LIMIT 1",
        merchant_id,
    )
    expiring, asked_about, refunded = [
        await world.create(merchant_id=merchant_id) for _ in range(3)
    ]
    session = (await world.select(refunded, method["id"])).session
    report = captured(159000, reference=f"cap-{refunded.id}")
    assert (await two.tell(session_id=session.id, report=report)).payment_id == refunded.id
    await asked(world, refunded)
    await world.select(asked_about, method["id"])
    await database.fetch("UPDATE refund SET next_at = clock() + interval '1 day'")
    await database.fetch("UPDATE delivery SET next_at = clock() + interval '1 day'")
    return [expiring, asked_about, refunded]


async def _make_due(two: TwoCells, cell: int, payments: Sequence[Payment]) -> None:
    """Let all of it be due now, past the proxy before the cell."""
    connection = await two.direct(cell)
    await connection.execute(
        "UPDATE payment SET expires_at = clock() WHERE id = $1", payments[0].id
    )
    await connection.execute("UPDATE session SET inquire_at = clock() WHERE life <> 'ended'")
    await connection.execute("UPDATE refund SET next_at = clock()")
    await connection.execute("UPDATE delivery SET next_at = clock()")
    await connection.close()


async def _are_done(two: TwoCells, cell: int, payments: Sequence[Payment], shops: Shops) -> bool:
    """Tell whether a cell's payments have ended, and their merchant was told of every event."""
    database = two.world.service.cells.at(cell)
    try:
        rows = await database.fetch(
            "SELECT status FROM payment WHERE id = ANY($1) ORDER BY status",
            [one.id for one in payments],
        )
        [events] = await database.fetch("SELECT count(*) AS n FROM event")
    except CellRestsError:  # it is back, and nobody has found out yet
        return False
    ended = [row["status"] for row in rows] == _ENDS
    return ended and shops.told(payments[0]) == events["n"] >= len(_ENDS)


async def _is_noted(two: TwoCells) -> bool:
    return bool(await two.world.service.cells.control.fetch("SELECT FROM cell_process"))


@pytest.mark.parametrize("away", [0, 1])
@pytest.mark.parametrize("frozen", [False, True])
async def test_a_cell_that_is_away_delays_its_own_work_alone(
    two: TwoCells, shops: Shops, away: int, frozen: bool
) -> None:
    two.world.gateway.answer_inquire = captured(159000, reference="by inquiry")
    payments = {cell: await _work(two, cell, shops) for cell in (0, 1)}
    goes_on = 1 - away
    async with working(two.world.service):
        await until(lambda: _is_noted(two), "the worker has begun")
        await two.away(away, frozen=frozen)
        for cell in (0, 1):
            await _make_due(two, cell, payments[cell])
        await until(
            lambda: _are_done(two, goes_on, payments[goes_on], shops),
            f"the work of cell {goes_on} is done",
        )
        assert shops.told(payments[away][0]) == 0
        await two.back(away)
        await until(lambda: _are_done(two, away, payments[away], shops), f"cell {away} catches up")
    assert shops.told(payments[away][0]) == shops.told(payments[goes_on][0])


async def test_what_waits_is_measured_over_all_cells_and_one_that_is_away_keeps_no_other(
    two: TwoCells, shops: Shops
) -> None:
    measures = WaitingMeasures(two.world.service.readings)
    for cell in (0, 1):
        await _work(two, cell, shops)
        await measures.measure(cell)
    assert _value(DELIVERIES.labels("pending")) == 2
    assert [_value(CELL_UP.labels(cell)) for cell in ("0", "1")] == [1, 1]
    await two.away(0)
    with pytest.raises(StorageUnavailableError):
        await measures.measure(0)
    await two.world.rows("UPDATE delivery SET state = 'dead'")
    await measures.measure(1)
    assert [_value(DELIVERIES.labels(state)) for state in ("pending", "dead")] == [1, 1]
    assert [_value(CELL_UP.labels(cell)) for cell in ("0", "1")] == [0, 1]


def _value(gauge: Gauge) -> float:
    return gauge._value.get()


async def test_an_account_has_no_more_calls_at_once_for_more_cells() -> None:
    loads, go_on = AccountLoads(), asyncio.Event()
    asked: list[Sequence[int]] = []

    async def take(limit: int, busy: Sequence[int]) -> list[int]:
        asked.append(busy)
        return [] if busy else [7] * limit

    async def work(_: int) -> None:
        await go_on.wait()

    runners = [LeasedTaskRunner("ask", 50, take, lambda one: one, work, loads) for _ in "12"]
    for runner in runners:
        await runner.step()
    assert asked == [[], [7]]
    go_on.set()
    for runner in runners:
        await runner.finish()
    await runners[1].step()
    assert asked[-1] == []
    await runners[1].finish()


async def test_what_a_worker_says_of_a_cell_that_is_away_names_it(
    two: TwoCells, shops: Shops, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(*_: object) -> None:
        raise StorageUnavailableError("lost")

    service = two.world.service
    monkeypatch.setattr(SessionInquirer, "inquire", lose)
    monkeypatch.setattr(RefundSender, "process", lose)
    due = [(cell, await _work(two, cell, shops)) for cell in (0, 1)]
    for cell, payments in due:
        await _make_due(two, cell, payments)
    with capture_logs() as lines:
        for database in service.cells:
            for make in (session_inquirers, refund_submitters):
                runner = make(service, database)
                await runner.step()
                await runner.finish()
    deferred = {(line["step"], line.get("cell")) for line in lines}
    assert deferred == {(step, cell) for step in ("inquire", "refund") for cell in (None, 1)}
    await two.away(1)
    with capture_logs() as lines:
        await outbox_of(service, service.cells.control).release(shops.merchants[0])
        assert _away(lines) == [1]
        async with working(service):
            await until(lambda: len(_away(lines)) > 1, "the dispatcher of cell 1 says it too")
    assert set(_away(lines)) == {1}


def _away(lines: Sequence[MutableMapping[str, Any]]) -> list[int | None]:
    return [line.get("cell") for line in lines if line["event"] == "outbox_away"]


@pytest.mark.parametrize("away", [None, 0])
async def test_an_endpoint_that_is_well_again_gets_what_every_cell_that_answers_held_back(
    two: TwoCells, shops: Shops, away: int | None
) -> None:
    service, merchant_id = two.world.service, shops.merchants[1]
    cells = service.cells
    for cell in (0, 1):
        await _work(two, cell, shops)
        await cells.at(cell).fetch(
            "UPDATE delivery SET merchant_id = $1, next_at = clock() + interval '1 day'",
            merchant_id,
        )
    if away is not None:
        await two.away(away)
    await outbox_of(service, cells.control).release(merchant_id)
    answering = [database for cell, database in cells.items() if cell != away]
    due = [await outbox.list_due_merchants(database, 10) for database in answering]
    assert due == [[merchant_id]] * len(answering)
