"""Merchants list their disputes, and the refunds of all their payments."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from payintent.gateways.port import DisputeReport, DisputeState, VerifiedCallback
from tests.refunds.requests import create_paid, post_refund, process_refunds
from tests.support.arrange import refusal
from tests.support.world import Answer, Api


async def list_refunds(api: Api, query: str = "", key: str | None = None) -> Answer:
    return await api.send("GET", f"/v1/refunds{query}", headers=api.bearer(key))


async def list_disputes(api: Api, query: str = "", key: str | None = None) -> Answer:
    return await api.send("GET", f"/v1/disputes{query}", headers=api.bearer(key))


async def create_refund(api: Api, amount: str = "90.00") -> dict[str, Any]:
    return (await post_refund(api, await create_paid(api), amount=amount)).json


async def report_dispute(
    api: Api, payment_id: str, state: DisputeState = DisputeState.OPEN
) -> None:
    report = DisputeReport(
        reference=f"du-{payment_id}",
        capture=f"cap-{payment_id}",
        state=state,
        amount_minor=50000,
        currency="THB",
        reason="fraudulent",
    )
    callback = VerifiedCallback(id=f"evt-{payment_id}-{state}", dispute=report)
    await api.world.service.callback_receiver.receive(api.world.account_id, callback, b"")


def ids_of(answer: Answer, name: str = "id") -> list[str]:
    return [entry[name] for entry in answer.json["data"]]


async def test_refunds_are_paginated_by_their_last_change(api: Api) -> None:
    assert (await list_refunds(api)).json == {"data": []}
    refund_list = [await create_refund(api) for _ in range(5)]
    query, refund_ids = "?limit=2", list[str]()
    for size in (2, 2, 1):
        answer = await list_refunds(api, query)
        assert len(answer.json["data"]) == size
        refund_ids += ids_of(answer)
        query = f"?limit=2&cursor={answer.json.get('next_cursor')}"
    assert "next_cursor" not in answer.json
    assert refund_ids == [refund["id"] for refund in refund_list[::-1]]
    await api.world.rows(
        "UPDATE refund SET updated_at = updated_at + interval '1 hour'"
        " WHERE id = (SELECT id FROM refund ORDER BY id LIMIT 1)"
    )
    assert ids_of(await list_refunds(api))[0] == refund_list[0]["id"], (
        "the last changed refund comes first"
    )


async def test_a_listed_refund_equals_the_single_refund(api: Api) -> None:
    created = await create_refund(api)
    await process_refunds(api.world)
    [list_entry] = (await list_refunds(api)).json["data"]
    read = await api.send("GET", f"/v1/refunds/{created['id']}", headers=api.bearer())
    assert list_entry == read.json
    assert list_entry["status"] == "SUCCEEDED"


async def test_refunds_can_be_filtered_by_status_and_change_time(api: Api) -> None:
    succeeded = await create_refund(api)
    await process_refunds(api.world)
    pending = await create_refund(api)
    assert ids_of(await list_refunds(api, "?status=SUCCEEDED")) == [succeeded["id"]]
    assert ids_of(await list_refunds(api, "?status=PENDING")) == [pending["id"]]
    assert ids_of(await list_refunds(api, "?status=FAILED")) == []
    changed_at = datetime.fromisoformat(pending["updated_at"])
    before, after = changed_at, changed_at + timedelta(seconds=1)
    assert ids_of(await list_refunds(api, f"?updated_since={_text(before)}"))[0] == pending["id"]
    assert ids_of(await list_refunds(api, f"?updated_since={_text(after)}")) == []


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def test_disputes_are_listed_newest_first_and_can_be_filtered_by_status(api: Api) -> None:
    assert (await list_disputes(api)).json == {"data": []}
    payment_ids = [(await create_paid(api)).json["id"] for _ in range(3)]
    for payment_id in payment_ids:
        await report_dispute(api, payment_id)
    await report_dispute(api, payment_ids[1], DisputeState.WON)
    answer = await list_disputes(api, "?limit=2")
    assert ids_of(answer, "payment_id") == [payment_ids[2], payment_ids[1]]
    next_page = await list_disputes(api, f"?cursor={answer.json['next_cursor']}")
    assert ids_of(next_page, "payment_id") == [payment_ids[0]]
    assert ids_of(await list_disputes(api, "?status=RUNNING"), "payment_id") == [
        payment_ids[2],
        payment_ids[0],
    ]
    [first] = next_page.json["data"]
    assert first.pop("case_id").startswith("case_")
    assert first.pop("opened_at").endswith("Z")
    assert first.pop("updated_at").endswith("Z")
    assert first == {
        "payment_id": payment_ids[0],
        "state": "open",
        "funds": "untouched",
        "currency": "THB",
        "amount": "500.00",
        "reason": "fraudulent",
    }


async def test_a_merchant_lists_only_its_own_refunds_and_disputes(api: Api) -> None:
    other_merchant = await api.world.add_merchant()
    await create_refund(api)
    await report_dispute(api, (await create_paid(api)).json["id"])
    assert (await list_refunds(api, key=other_merchant.api_key)).json == {"data": []}
    assert (await list_disputes(api, key=other_merchant.api_key)).json == {"data": []}


@pytest.mark.parametrize(
    "query", ["status=DONE", "updated_since=yesterday", "limit=0", "limit=101", "cursor=x"]
)
async def test_invalid_query_parameters_are_refused(api: Api, query: str) -> None:
    assert refusal(await list_refunds(api, f"?{query}")) == (400, "BAD_REQUEST")
    if not query.startswith("updated_since"):
        assert refusal(await list_disputes(api, f"?{query}")) == (400, "BAD_REQUEST")
