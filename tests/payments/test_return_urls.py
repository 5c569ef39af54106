"""Return and cancel URLs: validation, allowed origins and visibility."""

import json
from dataclasses import replace
from uuid import uuid4

import pytest

from payintent.merchants.access_operations import IssueApiKey
from payintent.payments.expire import expire_pending
from tests.support.arrange import count, document, payment_of, post, refusal, view
from tests.support.sample_values import NO_WAY_BACK
from tests.support.world import Answer, Api

_BAD_REQUEST = (400, "BAD_REQUEST")
_FIELDS = ("return_url", "cancel_url")
_SHOP = "https://shop.example.com"
_URLS = {"return_url": f"{_SHOP}/thanks?order=A-1", "cancel_url": f"{_SHOP}/cart"}
_LONGEST = f"{_SHOP}/" + "a" * (2048 - len(_SHOP) - 1)
_ALLOWED = (
    _SHOP,
    f"{_SHOP}?",
    f"{_SHOP}/?a=1&b=%23&c=@",
    f"{_SHOP}:443/x",
    "HTTPS://Shop.Example.com/Thanks",
    f"{_SHOP}/%E0%B8%AA?items[]=1&b=it's+(2)!*~,;$_-.:",
    _LONGEST,
)
_MALFORMED = (
    "",
    f"{_SHOP}/#paid",
    f"{_SHOP}#",
    "https://user@shop.example.com/",
    "https://user:word@shop.example.com/",
    f"{_SHOP}/a b",
    f"{_SHOP}/a\n",
    f"{_SHOP}/a\u0000",
    *(f"{_SHOP}/a{char}b" for char in 'é\u3000\u202e"<>^`{|}'),
    f"{_SHOP}/\\evil.example",
    f"{_LONGEST}a",
    "javascript:alert(1)",
    "//shop.example.com/",
    "/thanks",
)


async def _allow(api: Api, *origins: str, return_url: str | None = None) -> None:
    await api.world.rows(
        "UPDATE merchant SET allowed_origins = $2, return_url = $3 WHERE id = $1",
        api.world.merchant_id,
        origins,
        return_url,
    )


def _urls_of(answer: Answer) -> dict[str, str]:
    return {name: answer.json[name] for name in _FIELDS if name in answer.json}


async def test_both_urls_are_stored_and_returned_to_the_merchant_as_sent(api: Api) -> None:
    await _allow(api, _SHOP)
    created = await api.create(**_URLS)
    assert created.status == 201
    [listed_payment] = (await api.send("GET", "/v1/payments", headers=api.bearer())).json["data"]
    for answer in (created.json, (await api.get(created.json["id"])).json, listed_payment):
        assert answer | _URLS == answer
    plain = await api.create(return_url=None, cancel_url=None)
    assert (plain.status, _urls_of(plain)) == (201, {})
    assert _urls_of(await api.get(plain.json["id"])) == {}


async def test_events_and_the_buyers_checkout_do_not_contain_the_urls(api: Api) -> None:
    await _allow(api, _SHOP)
    created = await api.create(**_URLS, expires_in=1)
    checkout = await view(api, created)
    assert "cancel_url" not in checkout.json
    await api.world.move_clock(2)
    assert await expire_pending(api.world.database, 10)
    [event] = await api.world.rows("SELECT body FROM event")
    assert "shop.example.com" not in event["body"]


@pytest.mark.parametrize("field", _FIELDS)
async def test_a_malformed_url_is_refused_before_other_checks_with_its_field_name(
    api: Api, field: str
) -> None:
    await _allow(api, _SHOP)
    key = str(uuid4())
    assert (await post(api, document(), Idempotency_Key=key)).status == 201
    for url in _MALFORMED:
        body = document(**{field: json.dumps(url)})
        for answer in (await post(api, body, Idempotency_Key=key), await post(api, body)):
            assert refusal(answer) == _BAD_REQUEST, url
            assert answer.json["message"].startswith(field), url
    for value in ("1", "true", "[]", "{}"):
        assert refusal(await post(api, document(**{field: value}))) == _BAD_REQUEST
    assert await count(api) == 1


@pytest.mark.parametrize("field", _FIELDS)
async def test_the_origin_must_be_allowed_by_the_merchant(api: Api, field: str) -> None:
    own_page = "https://own.example.com/orders"
    await _allow(api, _SHOP, "", "https://-", return_url=own_page)
    refusals = {url: refusal(await api.create(**{field: url})) for url in NO_WAY_BACK}
    assert refusals == dict.fromkeys(NO_WAY_BACK, _BAD_REQUEST)
    assert await count(api) == 0
    for url in (*_ALLOWED, own_page):
        created = await api.create(**{field: url})
        assert (created.status, created.json.get(field)) == (201, url), created.body
        assert getattr(await payment_of(api, created), field) == url
    await _allow(api)
    assert refusal(await api.create(**{field: _SHOP})) == _BAD_REQUEST


async def test_origins_of_another_merchant_are_refused(api: Api) -> None:
    other_merchant = await api.world.add_merchant()
    await api.world.rows(
        "UPDATE merchant SET allowed_origins = $2 WHERE id = $1",
        other_merchant.merchant.id,
        [_SHOP],
    )
    assert refusal(await api.create(**_URLS)) == _BAD_REQUEST


async def test_a_key_is_replayed_after_the_origin_is_removed_and_both_urls_are_compared(
    api: Api,
) -> None:
    await _allow(api, _SHOP)
    key, body = str(uuid4()), document(**{name: json.dumps(url) for name, url in _URLS.items()})
    first = await post(api, body, Idempotency_Key=key)
    await _allow(api)
    again = await post(api, body, Idempotency_Key=key)
    assert (again.status, again.body) == (201, first.body)
    assert refusal(await post(api, body)) == _BAD_REQUEST
    for changed in (
        document(),
        body.replace(b"/cart", b"/basket"),
        body.replace(b"/thanks", b"/thank-you"),
        body.replace(b"cancel_url", b"other_url"),
    ):
        answer = await post(api, changed, Idempotency_Key=key)
        assert refusal(answer) == (409, "IDEMPOTENCY_CONFLICT"), changed


async def test_a_foreign_origin_is_reported_after_all_other_faults(api: Api) -> None:
    foreign = {"return_url": "https://evil.example"}
    assert refusal(await api.create(**foreign, country="KR")) == (422, "UNSUPPORTED_COUNTRY")
    assert refusal(await api.create(**foreign)) == _BAD_REQUEST


async def test_a_test_key_uses_the_origins_of_its_test_merchant(api: Api) -> None:
    await _allow(api, _SHOP)
    issued = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    assert issued.merchant_id != api.world.merchant_id
    world = replace(api.world, merchant_id=issued.merchant_id, api_key=issued.api_key)
    staging = "https://staging.example.com/thanks"
    async with Api(api.base, world) as test:
        await _allow(test, "https://staging.example.com")
        assert (await test.create(return_url=staging)).status == 201
        assert refusal(await test.create(**_URLS)) == _BAD_REQUEST
    assert refusal(await api.create(return_url=staging)) == _BAD_REQUEST
