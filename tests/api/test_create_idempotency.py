"""One key, one payment: whatever is sent again, and whatever happened meanwhile."""

import asyncio
import json
import re
from uuid import uuid4

import pytest

from tests.api.arrange import BODY, bring_to, count, document, post, refusal
from tests.support.world import Api

pytestmark = pytest.mark.usefixtures("dialect")

_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
_GOLDEN = re.compile(
    r'{"id":"pay_[0-9A-Za-z]{22}","checkout_id":"(cs_[0-9A-Za-z]{16})","merchant_id":(\d+),'
    r'"status":"PENDING","currency":"THB","amount":"1590.00","payer_uid":"buyer-1",'
    r'"tax_amount":"0","refunded_amount":"0","include_pegged_assets":true,"tax_manager":"NONE",'
    rf'"created_at":"({_TIME})","updated_at":"({_TIME})","expires_at":"({_TIME})",'
    r'"metadata":{ "order_id" : "A-1" },'
    r'"checkout_url":"http://pay.test/c/(cs_[0-9A-Za-z]{16})\?country=TH"}'
)
_REPLAYED = "Idempotency-Replayed"


async def test_the_created_payment_is_written_as_promised_byte_for_byte(api: Api) -> None:
    answer = await post(api, document(country='"TH"', metadata='{ "order_id" : "A-1" }'))
    assert answer.status == 201
    assert _REPLAYED not in answer.headers
    assert answer.headers["Content-Type"] == "application/json"
    golden = _GOLDEN.fullmatch(answer.body.decode())
    assert golden, answer.body
    checkout_id, merchant_id, created_at, updated_at, expires_at, in_url = golden.groups()
    assert (checkout_id, int(merchant_id)) == (in_url, api.world.merchant_id)
    assert created_at == updated_at < expires_at


@pytest.mark.parametrize("status", ["PENDING", "PROCESSING", "PAID", "CANCELLED", "EXPIRED"])
async def test_a_replay_has_the_bytes_of_the_first_answer_whatever_the_payment_is_by_now(
    api: Api, status: str
) -> None:
    key = str(uuid4())
    body = document(country='"TH"', metadata='{"b":1.0, "a":[]}', payer_email='"a@example.com"')
    first = await post(api, body, Idempotency_Key=key)
    await bring_to(api, first, status)
    again = await post(api, body, Idempotency_Key=key)
    assert (again.status, again.body) == (201, first.body)
    assert again.headers[_REPLAYED] == "true"
    assert again.json["checkout_url"].endswith("?country=TH")
    assert await count(api) == 1


async def test_another_body_under_the_same_key_is_a_conflict(api: Api) -> None:
    key = str(uuid4())
    first = {
        **BODY,
        "payer_email": "a@example.com",
        "expires_in": 60,
        "country": "TH",
        "metadata": {"a": 1},
        "include_pegged_assets": True,
    }
    assert (await post(api, json.dumps(first).encode(), Idempotency_Key=key)).status == 201
    others = {
        "currency": "USD",
        "amount": "1590.0",
        "payer_uid": "buyer-2",
        "payer_email": "b@example.com",
        "expires_in": 61,
        "country": "JP",
        "metadata": {"a": 2},
        "include_pegged_assets": False,
    }
    told = {
        name: refusal(
            await post(api, json.dumps(first | {name: value}).encode(), Idempotency_Key=key)
        )
        for name, value in others.items()
    }
    assert told == dict.fromkeys(others, (409, "IDEMPOTENCY_CONFLICT"))
    left_out = json.dumps({k: v for k, v in first.items() if k != "country"}).encode()
    assert refusal(await post(api, left_out, Idempotency_Key=key))[0] == 409
    assert await count(api) == 1


async def test_the_same_fields_in_another_order_spacing_or_spelling_replay(api: Api) -> None:
    key = str(uuid4())
    sent = b'{"currency":"THB","amount":"1590.00","payer_uid":"buyer-1","metadata":{"a": 1}}'
    first = await post(api, sent, Idempotency_Key=key)
    for same in (
        b'\n{ "payer_uid" : "buyer-1", "metadata":{"a": 1}, "amount":"1590.00","currency":"THB" } ',
        sent.replace(b"THB", b"\\u0054HB").replace(b"1590", b"15\\u00390"),
        sent.replace(b"{", b'{"unknown":[1],"country":null,', 1),
    ):
        again = await post(api, same, Idempotency_Key=key)
        assert (again.status, again.body) == (201, first.body)
    other_bytes = sent.replace(b'{"a": 1}', b'{"a":1}')
    assert refusal(await post(api, other_bytes, Idempotency_Key=key))[0] == 409


async def test_a_key_is_a_uuid_in_any_case_with_or_without_quotes(api: Api) -> None:
    key = "0c5e6a1e-9b6f-4a3e-8a44-1bd0f8d6c7ef"
    first = await post(api, document(), Idempotency_Key=key)
    for same in (key.upper(), f'"{key}"', f"  {key}  "):
        again = await post(api, document(), Idempotency_Key=same)
        assert (again.status, again.body) == (201, first.body), same


async def test_a_missing_or_bad_key_is_refused(api: Api) -> None:
    json_type = {"Content-Type": "application/json"}
    missing = await api.send(
        "POST", "/v1/payments", data=document(), headers=api.bearer() | json_type
    )
    assert refusal(missing) == (400, "BAD_REQUEST")
    assert "Idempotency-Key" in missing.json["message"]
    good = str(uuid4())
    for bad in (
        "",
        "1",
        good[:-1],
        good + "0",
        good.replace("-", ""),
        f"{{{good}}}",
        "g" + good[1:],
    ):
        answer = await post(api, document(), Idempotency_Key=bad)
        assert refusal(answer) == (400, "BAD_REQUEST"), bad
    assert await count(api) == 0


async def test_a_refused_request_leaves_its_key_free(api: Api) -> None:
    key = str(uuid4())
    for bad in (document(amount='"0"'), document(country='"KR"'), document(metadata="[]")):
        assert (await post(api, bad, Idempotency_Key=key)).status in {400, 422}
    answer = await post(api, document(), Idempotency_Key=key)
    assert answer.status == 201
    assert _REPLAYED not in answer.headers


async def test_a_finished_key_replays_though_the_merchant_could_not_create_by_now(api: Api) -> None:
    key = str(uuid4())
    first = await post(api, document(), Idempotency_Key=key)
    await api.world.rows("UPDATE payment_method SET enabled = false")
    assert refusal(await post(api, document())) == (422, "UNSUPPORTED_CURRENCY")
    again = await post(api, document(), Idempotency_Key=key)
    assert (again.status, again.body, again.headers[_REPLAYED]) == (201, first.body, "true")
    other = await post(api, document(payer_uid='"x"'), Idempotency_Key=key)
    assert refusal(other) == (409, "IDEMPOTENCY_CONFLICT")


async def test_a_key_lives_for_24_hours(api: Api) -> None:
    key = str(uuid4())
    first = await post(api, document(), Idempotency_Key=key)
    await api.world.move_clock(24 * 3600 - 60)
    assert (await post(api, document(), Idempotency_Key=key)).body == first.body
    await api.world.move_clock(24 * 3600)
    later = await post(api, document(amount='"1.00"'), Idempotency_Key=key)
    assert later.status == 201
    assert _REPLAYED not in later.headers
    assert later.json["id"] != first.json["id"]
    again = await post(api, document(amount='"1.00"'), Idempotency_Key=key)
    assert (again.body, again.headers[_REPLAYED]) == (later.body, "true")


async def test_two_merchants_may_use_one_key(api: Api) -> None:
    other = await api.world.other_merchant()
    key = str(uuid4())
    mine = await post(api, document(), Idempotency_Key=key)
    theirs = await post(
        api, document(), Idempotency_Key=key, Authorization=f"Bearer {other.api_key}"
    )
    assert (mine.status, theirs.status) == (201, 201)
    assert mine.json["merchant_id"] != theirs.json["merchant_id"]


async def test_two_hundred_creates_at_once_with_one_key_make_one_payment(api: Api) -> None:
    key = str(uuid4())
    answers = await asyncio.gather(
        *(post(api, document(), Idempotency_Key=key) for _ in range(200))
    )
    assert {answer.status for answer in answers} == {201}
    assert len({answer.body for answer in answers}) == 1
    assert sum(_REPLAYED not in answer.headers for answer in answers) == 1
    assert (await count(api), await count(api, "checkout")) == (1, 1)
