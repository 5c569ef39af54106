"""A merchant reads and lists its refunds, newest first, without the refunds of cases."""

from typing import Any
from uuid import uuid4

import pytest

from payintent.cases.model import CaseKind
from payintent.core import ids
from tests.refunds.requests import NOBODYS, REFUND, REFUNDS, ask, kept, listed, paid, read, send
from tests.support.arrange import payment_of, refusal
from tests.support.fakes import captured
from tests.support.world import Answer, Api


async def _read_all(api: Api, created: Answer, limit: int) -> list[list[dict[str, Any]]]:
    found: list[list[dict[str, Any]]] = []
    query = f"?limit={limit}"
    while len(found) < 100:
        answer = (await listed(api, created, query)).json
        found.append(answer["data"])
        if "next_cursor" not in answer:
            return found
        query = f"?limit={limit}&cursor={answer['next_cursor']}"
    raise AssertionError("the list does not end")


async def test_the_refunds_of_a_payment_are_paginated_newest_first(api: Api) -> None:
    created, other = await paid(api), await paid(api)
    assert (await listed(api, created)).json == {"data": []}
    made = [(await ask(api, created, amount=f"{n}.00")).json for n in range(1, 6)]
    await ask(api, other)
    await send(api.world)
    newest_first = sorted((item["id"] for item in made), reverse=True)
    for limit, sizes in ((2, [2, 2, 1]), (5, [5]), (4, [4, 1]), (100, [5])):
        pages = await _read_all(api, created, limit)
        assert [len(page) for page in pages] == sizes
        assert [item["id"] for page in pages for item in page] == newest_first
    [page] = await _read_all(api, created, 100)
    assert page == [(await read(api, item)).json for item in newest_first]
    assert {item["status"] for item in page} == {"SUCCEEDED"}


async def test_twenty_refunds_are_listed_by_default(api: Api) -> None:
    created = await paid(api)
    for _ in range(21):
        assert (await ask(api, created, amount="1.00")).status == 201
    answer = (await listed(api, created)).json
    assert len(answer["data"]) == 20
    rest = (await listed(api, created, f"?cursor={answer['next_cursor']}")).json
    assert (len(rest["data"]), "next_cursor" in rest) == (1, False)


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
    assert refusal(await listed(api, await paid(api), f"?{query}")) == (400, "BAD_REQUEST")


async def test_a_refund_is_accessible_only_to_its_merchant(api: Api) -> None:
    created = await paid(api)
    refund = await ask(api, created)
    assert (await read(api, refund.json["id"])).json == refund.json
    other = api.bearer((await api.world.add_merchant()).api_key)
    path = REFUND.format(refund_id=refund.json["id"])
    assert refusal(await api.send("GET", path, headers=other)) == (403, "FORBIDDEN")
    path = REFUNDS.format(payment_id=created.json["id"])
    assert refusal(await api.send("GET", path, headers=other)) == (403, "FORBIDDEN")
    keyed = other | {"Idempotency-Key": str(uuid4())}
    assert refusal(await api.send("POST", path, headers=keyed)) == (403, "FORBIDDEN")
    for unknown in (NOBODYS, refund.json["id"][:-1], refund.json["id"].replace("ref", "pay"), "x"):
        assert refusal(await read(api, unknown)) == (404, "NOT_FOUND"), unknown


async def test_a_refund_of_a_case_is_hidden_from_the_merchant(api: Api) -> None:
    """It is not part of the payment's amount, and belongs to the operator, not the merchant."""
    created = await paid(api)
    payment, world = await payment_of(api, created), api.world
    assert payment.session_id is not None
    await world.rows("UPDATE merchant SET auto_refund = true")
    await world.report(payment, payment.session_id, captured(159000, reference="cap-again"))
    assert await world.cases(payment) == [CaseKind.DOUBLE_PAYMENT]
    [refund] = await kept(world)
    assert refund["case_id"] is not None
    unseen = await read(api, ids.format_id(ids.REFUND, refund["id"]))
    assert refusal(unseen) == (404, "NOT_FOUND")
    assert (await listed(api, created)).json == {"data": []}
    await send(world)
    seen = (await api.get(created.json["id"])).json
    assert (seen["status"], seen["refunded_amount"]) == ("PAID", "0")
