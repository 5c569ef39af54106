"""Merchants create, read, list and deactivate payment links over the API."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from payintent.merchants.access_operations import IssueApiKey
from tests.payment_links.link_setup import post_link, token_of
from tests.support.world import Api


async def get(api: Api, path: str, key: str | None = None) -> Any:
    return await api.send("GET", f"/v1/payment-links{path}", headers=api.bearer(key))


async def test_a_link_has_its_terms_and_a_url_on_the_checkout_host(api: Api) -> None:
    created = await post_link(api, description="Saturday, 10 am", order_id="W-7", max_uses=12)
    assert created.status == 201
    link = created.json
    assert link["url"].startswith("http://pay.test/c/link/lnk_")
    assert link["id"].startswith("plink_")
    assert {name: link[name] for name in ("status", "title", "amount", "max_uses", "uses")} == {
        "status": "OPEN",
        "title": "Workshop",
        "amount": "1590.00",
        "max_uses": 12,
        "uses": 0,
    }
    assert None not in link.values()
    assert (await get(api, f"/{link['id']}")).body == created.body


async def test_an_open_amount_has_the_limits_of_the_link(api: Api) -> None:
    link = (await post_link(api, amount=None, amount_min="20", amount_max="500.50")).json
    assert "amount" not in link
    assert (link["amount_min"], link["amount_max"]) == ("20.00", "500.50")


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"title": ""}, 400, "BAD_REQUEST"),
        ({"title": "x" * 121}, 400, "BAD_REQUEST"),
        ({"title": None}, 400, "BAD_REQUEST"),
        ({"description": "x" * 501}, 400, "BAD_REQUEST"),
        ({"order_id": "x" * 121}, 400, "BAD_REQUEST"),
        ({"amount_min": "5"}, 422, "UNPROCESSABLE"),  # in addition to an amount
        ({"amount": "1.2.3"}, 400, "INVALID_AMOUNT"),
        ({"amount": "0"}, 422, "INVALID_AMOUNT"),
        ({"amount": "1.234"}, 422, "INVALID_AMOUNT"),
        ({"amount": None, "amount_min": "9", "amount_max": "8"}, 422, "INVALID_AMOUNT"),
        ({"currency": "XXX"}, 400, "INVALID_CURRENCY"),
        ({"currency": "USDT"}, 422, "UNSUPPORTED_CURRENCY"),
        ({"return_url": "javascript:alert(1)"}, 400, "BAD_REQUEST"),
        ({"return_url": "https://evil.test/"}, 400, "BAD_REQUEST"),
        ({"cancel_url": "https://evil.test/"}, 400, "BAD_REQUEST"),
        ({"max_uses": 0}, 400, "BAD_REQUEST"),
        ({"max_uses": 10_001}, 400, "BAD_REQUEST"),
        ({"max_uses": True}, 400, "BAD_REQUEST"),
        ({"expires_at": "tomorrow"}, 400, "BAD_REQUEST"),
        ({"expires_at": "2026-01-01T00:00:00Z"}, 422, "UNPROCESSABLE"),
    ],
)
async def test_impossible_terms_are_refused_and_not_stored(
    api: Api, changes: dict[str, Any], status: int, code: str
) -> None:
    refused = await post_link(api, **changes)
    assert (refused.status, refused.json["code"]) == (status, code)
    assert (await get(api, "")).json == {"data": []}


async def test_a_repeated_key_replays_the_link_and_another_request_conflicts(api: Api) -> None:
    key = str(uuid4())
    first = await post_link(api, key)
    again = await post_link(api, key, amount="1590.0")
    assert again.json == first.json
    assert again.headers["Idempotency-Replayed"] == "true"
    other = await post_link(api, key, amount="1590.01")
    assert (other.status, other.json["code"]) == (409, "IDEMPOTENCY_CONFLICT")
    assert len((await get(api, "")).json["data"]) == 1


async def test_a_repeated_key_replays_the_link_after_its_deadline(api: Api) -> None:
    key, world = str(uuid4()), api.world
    expires_at = (datetime.now(UTC) + timedelta(minutes=1)).isoformat()
    first = await post_link(api, key, expires_at=expires_at)
    await world.move_clock(61)
    again = await post_link(api, key, expires_at=expires_at)
    assert (again.status, again.json["id"]) == (201, first.json["id"])
    assert again.json["status"] == "EXPIRED"


@pytest.mark.parametrize(
    "expires_at",
    ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59-14:00"],
)
async def test_a_link_without_a_practical_deadline_is_shown_and_listed(
    api: Api, expires_at: str
) -> None:
    link = await post_link(api, expires_at=expires_at)
    assert (link.status, link.json["expires_at"]) == (201, "9999-12-31T23:59:59.000Z")
    assert (await get(api, "")).json == {"data": [link.json]}
    assert (await api.send("GET", f"/c/link/{token_of(link)}")).status == 200


async def test_a_key_is_required(api: Api) -> None:
    answer = await api.send("POST", "/v1/payment-links", json={}, headers=api.bearer())
    assert (answer.status, answer.json["message"]) == (400, "Idempotency-Key is required")


async def test_links_are_paginated_newest_first(api: Api) -> None:
    ids = [(await post_link(api, title=f"Link {number}")).json["id"] for number in range(3)]
    page = (await get(api, "?limit=2")).json
    rest = (await get(api, f"?limit=2&cursor={page['next_cursor']}")).json
    assert [link["id"] for link in page["data"] + rest["data"]] == ids[::-1]
    assert "next_cursor" not in rest


async def test_a_deactivated_link_stays_inactive(api: Api) -> None:
    link = (await post_link(api)).json
    path = f"/v1/payment-links/{link['id']}/deactivate"
    answers = [await api.send("POST", path, headers=api.bearer()) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert answers[0].json["status"] == "INACTIVE"
    assert answers[1].json == answers[0].json


async def test_a_link_of_another_merchant_or_the_other_mode_is_not_accessible(
    api: Api,
) -> None:
    link = (await post_link(api)).json
    other = await api.world.add_merchant()
    tester = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    for method, path in (("GET", ""), ("POST", "/deactivate")):
        url = f"/v1/payment-links/{link['id']}{path}"
        answers = [
            await api.send(method, url, headers=api.bearer(key))
            for key in (other.api_key, tester.api_key)
        ]
        assert [answer.status for answer in answers] == [403, 404]
        assert all("Workshop" not in answer.body.decode() for answer in answers)
    assert (await get(api, "", tester.api_key)).json == {"data": []}
    assert (await get(api, f"/{link['id']}")).json["status"] == "OPEN"


async def test_a_suspended_merchant_creates_no_links(api: Api) -> None:
    await api.world.rows("UPDATE merchant SET activation = 'SUSPENDED'")
    refused = await post_link(api)
    assert (refused.status, refused.json["code"]) == (422, "UNPROCESSABLE")


@pytest.mark.parametrize("link_id", ["plink_0", "pay_0000000000000000000000", "%00"])
async def test_an_unknown_link_is_not_found(api: Api, link_id: str) -> None:
    assert (await get(api, f"/{link_id}")).status == 404
