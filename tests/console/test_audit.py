"""The audit log in the console: filters, pages, and exports in which formulas are escaped."""

import csv
import html
import json
import re
from decimal import Decimal
from io import StringIO
from uuid import uuid4

import pytest

from payintent.core.access import Role
from payintent.merchants.restrictions import AddRestriction
from payintent.merchants.taxes import SetTaxRate
from tests.console.operator_browser import Visitor, sign_in_as, words
from tests.support.world import ACTOR, Api, World

FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)"]


async def add_entries(world: World, count: int) -> None:
    """Add this many entries to the audit log."""
    await world.rows(
        "INSERT INTO audit (id, who, why, action, details) "
        "SELECT ('01000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'robot', "
        "'number ' || n, 'tax.set', '{}' FROM generate_series(1, $1::int) AS n",
        count,
    )


@pytest.fixture
async def viewer(operator: Api) -> Visitor:
    return await sign_in_as(operator, role=Role.VIEWER)


async def test_an_entry_shows_the_person_the_change_and_the_reason(
    viewer: Visitor, world: World
) -> None:
    actor = type(ACTOR)("test", "the law has changed")
    operation = SetTaxRate(country="TH", rate=Decimal("0.07"))
    await world.service.run_operation(operation, actor)
    text = words(await viewer.get("/audit"))
    assert (
        "test Set tax rate tax.set – the law has changed Country, Rate Country TH Rate 0.07" in text
    )


async def test_filters_are_in_the_url_and_stay_in_the_form(viewer: Visitor, world: World) -> None:
    await add_entries(world, 3)
    await world.perform(AddRestriction(type="CRYPTO", country="CU"))  # type: ignore[arg-type]
    assert "Add restriction" not in words(await viewer.get("/audit?of=tax"))
    assert "Add restriction" in words(await viewer.get("/audit?of=restriction.add"))
    page = await viewer.get("/audit?who=robot&since=2020-01-01T00:00&until=2999-01-01T00:00:00")
    text, body = words(page), page.body.decode()
    assert text.count("number ") == 3
    assert "Add restriction" not in text.partition("Merchant Reason")[2]
    assert 'name="who" value="robot"' in body
    assert 'name="since" value="2020-01-01T00:00"' in body
    assert "/audit/export.csv?who=robot&amp;since=2020-01-01T00%3A00" in body
    assert "No matching changes" in words(await viewer.get("/audit?until=2020-01-01T00:00"))
    assert "No matching changes" in words(await viewer.get("/audit?who=nobody"))


async def test_the_audit_log_is_paginated_newest_first(viewer: Visitor, world: World) -> None:
    await add_entries(world, 120)
    path, numbers = "/audit?who=robot", list[str]()
    for _ in range(3):
        page = (await viewer.get(path)).body.decode()
        numbers += re.findall(r">number (\d+)<", page)
        next_link = re.search(r'href="([^"]+)" rel="next"', page)
        path = html.unescape(next_link[1]) if next_link else ""
    assert numbers == [str(number) for number in range(120, 0, -1)]
    assert path == ""


@pytest.mark.parametrize(
    "query", ["merchant_id=x", "merchant_id=999999", "since=monday", f"who={'x' * 300}", "before=1"]
)
async def test_an_invalid_filter_is_refused_with_an_error_page(viewer: Visitor, query: str) -> None:
    answer = await viewer.get(f"/audit?{query}")
    assert answer.status == 400
    assert 'role="alert"' in answer.body.decode()
    assert (await viewer.get(f"/audit/export.csv?{query}")).status in {200, 400, 404}


async def test_an_export_contains_all_entries_that_match_its_filters(
    viewer: Visitor, world: World
) -> None:
    await add_entries(world, 1203)
    answer = await viewer.get("/audit/export.jsonl?who=robot")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="audit.jsonl"'
    entries = [json.loads(line) for line in answer.body.splitlines()]
    assert [entry["why"] for entry in entries] == [f"number {n}" for n in range(1203, 0, -1)]
    answer = await viewer.get("/audit/export.csv?who=robot")
    rows = list(csv.DictReader(StringIO(answer.body.decode())))
    assert [row["why"] for row in rows] == [entry["why"] for entry in entries]
    assert set(rows[0]) == {"at", "who", "action", "merchant_id", "why", "details", "id"}


@pytest.mark.parametrize("formula", FORMULAS)
async def test_formulas_in_an_export_are_escaped(
    viewer: Visitor, world: World, formula: str
) -> None:
    await world.rows(
        "INSERT INTO audit (id, who, why, action, details) VALUES ($1, $2, $2, 'tax.set', $3)",
        uuid4(),
        formula,
        json.dumps({"country": formula}),
    )
    answer = await viewer.get("/audit/export.csv?of=tax")
    [row] = csv.DictReader(StringIO(answer.body.decode(), newline=""))
    assert row["who"] == row["why"] == f"'{formula}"
    assert json.loads(row["details"]) == {"country": formula}
    for line in csv.reader(StringIO(answer.body.decode(), newline="")):
        assert not any(cell.startswith(tuple("=+-@\t\r")) for cell in line)


async def test_an_export_requires_a_session_and_a_known_format(
    operator: Api, viewer: Visitor
) -> None:
    assert (await Visitor(operator).get("/audit/export.csv")).status == 303
    assert (await viewer.get("/audit/export.xlsx")).status == 404
