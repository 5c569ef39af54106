"""A merchant reads and lists its refunds, newest first, except refunds of cases."""

from typing import Any
from uuid import uuid4

import pytest

from payintent.cases.model import CaseKind
from payintent.core import ids
from tests.refunds.requests import (
    REFUND,
    REFUNDS,
    UNKNOWN_REFUND,
    create_paid,
    get_refund,
    get_refunds,
    post_refund,
    process_refunds,
    read_stored_refunds,
)
from tests.support.arrange import payment_of, refusal
from tests.support.fakes import captured
from tests.support.world import Answer, Api


async def _read_all(api: Api, created: Answer, limit: int) -> list[list[dict[str, Any]]]:
    pages: list[list[dict[str, Any]]] = []
    query = f"?limit={limit}"
    while len(pages) < 100:
        answer = (await get_refunds(api, created, query)).json
        pages.append(answer["data"])
        if "next_cursor" not in answer:
            return pages
        query = f"?limit={limit}&cursor={answer['next_cursor']}"
    raise AssertionError("the list does not end")


async def test_the_refunds_of_a_payment_are_paginated_newest_first(api: Api) -> None:
    created, second_payment = await create_paid(api), await create_paid(api)
    assert (await get_refunds(api, created)).json == {"data": []}
    refunds = [(await post_refund(api, created, amount=f"{n}.00")).json for n in range(1, 6)]
    await post_refund(api, second_payment)
    await process_refunds(api.world)
    newest_first = sorted((item["id"] for item in refunds), reverse=True)
    for limit, sizes in ((2, [2, 2, 1]), (5, [5]), (4, [4, 1]), (100, [5])):
        pages = await _read_all(api, created, limit)
        assert [len(page) for page in pages] == sizes
        assert [item["id"] for page in pages for item in page] == newest_first
    [page] = await _read_all(api, created, 100)
    assert page == [(await get_refund(api, item)).json for item in newest_first]
    assert {item["status"] for item in page} == {"SUCCEEDED"}


async def test_twenty_refunds_are_listed_by_default(api: Api) -> None:
    created = await create_paid(api)
    for _ in range(21):
        assert (await post_refund(api, created, amount="1.00")).status == 201
    answer = (await get_refunds(api, created)).json
    assert len(answer["data"]) == 20
    second_page = (await get_refunds(api, created, f"?cursor={answer['next_cursor']}")).json
    assert (len(second_page["data"]), "next_cursor" in second_page) == (1, False)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=101",
        "limit=x",
        "limit=",
        "cursor=",
        "cursor=x",
        "cursor=%F0",
        "cursor=AAAA",
        "cursor=AZzzzzzzzzzzzzzzzzzzzw==AAAA",
    ],
)
async def test_an_invalid_limit_or_cursor_is_refused(api: Api, query: str) -> None:
    assert refusal(await get_refunds(api, await create_paid(api), f"?{query}")) == (
        400,
        "BAD_REQUEST",
    )


async def test_a_refund_is_accessible_only_to_its_merchant(api: Api) -> None:
    created = await create_paid(api)
    refund = await post_refund(api, created)
    assert (await get_refund(api, refund.json["id"])).json == refund.json
    headers = api.bearer((await api.world.add_merchant()).api_key)
    path = REFUND.format(refund_id=refund.json["id"])
    assert refusal(await api.send("GET", path, headers=headers)) == (403, "FORBIDDEN")
    path = REFUNDS.format(payment_id=created.json["id"])
    assert refusal(await api.send("GET", path, headers=headers)) == (403, "FORBIDDEN")
    headers_with_key = headers | {"Idempotency-Key": str(uuid4())}
    assert refusal(await api.send("POST", path, headers=headers_with_key)) == (403, "FORBIDDEN")
    for unknown in (
        UNKNOWN_REFUND,
        refund.json["id"][:-1],
        refund.json["id"].replace("ref", "pay"),
        "x",
    ):
        assert refusal(await get_refund(api, unknown)) == (404, "NOT_FOUND"), unknown


async def test_a_refund_of_a_case_is_hidden_from_the_merchant(api: Api) -> None:
    """The refunded money is not part of the payment, and its refund belongs to the operator."""
    created = await create_paid(api)
    payment, world = await payment_of(api, created), api.world
    assert payment.session_id is not None
    await world.rows("UPDATE merchant SET auto_refund = true")
    await world.report(payment, payment.session_id, captured(159000, reference="cap-again"))
    assert await world.cases(payment) == [CaseKind.DOUBLE_PAYMENT]
    [refund] = await read_stored_refunds(world)
    assert refund["case_id"] is not None
    hidden_refund = await get_refund(api, ids.format_id(ids.REFUND, refund["id"]))
    assert refusal(hidden_refund) == (404, "NOT_FOUND")
    assert (await get_refunds(api, created)).json == {"data": []}
    await process_refunds(world)
    payment_view = (await api.get(created.json["id"])).json
    assert (payment_view["status"], payment_view["refunded_amount"]) == ("PAID", "0")
