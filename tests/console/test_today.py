"""The Today page shows live figures, with one statement per second for all viewers."""

import asyncio
import html
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from hashlib import sha256
from typing import LiteralString, cast

import aiohttp
import pytest

from payintent.core.access import Role
from payintent.core.ids import PAYMENT, format_id
from payintent.db.database import Executor, Row
from payintent.db.replica import ReadDatabase
from payintent.gateways.port import DisputeReport, DisputeState, VerifiedCallback
from payintent.overview import hourly_figures
from payintent.overview.cache import Period
from payintent.payments.expire import expire_due_pending
from payintent.payments.operations import CancelPayment
from payintent.service import Service
from tests.console.operator_browser import Visitor, sign_in_as, words
from tests.docs.parse_pages import page
from tests.refunds.refund_setup import (
    DONE,
    create_paid_payment,
    request_refund,
    send_refund_callback,
)
from tests.support.timeouts import PATIENCE_S
from tests.support.world import Api, World

pytestmark = pytest.mark.full

VIEWERS = 20
_HREF = re.compile(r'href="([^"#]+)[^"]*"')


async def count(world: World) -> None:
    """Count outcomes as a worker does, once the events are old enough."""
    await world.move_clock(10)
    while await hourly_figures.count_outcomes(world.database):
        pass


async def test_figures_change_when_a_payment_is_paid_and_refunded(
    operator: Api, world: World
) -> None:
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment, "90.50")
    await send_refund_callback(world, refund.id, DONE)
    await count(world)
    for period in Period:
        text = words(await visitor.get(f"/?period={period}"))
        assert "THB 1,590.00 (1) 90.50 (1) 0 (0)" in text
        assert "1 PAID 0 FAILED" in text
        assert "1 of 1 completed payments were paid" in text
        assert "fake card 1 1 100.0 %" in text


async def test_pending_payments_are_shown_with_their_age(operator: Api, world: World) -> None:
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    await world.select(await world.create())
    await world.move_clock(7_200)
    text = words(await visitor.get("/"))
    assert "2 h oldest PROCESSING payment" in text
    assert "0 open cases" in text
    assert "No payments, refunds or disputes in this period." in text


async def test_every_figure_links_to_a_list(operator: Api, world: World) -> None:
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    await create_paid_payment(world)
    await count(world)
    body = (await visitor.get("/")).body.decode().partition('id="figures"')[2]
    addresses = {html.unescape(address) for address in _HREF.findall(body)}
    assert len(addresses) >= 10
    for address in sorted(addresses):
        assert (await visitor.get(address)).status == 200, address


async def test_every_figure_matches_the_number_of_rows_in_its_list(
    operator: Api, world: World
) -> None:
    """Events before the period, such as those 40 days earlier, are not counted."""
    for days, times in ((0, 1), (40, 2)):
        await world.move_clock(days * 86_400)
        for _ in range(times):
            await _create_one_of_each(world)
    await world.move_clock(40 * 86_400 + 10)
    while await hourly_figures.count_outcomes(world.database):
        pass
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    body = (await visitor.get("/?period=24h")).body.decode()
    figures = {html.unescape(address): text for address, text in _COUNTED.findall(body)}
    row_counts = {address: await _count_rows(visitor, address) for address in figures}
    assert {address: f"{count:,}" for address, count in row_counts.items()} == figures
    assert max(row_counts.values()) == 6, "payments that ended"
    money = {html.unescape(address): int(text) for address, text in _MONEY.findall(body)}
    assert set(money.values()) == {2}
    assert {address: await _count_rows(visitor, address) for address in money} == money


_COUNTED = re.compile(r'href="(/[a-z/]+\?[^"]*)">(?:<span class="figure">)?([0-9,]+)<')
_MONEY = re.compile(r'href="([^"]+)">[0-9,.]+</a> <span class="soft">\(([0-9]+)\)</span>')


async def _create_one_of_each(world: World) -> None:
    """Create three payments: one refunded in part and disputed, one cancelled, one expired."""
    payment = await create_paid_payment(world)
    refund = await request_refund(world, payment, "90.50")
    await send_refund_callback(world, refund.id, DONE)
    report = DisputeReport(
        reference=f"du-{payment.id}",
        capture=f"cap-{payment.id}",
        state=DisputeState.OPEN,
        amount_minor=500,
        currency="THB",
        reason="fraudulent",
    )
    callback = VerifiedCallback(id=f"evt-{payment.id}", dispute=report)
    await world.service.callback_receiver.receive(world.account_id, callback, b"")
    cancelled, expired = await world.create(), await world.create()
    await world.perform(CancelPayment(payment_id=format_id(PAYMENT, cancelled.id)))
    await world.rows("UPDATE payment SET expires_at = clock() WHERE id = $1", expired.id)
    await expire_due_pending(world.database, 10)


async def _count_rows(visitor: Visitor, address: str) -> int:
    answer = await visitor.get(address)
    assert answer.status == 200
    table = answer.body.decode().partition("<tbody>")[2].partition("</tbody>")[0]
    return table.count("<tr>")


async def test_the_page_warns_if_the_figures_are_out_of_date(operator: Api, world: World) -> None:
    visitor = await sign_in_as(operator)
    await world.rows("UPDATE figure_mark SET counted_until = clock()")
    assert "Figures are out of date" not in words(await visitor.get("/"))
    await world.rows("UPDATE figure_mark SET counted_until = clock() - interval '6 minutes'")
    async with asyncio.timeout(PATIENCE_S):
        while "Figures are out of date" not in words(await visitor.get("/")):
            await asyncio.sleep(0.1)


async def test_the_page_can_reload_without_scripts(operator: Api) -> None:
    visitor = await sign_in_as(operator)
    assert "Refresh" not in (await visitor.get("/?period=7d")).headers
    answer = await visitor.get("/?period=7d&reload=30")
    assert answer.headers["Refresh"] == "30"


@pytest.mark.parametrize("path", ["/", "/today/figures", "/today/events", "/gateways", "/chains"])
async def test_pages_and_streams_require_a_session(operator: Api, path: str) -> None:
    answer = await Visitor(operator).get(path)
    assert (answer.status, answer.headers["Location"][:8]) == (303, "/sign-in")


async def _read_events(visitor: Visitor, path: str) -> AsyncIterator[str]:
    """Yield the HTML of each event of a stream."""
    cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    async with (
        aiohttp.ClientSession(read_bufsize=2**20) as client,
        client.get(visitor.api.base + path, headers={"Cookie": cookie}) as answer,
    ):
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["Cache-Control"] == "no-store"
        async for line in answer.content:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))["html"]


async def test_a_stream_sends_figures_when_they_change(operator: Api, world: World) -> None:
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    events = _read_events(visitor, "/today/events?period=30d")
    async with asyncio.timeout(PATIENCE_S):
        assert "No payments, refunds or disputes" in await anext(events)
        await create_paid_payment(world)
        await count(world)
        async for page_html in events:
            if "1,590.00" in page_html:
                break
    await events.aclose()


@pytest.mark.parametrize("name", ["uPlot.iife.min.js", "uPlot.min.css"])
async def test_the_chart_library_is_served_unmodified(operator: Api, name: str) -> None:
    response = await operator.send("GET", f"/static/present/{name}")
    digest = sha256(response.body).hexdigest()
    assert f"| `{name}` | `{digest}` |" in page("docs/contribute/decisions/libraries.md")


class CountedReads(ReadDatabase):
    """A read database that counts the reads of figures."""

    def __init__(self, read_database: Executor) -> None:
        self._read_database = read_database
        self.overviews = 0

    async def fetch(self, query: LiteralString, *args: object) -> list[Row]:
        self.overviews += "hourly_figure" in query
        return await self._read_database.fetch(query, *args)

    async def row(self, query: LiteralString, *args: object) -> Row | None:
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None


class TestShared:
    """The statements that read figures are counted."""

    @pytest.fixture
    def operated(self, world: World) -> Service:
        counted_reads = CountedReads(world.service.read_database)
        return replace(world.service, read_database=counted_reads)

    async def test_twenty_viewers_with_streams_cause_at_most_one_statement_per_second(
        self, operator: Api, operated: Service
    ) -> None:
        reads = cast("CountedReads", operated.read_database)
        visitor = await sign_in_as(operator, role=Role.VIEWER)
        started_at = time.monotonic()
        streams = [
            _read_events(visitor, f"/today/events?period={period}")
            for _ in range(VIEWERS // 4)
            for period in ("24h", "7d", "30d", "24h")
        ]
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(anext(stream) for stream in streams))
            while reads.overviews < 4:
                paths = ["/", "/?period=7d", "/?period=30d", "/today/figures"] * (VIEWERS // 4)
                pages = await asyncio.gather(*(visitor.get(path) for path in paths))
                assert {page.status for page in pages} == {200}
        assert reads.overviews <= time.monotonic() - started_at + 1
        for stream in streams:
            await stream.aclose()
