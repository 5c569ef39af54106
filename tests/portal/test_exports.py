"""CSV exports of the portal's lists, with exactly the rows that match the filters."""

import asyncio
import csv
import json
from collections.abc import Sequence
from io import StringIO
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from payintent.core import ids
from payintent.members.model import MemberRole
from tests.http.wire import Wire
from tests.payment_links.link_setup import make_link
from tests.portal.member_browser import Person, member, words
from tests.portal.test_calls import wait_for_calls
from tests.portal.test_live_and_test_mode import switch
from tests.refunds.requests import create_paid
from tests.refunds.requests import post_refund as refund
from tests.support.arrange import payment_of
from tests.support.fakes import captured
from tests.support.merchant_test_mode import make_test_world
from tests.support.timeouts import PATIENCE_S
from tests.support.world import Answer, Api, World

pytestmark = pytest.mark.full


@pytest.fixture
async def finance(api: Api) -> Person:
    return await member(api, MemberRole.FINANCE)


@pytest.fixture
async def developer(api: Api) -> Person:
    return await member(api)


async def _rows(person: Person, path: str) -> list[dict[str, str]]:
    answer = await person.get(f"/merchant/{path}")
    assert answer.status == 200, words(answer)
    assert answer.headers["Content-Type"].startswith("text/csv")
    assert answer.headers.getall("Cache-Control") == ["no-store"]
    assert "attachment" in answer.headers["Content-Disposition"]
    return list(csv.DictReader(StringIO(answer.body.decode(), newline=""), strict=True))


async def _add_events(world: World, count: int, state: str) -> None:
    """Create events of the merchant without payments."""
    raw = await world.open_connection()
    await raw.execute("SET session_replication_role = replica")
    await raw.execute(
        """
        WITH stored AS (
            INSERT INTO event (id, payment_id, merchant_id, type, body, occurred_at)
            SELECT gen_random_uuid(), gen_random_uuid(), $1::bigint, 'payment.completed', '{}',
                clock()
            FROM generate_series(1, $2::int)
            RETURNING id
        )
        INSERT INTO delivery (event_id, merchant_id, state, next_at)
        SELECT id, $1::bigint, $3, clock() FROM stored
        """,
        world.merchant_id,
        count,
        state,
    )
    await raw.close()


async def test_payments_are_exported_with_the_filters_of_the_page(
    api: Api, finance: Person
) -> None:
    payment_ids = [(await api.create(payer_uid="buyer-7")).json["id"] for _ in range(103)]
    await api.create(payer_uid="somebody-else")
    created = await create_paid(api, metadata={"order_id": "A-1009"})
    rows = await _rows(finance, "payments/export.csv?payer_uid=buyer-7&status=PENDING&filters=")
    assert [row["id"] for row in rows] == payment_ids[::-1]
    [row] = await _rows(finance, "payments/export.csv?q=A-1009")
    assert row["id"] == created.json["id"]
    assert (row["order_id"], row["status"]) == ("A-1009", "PAID")
    assert (row["amount"], row["currency"], row["country"]) == ("1590.00", "THB", "TH")
    assert row["paid_at"].endswith("Z")
    assert len(await _rows(finance, "payments/export.csv")) == 105
    assert await _rows(finance, "payments/export.csv?q=nothing-like-it") == []
    day = created.json["created_at"][:10]
    assert len(await _rows(finance, f"payments/export.csv?created_to={day}")) == 105
    page = (await finance.get("/merchant/payments?payer_uid=buyer-7&status=PENDING")).body.decode()
    link = "/merchant/payments/export.csv?status=PENDING&amp;payer_uid=buyer-7"
    assert f'href="{link}"' in page


async def test_a_search_with_many_matches_is_exported_completely(api: Api, finance: Person) -> None:
    payment_ids = {(await api.create(metadata={"order_id": "A 1"})).json["id"] for _ in range(102)}
    rows = await _rows(finance, f"payments/export.csv?q={quote('A 1')}")
    assert len(rows) == 102
    assert {row["id"] for row in rows} == payment_ids


async def test_refunds_and_cases_are_exported_with_their_order_ids(
    api: Api, finance: Person
) -> None:
    created = await create_paid(api, metadata={"order_id": "=A-1"})
    second = await create_paid(api, metadata={"order_id": "B-2"})
    for answer in (created, second):
        await refund(api, answer, amount="1.00", reason="torn; =1+1")
        payment = await payment_of(api, answer)
        snapshot = await api.world.read(payment)
        assert snapshot.session is not None
        report = captured(1, reference=f"second-{payment.id}")
        await api.world.report(payment, snapshot.session.id, report)
    rows = await _rows(finance, "refunds/export.csv")
    assert [row["order_id"] for row in rows] == ["B-2", "'=A-1"]
    assert {(row["amount"], row["currency"], row["reason"]) for row in rows} == {
        ("1.00", "THB", "torn; =1+1")
    }
    assert {row["requested_by"][:7] for row in rows} == {"API key"}
    assert len(await _rows(finance, "refunds/export.csv?order_id=B-2&status=PENDING")) == 1
    assert await _rows(finance, "refunds/export.csv?order_id=B-2&status=FAILED") == []
    assert len(await _rows(finance, "refunds/export.csv?status=PENDING")) == 2
    cases = await _rows(finance, "cases/export.csv?kind=DOUBLE_PAYMENT&status=OPEN")
    assert [case["order_id"] for case in cases] == ["B-2", "'=A-1"]
    assert len(await _rows(finance, "cases/export.csv?order_id=B-2")) == 1


async def test_events_are_exported_by_state_and_order(api: Api, developer: Person) -> None:
    created = await create_paid(api, metadata={"order_id": "A-1"})
    await create_paid(api, metadata={"order_id": "B-1"})
    await _add_events(api.world, 30, "delivered")
    assert len(await _rows(developer, "events/export.csv")) == 32
    assert len(await _rows(developer, "events/export.csv?state=delivered")) == 30
    assert len(await _rows(developer, "events/export.csv?state=dead")) == 0
    [row] = await _rows(developer, "events/export.csv?order_id=A-1")
    assert (row["payment_id"], row["order_id"]) == (created.json["id"], "A-1")
    page = words(await developer.get("/merchant/events?order_id=A-1"))
    assert created.json["id"] in page
    assert "B-1" not in page


@pytest.mark.parametrize("state", ["pending", "delivered"])
async def test_events_after_ten_thousand_filtered_events_are_exported(
    api: Api, developer: Person, state: str
) -> None:
    """A page with this filter ends after 10,000 events, but an export continues."""
    await _add_events(api.world, 10_500, "skipped")
    await api.world.rows(
        "UPDATE delivery SET state = $1 WHERE event_id = (SELECT min(id::text)::uuid FROM event)",
        state,
    )
    assert len(await _rows(developer, f"events/export.csv?state={state}")) == 1


async def test_calls_are_paginated_and_exported_completely(api: Api, developer: Person) -> None:
    for _ in range(3):
        await api.send("GET", "/v1/payments?limit=x", headers=api.bearer())
    await api.create()
    await wait_for_calls(api.world, 4)
    await api.world.rows(
        "INSERT INTO api_call (at, merchant_id, method, route, status, request_id, duration_us) "
        "SELECT clock() - n * interval '1 minute', $1::bigint, 'GET', '/v1/old', 200, n::text, 1 "
        "FROM generate_series(1, 120) AS n",
        api.world.merchant_id,
    )
    rows = await _rows(developer, "calls/export.csv")
    assert len(rows) == 124
    assert [row["request_id"] for row in rows[4:]] == [str(n) for n in range(1, 121)]
    failed = await _rows(developer, "calls/export.csv?failed=1")
    assert [row["error_code"] for row in failed] == ["BAD_REQUEST"] * 3
    first = (await developer.get("/merchant/calls")).body.decode()
    more = first.partition('href="?')[2].partition('"')[0].replace("&amp;", "&")
    second = (await developer.get(f"/merchant/calls?{more}")).body.decode()
    assert [page.count('data-label="Call"') for page in (first, second)] == [100, 24]


async def test_refunds_filtered_by_status_are_paginated(api: Api, finance: Person) -> None:
    created = await create_paid(api)
    await refund(api, created, amount="1.00")
    await api.world.rows(
        "INSERT INTO refund SELECT (r).* FROM (SELECT jsonb_populate_record(f, jsonb_build_object("
        "'id', gen_random_uuid(), 'updated_at', f.updated_at - n * interval '1 minute')) AS r "
        "FROM refund f, generate_series(1, 29) AS n) x"
    )
    first = (await finance.get("/merchant/refunds?status=PENDING")).body.decode()
    more = first.partition('href="?')[2].partition('"')[0].replace("&amp;", "&")
    assert "status=PENDING" in more
    second = (await finance.get(f"/merchant/refunds?{more}")).body.decode()
    assert [page.count('data-label="Refund"') for page in (first, second)] == [25, 5]
    assert len(await _rows(finance, "refunds/export.csv?status=PENDING")) == 30


@pytest.mark.parametrize(
    "path",
    [
        "payments/export.csv?created_from=yesterday",
        "payments/export.csv?q=" + "x" * 301,
        "refunds/export.csv?status=GONE",
        "cases/export.csv?kind=GONE",
        "events/export.csv?state=gone",
    ],
)
async def test_an_invalid_filter_returns_an_error_page_and_releases_the_slot(
    finance: Person, path: str
) -> None:
    for _ in range(2):
        answer = await finance.get(f"/merchant/{path}")
        assert answer.status in {400, 422}
        assert answer.headers["Content-Type"].startswith("text/html")
    assert await _rows(finance, "payments/export.csv") == []


async def test_each_member_can_run_only_a_single_export_at_a_time(
    api: Api, finance: Person, developer: Person
) -> None:
    connection = await api.world.open_connection()
    await connection.execute("BEGIN")
    await connection.execute("LOCK TABLE event IN ACCESS EXCLUSIVE MODE")
    running = asyncio.create_task(_get(finance, "events/export.csv"))
    while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
        await asyncio.sleep(0.01)
    answer = await finance.get("/merchant/cases/export.csv")
    assert answer.status == 429
    assert "Another export is still running" in words(answer)
    assert int(answer.headers["Retry-After"]) > 0
    assert await _rows(developer, "cases/export.csv") == []
    await connection.execute("ROLLBACK")
    await connection.close()
    assert (await running).status == 200
    assert await _rows(finance, "cases/export.csv") == []


async def test_payment_links_of_all_pages_are_exported(api: Api, finance: Person) -> None:
    links = [await make_link(api.world, title=f"Ticket {n}", max_uses=2) for n in range(27)]
    rows = await _rows(finance, "payment-links/export.csv")
    newest_first = [ids.format_id(ids.PAYMENT_LINK, link.id) for link in reversed(links)]
    assert [row["id"] for row in rows] == newest_first
    assert (rows[0]["title"], rows[0]["amount"], rows[0]["currency"]) == (
        "Ticket 26",
        "1590.00",
        "THB",
    )
    assert (rows[0]["status"], rows[0]["uses"], rows[0]["max_uses"]) == ("OPEN", "0", "2")
    assert rows[0]["url"].endswith(f"/c/link/{links[-1].token}")
    page = (await finance.get("/merchant/payment-links")).body.decode()
    assert 'href="/merchant/payment-links/export.csv"' in page


async def test_an_export_is_audited_without_personal_data(api: Api, finance: Person) -> None:
    await api.create(payer_uid="buyer-7")
    await _rows(finance, "payments/export.csv?payer_uid=buyer-7&status=PENDING&x=spam")
    await _rows(finance, "payments/export.csv?q=A-1009&status=ann@buyers.test")
    await _rows(finance, "cases/export.csv?status=OPEN&kind=&state=ann@buyers.test")
    assert (await _get(finance, "payments/export.csv?status=OPEN")).status == 400
    entries = await api.world.rows(
        "SELECT who, merchant_id, details::text AS details FROM audit"
        " WHERE action = 'list.export' ORDER BY id"
    )
    assert {entry["who"] for entry in entries} == {"merchant:1:finance@shop.test"}
    assert {entry["merchant_id"] for entry in entries} == {api.world.merchant_id}
    assert [json.loads(entry["details"]) for entry in entries] == [
        {
            "list": "payments",
            "format": "csv",
            "filters": {"status": "PENDING", "payer_uid": "(not stored)"},
        },
        {"list": "payments", "format": "csv", "filters": {"q": "(not stored)"}},
        {"list": "cases", "format": "csv", "filters": {"status": "OPEN"}},
    ]


async def _get(person: Person, path: str) -> Answer:
    return await person.get(f"/merchant/{path}")


async def test_an_export_contains_no_rows_of_another_merchant(api: Api, finance: Person) -> None:
    """This holds even if the query names a payment, order or cursor of that merchant."""
    created = await create_paid(api, metadata={"order_id": "OURS"}, payer_uid="ours")
    await refund(api, created, amount="1.00")
    spy_merchant = await api.world.add_merchant()
    for role in MemberRole:
        spy = await member(api, role, f"{role}@other.test", spy_merchant.merchant.id)
        for path in _export_paths(created.json["id"]):
            answer = await spy.get(f"/merchant/{path}")
            assert answer.status in {200, 403, 404}, path
            text = answer.body.decode().replace("q=OURS", "")
            assert created.json["id"] not in text, path
            assert '"OURS"' not in text, path


def _export_paths(payment_id: str) -> Sequence[str]:
    queries: list[Any] = ["", "?q=OURS", "?order_id=OURS", f"?q={payment_id}", "?merchant_id=1"]
    queries += [f"?payment_id={payment_id}", f"?before={payment_id}", f"?x={uuid4()}"]
    lists = ("payments", "payment-links", "refunds", "cases", "events", "calls")
    return [f"{name}/export.csv{query}" for name in lists for query in queries]


async def test_exports_contain_only_the_selected_side(api: Api, developer: Person) -> None:
    live = await create_paid(api, metadata={"order_id": "LIVE"})
    async with Api(api.base, await make_test_world(api.world)) as side:
        test = await create_paid(side, metadata={"order_id": "TEST"})
        await wait_for_calls(side.world, 1)
    await wait_for_calls(api.world, 1)
    for name, own, foreign in (("test", test, live), ("live", live, test)):
        await switch(developer, name)
        for path in ("payments", "events"):
            answer = await developer.get(f"/merchant/{path}/export.csv")
            body, prefix = answer.body.decode(), "test-" if name == "test" else ""
            assert f'filename="{prefix}{path}.csv"' in answer.headers["Content-Disposition"]
            assert own.json["id"] in body
            assert foreign.json["id"] not in body
        [call, *_] = await _rows(developer, "calls/export.csv")
        assert call["route"] == "/v1/payments"
        order_id = foreign.json["metadata"]["order_id"]
        for query in (f"q={foreign.json['id']}", f"order_id={order_id}"):
            for path in ("payments", "events", "refunds", "cases"):
                body = (await developer.get(f"/merchant/{path}/export.csv?{query}")).body.decode()
                assert foreign.json["id"] not in body, (path, query)


async def test_a_slow_reader_occupies_only_its_own_slot_until_it_disconnects(
    api: Api, developer: Person, finance: Person
) -> None:
    """The file is larger than the buffers between the server and the reader."""
    await api.world.rows(
        "INSERT INTO api_call (at, merchant_id, method, route, status, request_id, duration_us) "
        "SELECT clock(), $1::bigint, 'GET', repeat('x', 200), 200, n::text, 1 "
        "FROM generate_series(1, 50000) AS n",
        api.world.merchant_id,
    )
    cookies = "; ".join(f"{name}={value}" for name, value in developer.cookies.items())
    head = f"GET /merchant/calls/export.csv HTTP/1.1\r\nHost: x\r\nCookie: {cookies}\r\n\r\n"
    async with Wire(api.base) as wire:
        await wire.send(head.encode())
        assert b"text/csv" in await wire.head()
        wire.read_slowly()
        assert (await developer.get("/merchant/cases/export.csv")).status == 429
        idle = await api.world.rows(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() "
            "AND state LIKE 'idle in transaction%'"
        )
        assert idle == []
        assert await _rows(finance, "cases/export.csv") == []
        assert (await developer.get("/merchant/cases/export.csv")).status == 429
    await _wait_for_status(developer, 200)


async def _wait_for_status(person: Person, status: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await person.get("/merchant/cases/export.csv")).status != status:
            await asyncio.sleep(0.05)
