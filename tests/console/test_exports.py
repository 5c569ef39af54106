"""Every list can be exported with its filters, and every export is audited."""

import csv
import html
import json
import re
from io import StringIO
from typing import Any

import pytest

from payintent.console import exports
from payintent.console.exports import EXPORTED_LISTS
from payintent.console.rendering import LIST_PATHS
from payintent.core.access import Role
from payintent.http.exports import PAGE_ROWS
from tests.console.operator_browser import Visitor, sign_in_as, words
from tests.console.test_queues import add_dispute, newest_case, open_case
from tests.support.operation_examples import Stage
from tests.support.world import Answer, Api, World

_MANY_CASES = """
    INSERT INTO money_case (id, kind, merchant_id, subject, opened_at)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'RECONCILIATION', $1, 'line ' || n, clock()
    FROM generate_series(1, $2) n
"""


@pytest.fixture
async def viewer(operator: Api) -> Visitor:
    return await sign_in_as(operator, role=Role.VIEWER)


def parse_csv(answer: Answer) -> list[dict[str, str]]:
    assert answer.status == 200, answer.body
    return list(csv.DictReader(StringIO(answer.body.decode(), newline="")))


def find_export_link(answer: Answer) -> str:
    match = re.search(r'href="([^"]+/export\.csv[^"]*)"', answer.body.decode())
    assert match is not None
    return html.unescape(match[1])


async def list_export_entries(world: World) -> list[dict[str, Any]]:
    """Return the audit log's entries about exports."""
    rows = await world.rows(
        "SELECT who, merchant_id, details FROM audit WHERE action = 'list.export' ORDER BY id"
    )
    return [{**row, "details": json.loads(row["details"])} for row in rows]


@pytest.mark.parametrize("name", sorted(LIST_PATHS))
async def test_every_list_is_exported_with_all_its_columns(
    operator: Api, stage: Stage, viewer: Visitor, name: str
) -> None:
    path = LIST_PATHS[name]
    await open_case(operator.world)
    await add_dispute(operator.world, "dp_1", "open", await newest_case(operator.world))
    answer = await viewer.get(find_export_link(await viewer.get(path)))
    assert f'filename="{name}.csv"' in answer.headers["Content-Disposition"]
    rows = parse_csv(answer)
    assert rows
    assert set(rows[0]) == set(EXPORTED_LISTS[name].columns)
    json_export = await viewer.get(f"{path}/export.jsonl")
    assert [json.loads(line) for line in json_export.body.splitlines()]
    [first, _] = await list_export_entries(operator.world)
    assert first == {
        "who": "ann",
        "merchant_id": None,
        "details": {"list": name, "format": "csv", "filters": first["details"]["filters"]},
    }
    assert "Export list" in words(await viewer.get("/audit"))


async def test_an_export_contains_all_pages_whichever_page_is_open(
    operator: Api, world: World, viewer: Visitor
) -> None:
    await world.rows(_MANY_CASES, world.merchant_id, 2 * PAGE_ROWS + 7)
    page = (await viewer.get("/cases?status=ALL&order=oldest&after=case_" + "0" * 22)).body.decode()
    assert 'href="/cases/export.csv?status=ALL&amp;order=oldest"' in page
    for order in ("oldest", "newest"):
        rows = parse_csv(await viewer.get(f"/cases/export.csv?status=ALL&order={order}"))
        ids = [line["id"] for line in rows]
        assert len(ids) == len(set(ids)) == 2 * PAGE_ROWS + 7
        assert ids == sorted(ids, reverse=order == "newest")


@pytest.mark.parametrize(
    "path", ["/cases", "/cases?order=newest", "/cases?status=ALL", "/cases?status=OPEN"]
)
async def test_an_export_has_the_order_of_the_list(
    world: World, viewer: Visitor, path: str
) -> None:
    await world.rows(_MANY_CASES, world.merchant_id, 3)
    page = await viewer.get(path)
    listed = re.findall(r'href="/cases/(case_\w+)', page.body.decode())
    rows = parse_csv(await viewer.get(find_export_link(page)))
    assert [row["id"] for row in rows] == listed


async def test_an_export_applies_the_filters_of_the_list_and_is_audited_with_them(
    operator: Api, world: World, viewer: Visitor
) -> None:
    await world.create(payer_uid="buyer-7")
    await world.create(payer_uid="buyer-8")
    query = f"?merchant_id={world.merchant_id}&payer_uid=buyer-7&status=PENDING"
    rows = parse_csv(await viewer.get(f"/payments/export.csv{query}"))
    assert [line["payer_uid"] for line in rows] == ["buyer-7"]
    [entry] = await list_export_entries(world)
    assert entry["merchant_id"] == world.merchant_id
    assert entry["details"]["filters"] == {
        "merchant_id": world.merchant_id,
        "payer_uid": "(not stored)",
        "status": "PENDING",
    }


async def test_an_export_with_an_invalid_filter_is_refused_and_not_audited(
    operator: Api, world: World, viewer: Visitor
) -> None:
    for path in (
        "/payments/export.csv?currency=XXX",
        "/cases/export.csv?merchant_id=999",
        "/refunds/export.csv?status=LOST",
    ):
        assert (await viewer.get(path)).status in {400, 404}, path
    assert (await viewer.get("/cases/export.pdf")).status == 404
    assert await list_export_entries(world) == []
    assert (await viewer.get("/cases/export.csv?kind=DISPUTE")).status == 200
    assert [entry["details"]["filters"] for entry in await list_export_entries(world)] == [
        {"kind": "DISPUTE", "status": "OPEN"}
    ]


async def test_an_export_that_reads_too_many_payments_stops_and_is_marked_incomplete(
    operator: Api, world: World, viewer: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await world.create()
    monkeypatch.setattr(exports, "_PAYMENT_READS_MAX", 2)
    monkeypatch.setattr(exports, "PAGE_ROWS", 1)
    rows = parse_csv(await viewer.get("/payments/export.csv"))
    assert len(rows) == 3
    assert rows[-1]["id"].startswith("INCOMPLETE: this export stopped here, because too many")


async def test_an_export_of_the_audit_log_is_audited(world: World, viewer: Visitor) -> None:
    await viewer.get("/audit/export.csv?of=tax")
    [entry] = await list_export_entries(world)
    assert entry["details"] == {"list": "audit", "format": "csv", "filters": {"of": "tax"}}


async def test_an_export_without_a_session_redirects_to_the_sign_in(
    operator: Api, world: World
) -> None:
    stranger = Visitor(operator)
    for path in LIST_PATHS.values():
        answer = await stranger.get(f"{path}/export.csv")
        assert (answer.status, answer.headers["Location"].partition("?")[0]) == (303, "/sign-in")
    assert await list_export_entries(world) == []
