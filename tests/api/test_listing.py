"""`GET /payments`: what is listed, in which order, page by page, whatever happens meanwhile."""

import asyncio
import base64
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from payintent.domain import ids
from payintent.domain.market import CURRENCIES
from tests.api.arrange import bring_to, cancel, payment_of, refusal
from tests.api.wire import exchange
from tests.support.rows import STATUSES, write_payments
from tests.support.world import Answer, Api

START = datetime(2026, 11, 21, 8, tzinfo=UTC)
PAYERS = ("ann", "bob", "eve")


async def listed(api: Api, key: str | None = None, **query: object) -> Answer:
    """`GET /payments` with this query."""
    return await send(api, urlencode({name: str(value) for name, value in query.items()}), key)


async def send(api: Api, query: str, key: str | None = None) -> Answer:
    """`GET /payments` with a query as it stands."""
    return await api.send("GET", f"/v1/payments?{query}", headers=api.bearer(key))


async def pages(api: Api, **query: object) -> list[list[str]]:
    """Follow the cursors to the end; gives the ids of each page."""
    found: list[list[str]] = []
    while len(found) < 1_000:
        answer = await listed(api, **query)
        assert answer.status == 200, answer.body
        found.append([one["id"] for one in answer.json["data"]])
        if "next_cursor" not in answer.json:
            return found
        query["cursor"] = answer.json["next_cursor"]
    raise AssertionError("the list does not end")


@dataclass(frozen=True)
class Row:
    id: str
    status: str
    currency: str
    payer_uid: str
    created_at: datetime


async def rows_of(api: Api) -> list[Row]:
    """Read a merchant's payments in the order that a list has."""
    rows = await api.world.rows(
        "SELECT id, status, currency, payer_uid, created_at FROM payment WHERE merchant_id = $1",
        api.world.merchant_id,
    )
    rows.sort(key=lambda row: (row["created_at"], row["id"]), reverse=True)
    return [Row(**{**row, "id": ids.text(ids.PAYMENT, row["id"])}) for row in map(dict, rows)]


def matches(row: Row, query: dict[str, Any]) -> bool:
    return all(
        (
            row.status == query.get("status", row.status),
            row.currency == query.get("currency", row.currency),
            row.payer_uid == query.get("payer_uid", row.payer_uid),
            row.created_at >= _time(query.get("created_from", "2000-01-01T00:00:00Z")),
            row.created_at < _time(query.get("created_to", "2100-01-01T00:00:00Z")),
        )
    )


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def told(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def spread(api: Api, count: int) -> list[Answer]:
    """Create payments a millisecond apart: those of one moment have no order of their own."""
    created = [await api.create() for _ in range(count)]
    await api.world.rows(
        "UPDATE payment p SET created_at = created_at - $1 * interval '1 ms' + n * interval '1 ms' "
        "FROM unnest($2::uuid[]) WITH ORDINALITY AS c (id, n) WHERE p.id = c.id",
        count,
        [ids.parse(ids.PAYMENT, one.json["id"]) for one in created],
    )
    return created


async def test_payments_are_listed_newest_first_and_as_each_is_read(api: Api) -> None:
    created = await spread(api, 4)
    await bring_to(api, created[1], "PAID")
    await bring_to(api, created[2], "CANCELLED")
    answer = await listed(api)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert list(answer.json) == ["data"]
    read = [(await api.get(one.json["id"])).json for one in reversed(created)]
    assert answer.json["data"] == read
    assert [one["status"] for one in read] == ["PENDING", "CANCELLED", "PAID", "PENDING"]


async def test_a_merchant_without_payments_has_an_empty_list(api: Api) -> None:
    assert (await listed(api)).json == {"data": []}


async def test_twenty_are_listed_and_up_to_a_hundred_where_asked_for(api: Api) -> None:
    await write_payments(api.world, 101)
    for limit, count, more in ((None, 20, True), (1, 1, True), (100, 100, True)):
        answer = await listed(api, **({} if limit is None else {"limit": limit}))
        assert (len(answer.json["data"]), "next_cursor" in answer.json) == (count, more)
    last = await listed(api, cursor=answer.json["next_cursor"])
    assert (len(last.json["data"]), "next_cursor" in last.json) == (1, False)


async def test_a_page_that_ends_with_the_list_has_no_cursor(api: Api) -> None:
    await write_payments(api.world, 10)
    assert [len(page) for page in await pages(api, limit=5)] == [5, 5]


_QUERIES = st.fixed_dictionaries(
    {"limit": st.sampled_from([1, 2, 7, 20, 100])},
    optional={
        "status": st.sampled_from(STATUSES),
        "currency": st.sampled_from(sorted(CURRENCIES)),
        "payer_uid": st.sampled_from([*PAYERS, "nobody"]),
        "created_from": st.integers(-2, 70).map(
            lambda ms: told(START + timedelta(milliseconds=ms))
        ),
        "created_to": st.integers(-2, 70).map(lambda ms: told(START + timedelta(milliseconds=ms))),
    },
)


async def test_every_combination_of_filters_lists_what_a_naive_reading_finds(api: Api) -> None:
    await write_payments(api.world, 320, at_once=5)  # five share a time: the id decides
    await write_payments(api.world, 20, merchant_id=api.world.merchant_id + 1)
    rows, loop = await rows_of(api), asyncio.get_running_loop()
    assert len(rows) == 320

    @examples(
        max_examples=150,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(query=_QUERIES)
    def agreed(query: dict[str, Any]) -> None:
        wanted = [row.id for row in rows if matches(row, query)]
        if len(wanted) > 40 * query["limit"]:
            query["limit"] = 20  # or it takes long
        found = asyncio.run_coroutine_threadsafe(pages(api, **query), loop).result(60)
        assert [one for page in found for one in page] == wanted
        assert all(len(page) == query["limit"] for page in found[:-1])

    await asyncio.to_thread(agreed)


async def test_pages_are_whole_and_without_doubles_while_payments_come_and_change(
    api: Api,
) -> None:
    created = await spread(api, 40)
    seen: list[str] = []
    cursor: dict[str, object] = {}
    for number in range(100):
        answer = await listed(api, limit=3, **cursor)
        seen += [one["id"] for one in answer.json["data"]]
        if "next_cursor" not in answer.json:
            break
        cursor = {"cursor": answer.json["next_cursor"]}
        await api.create()
        for one in (created[number], created[-1 - number]):  # not listed yet, and listed
            await cancel(api, one)
    assert seen == [one.json["id"] for one in reversed(created)]


async def test_pages_of_one_status_hold_once_whatever_keeps_that_status(api: Api) -> None:
    created = await spread(api, 30)
    leaving = created[::5]
    seen: list[str] = []
    cursor: dict[str, object] = {}
    for number in range(100):
        answer = await listed(api, limit=4, status="PENDING", **cursor)
        assert {one["status"] for one in answer.json["data"]} <= {"PENDING"}
        seen += [one["id"] for one in answer.json["data"]]
        if "next_cursor" not in answer.json:
            break
        cursor = {"cursor": answer.json["next_cursor"]}
        if number < len(leaving):
            await cancel(api, leaving[number])
        await api.create()
    assert len(seen) == len(set(seen))
    staying = [one.json["id"] for one in reversed(created) if one not in leaving]
    assert [one for one in seen if one in staying] == staying


async def test_elapsed_payments_are_listed_expired_with_their_event(api: Api) -> None:
    created = [await api.create(expires_in=60) for _ in range(5)]
    await api.world.move_clock(61)
    answer = await listed(api)
    assert [one["status"] for one in answer.json["data"]] == ["EXPIRED"] * 5
    assert all("expired_at" in one and "expires_at" not in one for one in answer.json["data"])
    for one in created:
        assert await api.world.events(await payment_of(api, one)) == ["payment.expired"]


async def test_elapsed_payments_are_not_among_the_pending_and_then_among_the_expired(
    api: Api,
) -> None:
    live = await api.create()
    for _ in range(5):
        await api.create(expires_in=60)
    await api.world.move_clock(61)
    assert await pages(api, status="PENDING", limit=2) == [[live.json["id"]]]
    assert [len(page) for page in await pages(api, status="EXPIRED")] == [5]


async def test_no_elapsed_payment_is_shown_pending_though_there_are_very_many(api: Api) -> None:
    await write_payments(api.world, 5, statuses=("PENDING",))
    live = [row.id for row in await rows_of(api)]
    await write_payments(api.world, 200, statuses=("PENDING",), at_once=200)
    await api.world.rows(
        "UPDATE payment SET expires_at = clock() - interval '1 s', created_at = $2 "
        "WHERE merchant_id = $1 AND NOT (id = ANY($3::uuid[]))",
        api.world.merchant_id,
        START + timedelta(hours=1),  # newer than those that live
        [ids.parse(ids.PAYMENT, one) for one in live],
    )
    found = await pages(api, status="PENDING", limit=10)
    assert [one for page in found for one in page] == live
    rows = await api.world.rows("SELECT count(*) AS n, count(DISTINCT payment_id) AS d FROM event")
    expired = [row for row in await rows_of(api) if row.status == "EXPIRED"]
    assert rows[0]["n"] == rows[0]["d"] == len(expired) >= 50


async def test_nobody_sees_another_merchants_payments(api: Api) -> None:
    other = await api.world.other_merchant()
    mine = await api.create()
    assert (await listed(api, key=other.api_key)).json == {"data": []}
    assert await pages(api) == [[mine.json["id"]]]
    assert refusal(await listed(api, key="sk_live_nobody")) == (401, "UNAUTHORIZED")


async def test_a_cursor_is_a_place_and_opens_nothing(api: Api) -> None:
    """Another merchant's cursor, or one of other filters, is a place in the caller's own list."""
    other = await api.world.other_merchant()
    await write_payments(api.world, 30)
    mine = [row.id for row in await rows_of(api)]
    cursor = (await listed(api, limit=10)).json["next_cursor"]
    assert (await listed(api, key=other.api_key, cursor=cursor)).json == {"data": []}
    filtered = await listed(api, status="PAID", cursor=cursor, limit=100)
    wanted = [row.id for row in await rows_of(api) if row.status == "PAID" and row.id in mine[10:]]
    assert [one["id"] for one in filtered.json["data"]] == wanted


async def test_of_a_cursor_and_an_end_the_older_one_counts(api: Api) -> None:
    await write_payments(api.world, 40)
    rows = [row.id for row in await rows_of(api)]
    cursor = (await listed(api, limit=20)).json["next_cursor"]
    for end, first in ((START + timedelta(milliseconds=10), 30), (START + timedelta(days=1), 20)):
        answer = await listed(api, cursor=cursor, created_to=told(end), limit=100)
        assert [one["id"] for one in answer.json["data"]] == rows[first:]


def cursor_of(moment: int, payment_id: UUID | None = None) -> str:
    after = (payment_id or UUID(int=0)).bytes
    return base64.urlsafe_b64encode(moment.to_bytes(8, "big") + after).decode()


@pytest.mark.parametrize("moment", [0, 1, 10**15, 2**57])
async def test_a_cursor_from_any_time_is_a_place(api: Api, moment: int) -> None:
    await api.create()
    answer = await listed(api, cursor=cursor_of(moment, uuid4()))
    assert (answer.status, len(answer.json["data"])) == (200, int(moment == 2**57))


_BAD_TIMES = [
    "",
    "now",
    "2026-11-21",
    "2026-11-21T08:00:00",
    "2026-11-21T08:00Z",
    "2026-11-21 08:00:00Z",
    "2026-13-01T00:00:00Z",
    "2026-02-30T00:00:00Z",
    "2026-11-21T24:00:01Z",
    "2026-11-21T08:00:60Z",
    "2026-11-21T08:00:00.1234567Z",
    "2026-11-21T08:00:00+25:00",
    "2026-11-21T08:00:00+0700",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+00:01",
    "9999-12-31T23:59:59-00:01",
    "٢٠٢٦-11-21T08:00:00Z",
    "1764000000",
    "\x00",
]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("limit", ["", "0", "101", "-1", "1.0", "1e1", " 1", "+1", "١", "0x1", "9" * 400]),
        ("status", ["", "paid", "PAID ", "PAID,FAILED", "\x00"]),
        ("payer_uid", ["", "x" * 256, "a\x00b"]),
        ("created_from", _BAD_TIMES),
        ("created_to", _BAD_TIMES),
        (
            "cursor",
            [
                "",
                "x",
                "====",
                cursor_of(1)[:-1],
                cursor_of(1) + "AAAA",
                cursor_of(2**64 - 1),
                cursor_of(2**63),
                "é" * 32,
                "\x00" * 32,
                "A" * 5_000,
            ],
        ),
    ],
)
async def test_a_bad_value_is_refused_with_the_fields_name(
    api: Api, name: str, values: list[str]
) -> None:
    for value in values:
        answer = await listed(api, **{name: value})
        assert refusal(answer) == (400, "BAD_REQUEST"), value
        assert name in answer.json["message"], value


@pytest.mark.parametrize("code", ["", "EUR", "usd", "USDC", "THB ", "\x00", "X" * 5_000])
async def test_an_unknown_currency_is_refused_as_one(api: Api, code: str) -> None:
    answer = await listed(api, currency=code)
    assert refusal(answer) == (400, "INVALID_CURRENCY")
    assert len(answer.body) < 500


async def test_unknown_parameters_are_ignored(api: Api) -> None:
    created = await api.create()
    assert await pages(api, page=3, sort="asc", merchant_id=17) == [[created.json["id"]]]


@pytest.mark.parametrize(
    "same",
    [
        "2026-11-21T08:00:00.010Z",
        "2026-11-21T08:00:00.01Z",
        "2026-11-21T08:00:00.010000Z",
        "2026-11-21t08:00:00.010z",
        "2026-11-21T08:00:00.010+00:00",
        "2026-11-21T15:00:00.010+07:00",
        "2026-11-21T00:30:00.010-07:30",
    ],
)
async def test_a_time_may_have_any_offset_and_its_plus_may_be_left_as_it_is(
    api: Api, same: str
) -> None:
    await write_payments(api.world, 20)
    for text in (quote(same), same):  # a `+` in a query is a space
        newer = await send(api, f"created_from={text}")
        older = await send(api, f"created_to={text}")
        assert (len(newer.json["data"]), len(older.json["data"])) == (10, 10)
    between = await send(api, f"created_from={quote(same)}&created_to={quote(same)}")
    assert between.json == {"data": []}


async def test_the_ends_of_time_are_times(api: Api) -> None:
    created = await api.create()
    first, last = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
    assert await pages(api, created_from=first, created_to=last) == [[created.json["id"]]]
    assert await pages(api, created_from=last) == await pages(api, created_to=first) == [[]]


_NAMES = ["status", "currency", "payer_uid", "created_from", "created_to", "limit", "cursor"]
_GOOD = [*STATUSES, *CURRENCIES, "ann", "1", "100", "2026-11-21T08:00:00Z", cursor_of(10**15)]
_RAW = st.text(st.sampled_from("abcAZ019%&=+;:-._~/?@!$'()*,é٣\\\"<>[]{}|^`"), max_size=40)
_QUOTED = st.text(max_size=40).map(lambda text: quote(text, errors="surrogatepass"))
_VALUES = st.sampled_from(_GOOD).map(quote) | _RAW | _QUOTED | st.integers().map(str)
_PAIRS = st.tuples(st.sampled_from(_NAMES) | _QUOTED | _RAW, _VALUES)
_QUERY = st.lists(_PAIRS, max_size=5).map(
    lambda pairs: "&".join(f"{name}={value}" for name, value in pairs)
)


async def test_no_query_is_a_fault_of_ours(api: Api) -> None:
    await write_payments(api.world, 30)
    loop = asyncio.get_running_loop()
    seen: set[int] = set()

    async def ask(query: str) -> int:
        head = f"GET /v1/payments?{query} HTTP/1.1\r\nHost: pay.test\r\nConnection: close\r\n"
        key = f"Authorization: Bearer {api.world.api_key}\r\n\r\n"
        answer = await exchange(api.base, (head + key).encode())
        assert answer is not None
        return answer.status

    @examples(
        max_examples=400,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(query=_QUERY | _RAW)
    def answered(query: str) -> None:
        # Hypothesis runs in a thread, and the service in this loop.
        status = asyncio.run_coroutine_threadsafe(ask(query), loop).result(20)
        seen.add(status)
        assert status in {200, 400}, query

    await asyncio.to_thread(answered)
    assert seen == {200, 400}
