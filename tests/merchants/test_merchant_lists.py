"""Merchants list the refunds of all payments, and disputes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from payintent.gateways.port import DisputeReport, DisputeState, VerifiedCallback
from tests.refunds.requests import ask, paid, send
from tests.support.arrange import refusal
from tests.support.world import Answer, Api


async def refunds(api: Api, query: str = "", key: str | None = None) -> Answer:
    return await api.send("GET", f"/v1/refunds{query}", headers=api.bearer(key))


async def disputes(api: Api, query: str = "", key: str | None = None) -> Answer:
    return await api.send("GET", f"/v1/disputes{query}", headers=api.bearer(key))


async def refund_of(api: Api, amount: str = "90.00") -> dict[str, Any]:
    return (await ask(api, await paid(api), amount=amount)).json


async def dispute(api: Api, payment_id: str, state: DisputeState = DisputeState.OPEN) -> None:
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
    assert (await refunds(api)).json == {"data": []}
    made = [await refund_of(api) for _ in range(5)]
    query, found = "?limit=2", list[str]()
    for size in (2, 2, 1):
        answer = await refunds(api, query)
        assert len(answer.json["data"]) == size
        found += ids_of(answer)
        query = f"?limit=2&cursor={answer.json.get('next_cursor')}"
    assert "next_cursor" not in answer.json
    assert found == [refund["id"] for refund in made[::-1]]
    await api.world.rows(
        "UPDATE refund SET updated_at = updated_at + interval '1 hour'"
        " WHERE id = (SELECT id FROM refund ORDER BY id LIMIT 1)"
    )
    assert ids_of(await refunds(api))[0] == made[0]["id"], "it has changed last"


async def test_a_listed_refund_equals_the_single_refund(api: Api) -> None:
    made = await refund_of(api)
    await send(api.world)
    [listed] = (await refunds(api)).json["data"]
    read = await api.send("GET", f"/v1/refunds/{made['id']}", headers=api.bearer())
    assert listed == read.json
    assert listed["status"] == "SUCCEEDED"


async def test_refunds_can_be_filtered_by_status_and_change_time(api: Api) -> None:
    done = await refund_of(api)
    await send(api.world)
    pending = await refund_of(api)
    assert ids_of(await refunds(api, "?status=SUCCEEDED")) == [done["id"]]
    assert ids_of(await refunds(api, "?status=PENDING")) == [pending["id"]]
    assert ids_of(await refunds(api, "?status=FAILED")) == []
    changed = datetime.fromisoformat(pending["updated_at"])
    before, after = changed, changed + timedelta(seconds=1)
    assert ids_of(await refunds(api, f"?updated_since={_text(before)}"))[0] == pending["id"]
    assert ids_of(await refunds(api, f"?updated_since={_text(after)}")) == []


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def test_disputes_are_listed_newest_first_and_can_be_filtered_by_status(api: Api) -> None:
    assert (await disputes(api)).json == {"data": []}
    made = [(await paid(api)).json["id"] for _ in range(3)]
    for payment_id in made:
        await dispute(api, payment_id)
    await dispute(api, made[1], DisputeState.WON)
    answer = await disputes(api, "?limit=2")
    assert ids_of(answer, "payment_id") == [made[2], made[1]]
    rest = await disputes(api, f"?cursor={answer.json['next_cursor']}")
    assert ids_of(rest, "payment_id") == [made[0]]
    assert ids_of(await disputes(api, "?status=RUNNING"), "payment_id") == [made[2], made[0]]
    [first] = rest.json["data"]
    assert first.pop("case_id").startswith("case_")
    assert first.pop("opened_at").endswith("Z")
    assert first.pop("updated_at").endswith("Z")
    assert first == {
        "payment_id": made[0],
        "state": "open",
        "funds": "untouched",
        "currency": "THB",
        "amount": "500.00",
        "reason": "fraudulent",
    }


async def test_a_merchant_lists_only_its_own_refunds_and_disputes(api: Api) -> None:
    other = await api.world.add_merchant()
    await refund_of(api)
    await dispute(api, (await paid(api)).json["id"])
    assert (await refunds(api, key=other.api_key)).json == {"data": []}
    assert (await disputes(api, key=other.api_key)).json == {"data": []}


@pytest.mark.parametrize(
    "query", ["status=DONE", "updated_since=yesterday", "limit=0", "limit=101", "cursor=x"]
)
async def test_invalid_query_parameters_are_refused(api: Api, query: str) -> None:
    assert refusal(await refunds(api, f"?{query}")) == (400, "BAD_REQUEST")
    if not query.startswith("updated_since"):
        assert refusal(await disputes(api, f"?{query}")) == (400, "BAD_REQUEST")
