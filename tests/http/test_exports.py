"""Exports read page by page, run one at a time per person, and are marked if incomplete."""

import asyncio
import csv
import json
from collections.abc import AsyncGenerator, MutableMapping, Sequence
from io import StringIO
from typing import Any

import pytest

from payintent.core.errors import NotFoundError, RefusedError, StorageUnavailableError
from payintent.http import exports
from payintent.http.exports import (
    PAGE_ROWS,
    Export,
    ExportSlots,
    ExportTarget,
    read_pages,
    stream_export,
)
from tests.support.timeouts import PATIENCE_S


class Rows:
    """A list of numbers that counts its reads."""

    def __init__(self, count: int, fails_after: int | None = None) -> None:
        self.count, self.fails_after = count, fails_after
        self.pages_read = 0

    async def read_page(self, last: int | None, limit: int) -> list[int]:
        self.pages_read += 1
        if self.fails_after is not None and (last or 0) >= self.fails_after:
            raise StorageUnavailableError("gone")
        first = (last or 0) + 1
        return list(range(first, min(self.count, first + limit - 1) + 1))

    def export(self, rows_max: int = exports.ROWS_MAX) -> Export[int]:
        return Export(
            name="numbers",
            columns=("number", "text"),
            pages=read_pages(self.read_page),
            make_fields=lambda number: {"number": number, "text": f"=n{number}", "other": 1},
            rows_max=rows_max,
        )


class Client:
    """An ASGI client that reads a response while `gate` is set."""

    def __init__(self, method: str = "GET") -> None:
        self.scope = {"type": "http", "method": method, "path": "/", "headers": []}
        self.headers: dict[str, str] = {}
        self.body = b""
        self.gate = asyncio.Event()
        self.gate.set()
        self.has_left = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.headers = {key.decode(): value.decode() for key, value in message["headers"]}
            return
        self.body += message["body"]
        await self.gate.wait()

    async def fetch(self, export: Export[Any], target: ExportTarget) -> list[list[str]]:
        response = await stream_export(export, target)
        await response(self.scope, self.receive, self.send)
        return list(csv.reader(StringIO(self.body.decode(), newline=""), strict=True))


@pytest.fixture
def slots() -> ExportSlots:
    return ExportSlots()


@pytest.fixture
def target(slots: ExportSlots) -> ExportTarget:
    return ExportTarget(slots=slots, owner="dee")


@pytest.mark.parametrize("count", [0, 1, PAGE_ROWS - 1, PAGE_ROWS, PAGE_ROWS + 1, 3 * PAGE_ROWS])
async def test_all_rows_are_exported_once(target: ExportTarget, count: int) -> None:
    client = Client()
    [head, *lines] = await client.fetch(Rows(count).export(), target)
    assert head == ["number", "text"]
    assert lines == [[str(number), f"'=n{number}"] for number in range(1, count + 1)]
    assert client.headers["content-disposition"] == 'attachment; filename="numbers.csv"'
    assert client.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    assert client.headers["x-content-type-options"] == "nosniff"


async def test_json_lines_have_the_same_columns_as_csv(slots: ExportSlots) -> None:
    client, target = Client(), ExportTarget(slots=slots, owner="dee", extension="jsonl")
    await (await stream_export(Rows(2).export(), target))(client.scope, client.receive, client.send)
    lines = [json.loads(line) for line in client.body.splitlines()]
    assert lines == [{"number": 1, "text": "=n1"}, {"number": 2, "text": "=n2"}]


async def test_an_unknown_format_is_not_found(slots: ExportSlots) -> None:
    with pytest.raises(NotFoundError, match="csv or jsonl"):
        await stream_export(
            Rows(1).export(), ExportTarget(slots=slots, owner="dee", extension="xlsx")
        )


@pytest.mark.parametrize("rows_max", [1, PAGE_ROWS - 1, PAGE_ROWS, PAGE_ROWS + 1])
async def test_the_last_line_of_a_truncated_export_reports_missing_rows(
    target: ExportTarget, rows_max: int
) -> None:
    lines = await Client().fetch(Rows(rows_max + 1).export(rows_max), target)
    assert len(lines) == 1 + rows_max + 1
    assert lines[-1][0].startswith("INCOMPLETE: this export stopped here, because it is limited")
    assert len(lines[-1]) == len(lines[0])
    complete = await Client().fetch(Rows(rows_max).export(rows_max), target)
    assert len(complete) == 1 + rows_max
    assert complete[-1][0] == str(rows_max)


async def test_an_export_that_takes_too_long_is_marked_as_incomplete(
    target: ExportTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "DURATION_MAX_S", 0.0)
    lines = await Client().fetch(Rows(2 * PAGE_ROWS).export(), target)
    assert len(lines) == 1 + PAGE_ROWS + 1
    assert "took longer than 0 minutes" in lines[-1][0]


async def test_an_export_reports_a_database_failure(target: ExportTarget) -> None:
    rows = Rows(3 * PAGE_ROWS, fails_after=PAGE_ROWS)
    lines = await Client().fetch(rows.export(), target)
    assert len(lines) == 1 + PAGE_ROWS + 1
    assert "database was temporarily unavailable" in lines[-1][0]
    with pytest.raises(StorageUnavailableError):  # a failure before the first line is an error page
        await stream_export(Rows(1, fails_after=0).export(), target)
    await Client().fetch(Rows(1).export(), target)  # the slot is released


async def test_a_person_can_run_only_one_export_at_a_time(
    target: ExportTarget, slots: ExportSlots
) -> None:
    slow = Client()
    slow.gate.clear()
    running = asyncio.create_task(slow.fetch(Rows(5 * PAGE_ROWS).export(), target))
    async with asyncio.timeout(PATIENCE_S):
        while not slow.body:
            await asyncio.sleep(0)
    for _ in range(100):
        with pytest.raises(RefusedError, match="still running") as error:
            await stream_export(Rows(1).export(), target)
        assert error.value.retry_after_s
    second_target = ExportTarget(slots=slots, owner="somebody else")
    assert len(await Client().fetch(Rows(1).export(), second_target)) == 2
    slow.gate.set()
    assert len(await running) == 1 + 5 * PAGE_ROWS
    assert len(await Client().fetch(Rows(1).export(), target)) == 2


async def test_only_one_of_a_hundred_concurrent_exports_starts(target: ExportTarget) -> None:
    rows = Rows(1)

    async def start() -> object:
        try:
            return await stream_export(rows.export(), target)
        except RefusedError as refusal:
            return refusal.code

    answers = await asyncio.gather(*(start() for _ in range(100)))
    assert answers.count("RATE_LIMITED") == 99
    assert rows.pages_read == 1


async def test_an_export_to_a_slow_client_does_not_read_ahead_or_hold_a_query(
    target: ExportTarget, slots: ExportSlots
) -> None:
    slow, rows = Client(), Rows(5 * PAGE_ROWS)
    slow.gate.clear()
    running = asyncio.create_task(slow.fetch(rows.export(), target))
    async with asyncio.timeout(PATIENCE_S):
        while not slow.body:
            await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert rows.pages_read == 1
    assert not slots.reads.locked()
    slow.has_left.set()
    await running
    assert rows.pages_read == 1
    await stream_export(Rows(1).export(), target)  # the slot is released


async def test_concurrent_exports_run_a_limited_number_of_queries(slots: ExportSlots) -> None:
    running, most = 0, 0

    async def read_page(last: int | None, limit: int) -> list[int]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(3):
            await asyncio.sleep(0)
        running -= 1
        return [(last or 0) + 1] * limit if (last or 0) < 3 else []

    def make_export() -> Export[int]:
        return Export(
            name="x",
            columns=("number",),
            pages=read_pages(read_page),
            make_fields=lambda number: {"number": number},
        )

    await asyncio.gather(
        *(
            Client().fetch(make_export(), ExportTarget(slots=slots, owner=owner))
            for owner in range(40)
        )
    )
    assert most == 4


async def test_a_head_request_reads_a_single_page(target: ExportTarget) -> None:
    client, rows = Client("HEAD"), Rows(5 * PAGE_ROWS)
    assert await client.fetch(rows.export(), target) == []
    assert rows.pages_read == 1
    await stream_export(Rows(1).export(), target)  # the slot is released


async def test_a_slot_that_is_never_released_expires() -> None:
    now = 0.0
    slots = ExportSlots(lambda: now)
    lost = slots.claim("dee")
    with pytest.raises(RefusedError):
        slots.claim("dee")
    now = exports.DURATION_MAX_S + 61
    current = slots.claim("dee")
    slots.release(lost)  # it does not release the current claim
    with pytest.raises(RefusedError):
        slots.claim("dee")
    slots.release(current)
    slots.claim("dee")


async def test_memory_holds_at_most_two_pages(target: ExportTarget) -> None:
    """A page can be garbage-collected when the next page has been read."""
    alive: list[int] = []

    class Row:
        def __init__(self, number: int) -> None:
            self.number = number
            alive.append(number)

        def __del__(self) -> None:
            alive.remove(self.number)

    most = 0

    async def pages() -> AsyncGenerator[Sequence[Row]]:
        nonlocal most
        for page in range(20):
            yield [Row(1000 * page + number) for number in range(10)]
            most = max(most, len(alive))

    export = Export(
        name="x",
        columns=("number",),
        pages=pages(),
        make_fields=lambda row: {"number": row.number},
    )
    assert len(await Client().fetch(export, target)) == 201
    assert most <= 20
