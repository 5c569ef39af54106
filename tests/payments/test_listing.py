"""`GET /payments`: its content, order and pages, even if payments change in between."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from payintent.core import ids
from payintent.core.money import CURRENCIES
from tests.support.api_lists import (
    START,
    Row,
    create_in_sequence,
    format_at,
    list_payments,
    pages,
    read_payments,
)
from tests.support.arrange import bring_to, cancel, payment_of, refusal
from tests.support.rows import STATUSES, write_payments
from tests.support.world import Api

PAYERS = ("ann", "bob", "eve")


async def test_payments_are_listed_newest_first_with_the_same_fields_as_single_reads(
    api: Api,
) -> None:
    payments = await create_in_sequence(api, 4)
    await bring_to(api, payments[1], "PAID")
    await bring_to(api, payments[2], "CANCELLED")
    answer = await list_payments(api)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert list(answer.json) == ["data"]
    expected = [(await api.get(item.json["id"])).json for item in reversed(payments)]
    assert answer.json["data"] == expected
    assert [item["status"] for item in expected] == ["PENDING", "CANCELLED", "PAID", "PENDING"]


async def test_a_merchant_without_payments_has_an_empty_list(api: Api) -> None:
    assert (await list_payments(api)).json == {"data": []}


async def test_a_page_has_twenty_payments_by_default_and_at_most_a_hundred(api: Api) -> None:
    await write_payments(api.world, 101)
    for limit, count, more in ((None, 20, True), (1, 1, True), (100, 100, True)):
        answer = await list_payments(api, **({} if limit is None else {"limit": limit}))
        assert (len(answer.json["data"]), "next_cursor" in answer.json) == (count, more)
    last = await list_payments(api, cursor=answer.json["next_cursor"])
    assert (len(last.json["data"]), "next_cursor" in last.json) == (1, False)


async def test_the_last_page_has_no_cursor(api: Api) -> None:
    await write_payments(api.world, 10)
    assert [len(page) for page in await pages(api, limit=5)] == [5, 5]


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


_QUERIES = st.fixed_dictionaries(
    {"limit": st.sampled_from([1, 2, 7, 20, 100])},
    optional={
        "status": st.sampled_from(STATUSES),
        "currency": st.sampled_from(sorted(CURRENCIES)),
        "payer_uid": st.sampled_from([*PAYERS, "nobody"]),
        "created_from": st.integers(-2, 70).map(
            lambda ms: format_at(START + timedelta(milliseconds=ms))
        ),
        "created_to": st.integers(-2, 70).map(
            lambda ms: format_at(START + timedelta(milliseconds=ms))
        ),
    },
)


@pytest.mark.full
async def test_every_combination_of_filters_lists_the_matching_payments(api: Api) -> None:
    # Payments with the same time are ordered by id.
    await write_payments(api.world, 320, at_once=5)
    await write_payments(api.world, 20, merchant_id=api.world.merchant_id + 1)
    rows, loop = await read_payments(api), asyncio.get_running_loop()
    assert len(rows) == 320

    @examples(
        max_examples=150,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(query=_QUERIES)
    def check_query(query: dict[str, Any]) -> None:
        expected = [row.id for row in rows if matches(row, query)]
        if len(expected) > 40 * query["limit"]:
            query["limit"] = 20  # because small pages would take too long
        listed_pages = asyncio.run_coroutine_threadsafe(pages(api, **query), loop).result(60)
        assert [item for page in listed_pages for item in page] == expected
        assert all(len(page) == query["limit"] for page in listed_pages[:-1])

    await asyncio.to_thread(check_query)


async def test_pages_have_no_gaps_or_duplicates_while_payments_are_created_and_change(
    api: Api,
) -> None:
    payments = await create_in_sequence(api, 40)
    listed_ids: list[str] = []
    cursor: dict[str, object] = {}
    for number in range(100):
        answer = await list_payments(api, limit=3, **cursor)
        listed_ids += [entry["id"] for entry in answer.json["data"]]
        if "next_cursor" not in answer.json:
            break
        cursor = {"cursor": answer.json["next_cursor"]}
        await api.create()
        for item in (payments[number], payments[-1 - number]):  # an unlisted and a listed payment
            await cancel(api, item)
    assert listed_ids == [entry.json["id"] for entry in reversed(payments)]


async def test_pages_of_a_status_list_payments_that_keep_the_status_exactly_once(api: Api) -> None:
    payments = await create_in_sequence(api, 30)
    leaving = payments[::5]
    listed_ids: list[str] = []
    cursor: dict[str, object] = {}
    for number in range(100):
        answer = await list_payments(api, limit=4, status="PENDING", **cursor)
        assert {item["status"] for item in answer.json["data"]} <= {"PENDING"}
        listed_ids += [item["id"] for item in answer.json["data"]]
        if "next_cursor" not in answer.json:
            break
        cursor = {"cursor": answer.json["next_cursor"]}
        if number < len(leaving):
            await cancel(api, leaving[number])
        await api.create()
    assert len(listed_ids) == len(set(listed_ids))
    staying = [item.json["id"] for item in reversed(payments) if item not in leaving]
    assert [item for item in listed_ids if item in staying] == staying


async def test_listing_elapsed_payments_expires_them_with_an_event(api: Api) -> None:
    payments = [await api.create(expires_in=60) for _ in range(5)]
    await api.world.move_clock(61)
    answer = await list_payments(api)
    assert [entry["status"] for entry in answer.json["data"]] == ["EXPIRED"] * 5
    assert all("expired_at" in entry and "expires_at" not in entry for entry in answer.json["data"])
    for item in payments:
        assert await api.world.events(await payment_of(api, item)) == ["payment.expired"]


async def test_elapsed_payments_are_listed_as_expired_and_not_as_pending(
    api: Api,
) -> None:
    live = await api.create()
    for _ in range(5):
        await api.create(expires_in=60)
    await api.world.move_clock(61)
    assert await pages(api, status="PENDING", limit=2) == [[live.json["id"]]]
    assert [len(page) for page in await pages(api, status="EXPIRED")] == [5]


async def test_elapsed_payments_are_not_listed_as_pending_even_if_there_are_many(api: Api) -> None:
    await write_payments(api.world, 5, statuses=("PENDING",))
    live = [row.id for row in await read_payments(api)]
    await write_payments(api.world, 200, statuses=("PENDING",), at_once=200)
    await api.world.rows(
        "UPDATE payment SET expires_at = clock() - interval '1 s', created_at = $2 "
        "WHERE merchant_id = $1 AND NOT (id = ANY($3::uuid[]))",
        api.world.merchant_id,
        START + timedelta(hours=1),  # newer than the pending payments
        [ids.parse_id(ids.PAYMENT, item) for item in live],
    )
    listed_pages = await pages(api, status="PENDING", limit=10)
    assert [item for page in listed_pages for item in page] == live
    rows = await api.world.rows("SELECT count(*) AS n, count(DISTINCT payment_id) AS d FROM event")
    expired = [row for row in await read_payments(api) if row.status == "EXPIRED"]
    assert rows[0]["n"] == rows[0]["d"] == len(expired) >= 50


async def test_a_list_does_not_contain_payments_of_other_merchants(api: Api) -> None:
    other_merchant = await api.world.add_merchant()
    payment = await api.create()
    assert (await list_payments(api, key=other_merchant.api_key)).json == {"data": []}
    assert await pages(api) == [[payment.json["id"]]]
    assert refusal(await list_payments(api, key="sk_live_nobody")) == (401, "UNAUTHORIZED")


async def test_a_cursor_is_only_a_position_and_grants_no_access(api: Api) -> None:
    """A cursor of a different merchant or filter is a position in the caller's list."""
    other_merchant = await api.world.add_merchant()
    await write_payments(api.world, 30)
    payment_ids = [row.id for row in await read_payments(api)]
    cursor = (await list_payments(api, limit=10)).json["next_cursor"]
    assert (await list_payments(api, key=other_merchant.api_key, cursor=cursor)).json == {
        "data": []
    }
    filtered = await list_payments(api, status="PAID", cursor=cursor, limit=100)
    expected = [
        row.id
        for row in await read_payments(api)
        if row.status == "PAID" and row.id in payment_ids[10:]
    ]
    assert [item["id"] for item in filtered.json["data"]] == expected


async def test_a_list_starts_at_the_older_of_its_cursor_and_created_to(api: Api) -> None:
    await write_payments(api.world, 40)
    rows = [row.id for row in await read_payments(api)]
    cursor = (await list_payments(api, limit=20)).json["next_cursor"]
    for end, first in ((START + timedelta(milliseconds=10), 30), (START + timedelta(days=1), 20)):
        answer = await list_payments(api, cursor=cursor, created_to=format_at(end), limit=100)
        assert [item["id"] for item in answer.json["data"]] == rows[first:]
