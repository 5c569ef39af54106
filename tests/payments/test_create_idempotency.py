"""A key creates a single payment, even if its request is repeated."""

import asyncio
import hashlib
import json
import re
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from payintent.merchants.access_operations import IssueApiKey
from payintent.payments.idempotency_store import compute_request_fingerprint
from tests.http.builtin_gateway import side
from tests.support.arrange import BODY, bring_to, count, document, post, refusal
from tests.support.world import Api

__all__ = ["side"]


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


async def test_the_created_payment_has_the_documented_json_byte_for_byte(api: Api) -> None:
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
async def test_a_replay_repeats_the_first_response_in_every_payment_status(
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


async def test_a_different_body_with_the_same_key_is_a_conflict(api: Api) -> None:
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
    changes = {
        "currency": "USD",
        "amount": "1590.01",
        "payer_uid": "buyer-2",
        "payer_email": "b@example.com",
        "expires_in": 61,
        "country": "JP",
        "metadata": {"a": 2},
        "include_pegged_assets": False,
    }
    refusals = {
        name: refusal(
            await post(api, json.dumps(first | {name: value}).encode(), Idempotency_Key=key)
        )
        for name, value in changes.items()
    }
    assert refusals == dict.fromkeys(changes, (409, "IDEMPOTENCY_CONFLICT"))
    without_country = json.dumps({k: v for k, v in first.items() if k != "country"}).encode()
    assert refusal(await post(api, without_country, Idempotency_Key=key))[0] == 409
    assert await count(api) == 1


async def test_the_same_fields_in_another_order_spacing_or_escaping_are_replayed(api: Api) -> None:
    key = str(uuid4())
    body = b'{"currency":"THB","amount":"1590.00","payer_uid":"buyer-1","metadata":{"a": 1}}'
    first = await post(api, body, Idempotency_Key=key)
    for variant in (
        b'\n{ "payer_uid" : "buyer-1", "metadata":{"a": 1}, "amount":"1590.00","currency":"THB" } ',
        body.replace(b"THB", b"\\u0054HB").replace(b"1590", b"15\\u00390"),
        body.replace(b"{", b'{"unknown":[1],"country":null,', 1),
    ):
        again = await post(api, variant, Idempotency_Key=key)
        assert (again.status, again.body) == (201, first.body)


_METADATA = '{"name": "caf\\u00e9", "list": [1, 1.50], "deep": {"b": null, "a": "\\ud83d"}}'
_EQUIVALENT_METADATA = (
    '{"deep":{"a":"\\uD83D","b":null},"list":[1,1.50],"name":"café"}',
    '{ "list" : [ 1 , 1.50 ], "name":"c\\u0061f\\u00E9", "deep":{"b":null,"a":"\\ud83d"} }',
)
_DIFFERENT_METADATA = (
    _METADATA.replace("1.50", "1.5"),
    _METADATA.replace("[1,", "[1.0,"),
    _METADATA.replace("[1, 1.50]", "[1.50, 1]"),
    _METADATA.replace("[1, 1.50]", '["1", 1.50]'),
    _METADATA.replace("null", "{}"),
    _METADATA.replace("ud83d", "ud83e"),
    _METADATA.replace("u00e9", "u00c9"),
    _METADATA.replace('"name"', '"name ": 1, "name"'),
)


async def test_metadata_is_compared_by_structure_and_its_numbers_as_text(
    api: Api,
) -> None:
    key = str(uuid4())
    first = await post(api, document(metadata=_METADATA), Idempotency_Key=key)
    assert _METADATA in first.body.decode()
    for variant in _EQUIVALENT_METADATA:
        again = await post(api, document(metadata=variant), Idempotency_Key=key)
        assert (again.status, again.body) == (201, first.body), variant
    for changed in _DIFFERENT_METADATA:
        conflict = await post(api, document(metadata=changed), Idempotency_Key=key)
        assert refusal(conflict) == (409, "IDEMPOTENCY_CONFLICT"), changed
    assert await count(api) == 1


_DEFAULTS = {
    "expires_in": ("0", "1800", "null"),
    "include_pegged_assets": ("true", "null"),
    "metadata": ("{}", "null", "{ }"),
    "amount": ('"1590.0"', '"1590"'),
}


@pytest.mark.parametrize("field", _DEFAULTS)
async def test_an_explicit_default_value_is_replayed(api: Api, field: str) -> None:
    key = str(uuid4())
    first = await post(api, document(), Idempotency_Key=key)
    for value in _DEFAULTS[field]:
        again = await post(api, document(**{field: value}), Idempotency_Key=key)
        assert (again.status, again.body) == (201, first.body), value


async def test_a_replay_after_the_test_clock_advanced_repeats_the_first_response(
    api: Api,
) -> None:
    issued = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    world = replace(api.world, merchant_id=issued.merchant_id, api_key=issued.api_key)
    key, body = str(uuid4()), document(expires_in="7200")
    async with Api(api.base, world) as test:
        first = await post(test, body, Idempotency_Key=key)
        for seconds in (600, 3600):
            path, advance = "/v1/test/clock/advance", {"seconds": seconds}
            response = await test.send("POST", path, json=advance, headers=test.bearer())
            assert response.json["moved"]["payments"] == 1
            again = await post(test, body, Idempotency_Key=key)
            assert (again.status, again.body) == (201, first.body)


async def test_request_fingerprints_are_versioned_and_stable_if_a_field_is_added(
    api: Api,
) -> None:
    """If these bytes change, retries across an update get a 409. Add a version instead."""
    golden = {
        b'{"currency":"THB","amount":"1590.00","payer_uid":"buyer-1"}': (
            "01b523815d882f1bcb86c57bd3150a75b1fb151301c46cc2d684deca07d5d92c21"
        ),
        document(country='"TH"', payer_email='"a@example.com"', metadata='{"b":[1.0],"a":"é"}'): (
            "01609d01c9142f4eae6a7f837fe0bd2b8729568378283edf2f99a9561725d12d80"
        ),
    }
    for body, fingerprint in golden.items():
        key = uuid4()
        assert (await post(api, body, Idempotency_Key=str(key))).status == 201
        [row] = await api.world.rows("SELECT request_hash FROM idempotency WHERE key = $1", key)
        assert row["request_hash"].hex() == fingerprint
    first_payment = str(UUID(int=1))
    assert compute_request_fingerprint("cancel", payment=first_payment, added_later=None).hex() == (
        "018de54d0bc51276921952cfb501b65a1df741b7122fc3f5792b808d8f0338a51a"
    )


async def test_a_create_with_an_unversioned_fingerprint_is_replayed(api: Api) -> None:
    key = uuid4()
    body = document(metadata='{"a": 1.0}', expires_in="60")
    first = await post(api, body, Idempotency_Key=str(key))
    fields = ["create", BODY["currency"], BODY["amount"], BODY["payer_uid"], None, 60, None, None]
    fingerprint = hashlib.sha256(
        json.dumps([*fields, '{"a": 1.0}'], separators=(",", ":")).encode()
    )
    await api.world.rows(
        "UPDATE idempotency SET request_hash = $1 WHERE key = $2", fingerprint.digest(), key
    )
    again = await post(api, body, Idempotency_Key=str(key))
    assert (again.status, again.body) == (201, first.body)
    changed = await post(api, document(metadata='{"a": 2.0}'), Idempotency_Key=str(key))
    assert refusal(changed) == (409, "IDEMPOTENCY_CONFLICT")


@pytest.mark.parametrize("number", ["{}", "-{}", "0.{}", "{}e5", "1e{}", '{{"a":[{}]}}'])
async def test_a_number_in_metadata_has_at_most_1000_digits(api: Api, number: str) -> None:
    def metadata(digits: int) -> str:
        fixed_digits = sum(char.isdigit() for char in number)
        return f'{{"n": {number.format("9" * (digits - fixed_digits))}}}'

    longest = await post(api, document(metadata=metadata(1_000)))
    assert longest.status == 201, longest.body
    assert metadata(1_000) in longest.body.decode()
    response = await post(api, document(metadata=metadata(1_001)))
    assert refusal(response) == (400, "BAD_REQUEST")
    assert "1000 digits" in response.json["message"]
    text = await post(api, document(metadata=f'{{"n": "{"9" * 5_000}"}}'))
    assert text.status == 201


async def test_a_key_is_a_uuid_in_any_case_with_or_without_quotes(api: Api) -> None:
    key = "0c5e6a1e-9b6f-4a3e-8a44-1bd0f8d6c7ef"
    first = await post(api, document(), Idempotency_Key=key)
    for variant in (key.upper(), f'"{key}"', f"  {key}  "):
        again = await post(api, document(), Idempotency_Key=variant)
        assert (again.status, again.body) == (201, first.body), variant


def _malformed_keys(key: str) -> list[str]:
    return [f'"{key}', f'{key}"', f'""{key}""', f'"{key}""', f"'{key}'", '"', '""', f'" {key}"']


async def test_every_route_with_an_idempotency_key_refuses_unbalanced_quotes(
    api: Api, side: Api
) -> None:
    for client, start, actions in (
        (api, "/v1/payments", ("cancel", "refunds")),
        (side, "/v1/test/payments", ("pay", "decline", "dispute")),
    ):
        payment_id = (await client.create()).json["id"]
        for action in actions:
            for malformed in _malformed_keys(str(uuid4())):
                headers = client.bearer() | {"Idempotency-Key": malformed}
                path = f"{start}/{payment_id}/{action}"
                answer = await client.send("POST", path, json={}, headers=headers)
                assert refusal(answer) == (400, "BAD_REQUEST"), (path, malformed)
        assert (await client.get(payment_id)).json["status"] == "PENDING"


async def test_a_missing_or_malformed_key_is_refused(api: Api) -> None:
    json_type = {"Content-Type": "application/json"}
    missing = await api.send(
        "POST", "/v1/payments", data=document(), headers=api.bearer() | json_type
    )
    assert refusal(missing) == (400, "BAD_REQUEST")
    assert "Idempotency-Key" in missing.json["message"]
    key = str(uuid4())
    for malformed in (
        "",
        "1",
        key[:-1],
        key + "0",
        key.replace("-", ""),
        f"{{{key}}}",
        "g" + key[1:],
        *_malformed_keys(key),
    ):
        answer = await post(api, document(), Idempotency_Key=malformed)
        assert refusal(answer) == (400, "BAD_REQUEST"), malformed
    assert await count(api) == 0


async def test_a_key_can_be_reused_after_a_refused_request(api: Api) -> None:
    key = str(uuid4())
    for invalid in (document(amount='"0"'), document(country='"KR"'), document(metadata="[]")):
        assert (await post(api, invalid, Idempotency_Key=key)).status in {400, 422}
    answer = await post(api, document(), Idempotency_Key=key)
    assert answer.status == 201
    assert _REPLAYED not in answer.headers


async def test_a_completed_key_is_replayed_even_if_the_merchant_cannot_create_payments(
    api: Api,
) -> None:
    key = str(uuid4())
    first = await post(api, document(), Idempotency_Key=key)
    await api.world.rows("UPDATE payment_method SET enabled = false")
    assert refusal(await post(api, document())) == (422, "UNSUPPORTED_CURRENCY")
    again = await post(api, document(), Idempotency_Key=key)
    assert (again.status, again.body, again.headers[_REPLAYED]) == (201, first.body, "true")
    changed = await post(api, document(payer_uid='"x"'), Idempotency_Key=key)
    assert refusal(changed) == (409, "IDEMPOTENCY_CONFLICT")


async def test_a_key_expires_after_24_hours(api: Api) -> None:
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


async def test_two_merchants_can_use_the_same_key(api: Api) -> None:
    other_merchant = await api.world.add_merchant()
    key = str(uuid4())
    first = await post(api, document(), Idempotency_Key=key)
    second = await post(
        api, document(), Idempotency_Key=key, Authorization=f"Bearer {other_merchant.api_key}"
    )
    assert (first.status, second.status) == (201, 201)
    assert first.json["merchant_id"] != second.json["merchant_id"]


async def test_200_concurrent_creates_with_the_same_key_create_a_single_payment(api: Api) -> None:
    key = str(uuid4())
    answers = await asyncio.gather(
        *(post(api, document(), Idempotency_Key=key) for _ in range(200))
    )
    assert {answer.status for answer in answers} == {201}
    assert len({answer.body for answer in answers}) == 1
    assert sum(_REPLAYED not in answer.headers for answer in answers) == 1
    assert (await count(api), await count(api, "checkout")) == (1, 1)
