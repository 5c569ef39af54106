"""Every rule of `CreatePaymentRequest`, at its limits."""

import json
from datetime import datetime
from typing import Any

import pytest

from payintent.core.countries import COUNTRIES
from tests.support.arrange import count, document, offers_tokens, payment_of, post, refusal, select
from tests.support.world import Answer, Api

_BAD_REQUEST = (400, "BAD_REQUEST")
_MALFORMED = (400, "INVALID_AMOUNT")
_REFUSED = (422, "INVALID_AMOUNT")

_INVALID_VALUES = {
    "currency": ["1", "null", "true", "[]", '""', '"' + "A" * 33 + '"', '"T\\u0000B"'],
    "payer_uid": ["1", "null", "{}", '""', '"' + "a" * 256 + '"', '"a\\u0000"', '"\\ud800"'],
    "payer_email": [
        *("1", "true", '""', '"a"', '"a@"', '"@b.co"', '"a b@c.co"', '"a@b..co"', '"a@b@c.co"'),
        *('"a@b.co\\n"', '"a@b.co,c@d.co"', '"A <a@b.co>"', '"a\\u00a0b@c.co"', '"a@b.co."'),
        '"' + "a" * 314 + '@b.test"',
    ],
    "expires_in": [
        *("-1", "86401", "60.5", "60.0", "6e1", '"60"', "true", "[]", "9" * 30, "-" + "9" * 30),
        "9" * 5000,
    ],
    "country": ["1", "true", '""', '"U"', '"USA"', '" US "'],
    "metadata": ["[]", '"{}"', "1", "true", "false", '"x"'],
    "include_pegged_assets": ["1", "0", '"true"', "[]"],
}


async def _refusals(api: Api, field: str, values: list[str]) -> dict[str, tuple[int, str]]:
    return {value[:40]: refusal(await post(api, document(**{field: value}))) for value in values}


@pytest.mark.parametrize("field", _INVALID_VALUES)
async def test_an_invalid_field_is_a_bad_request_that_names_the_field(api: Api, field: str) -> None:
    refusals = await _refusals(api, field, _INVALID_VALUES[field])
    assert refusals == {value[:40]: _BAD_REQUEST for value in _INVALID_VALUES[field]}
    answer = await post(api, document(**{field: _INVALID_VALUES[field][0]}))
    assert field in answer.json["message"]
    assert await count(api) == 0


async def test_a_missing_required_field_is_a_bad_request_that_names_the_field(api: Api) -> None:
    whole = json.loads(document())
    for field in ("currency", "amount", "payer_uid"):
        body = {name: value for name, value in whole.items() if name != field}
        answer = await post(api, json.dumps(body).encode())
        assert refusal(answer) == _BAD_REQUEST
        assert field in answer.json["message"]


async def test_optional_fields_can_be_null_and_unknown_fields_are_ignored(api: Api) -> None:
    answer = await post(
        api,
        document(
            payer_email="null",
            expires_in="null",
            country="null",
            metadata="null",
            include_pegged_assets="null",
            status='"PAID"',
            merchant_id="99",
            id='"pay_x"',
            **{"": "[[1e999]]"},
        ),
    )
    assert answer.status == 201
    assert answer.json["metadata"] == {}
    assert answer.json["status"] == "PENDING"
    assert answer.json["merchant_id"] == api.world.merchant_id
    assert answer.json["include_pegged_assets"] is True
    assert _lifetime_s(answer) == 1800
    assert "?" not in answer.json["checkout_url"]


async def test_the_last_value_of_a_repeated_field_is_used(api: Api) -> None:
    first, last = '"amount":1,"currency":"X","payer_uid":""', '"amount":"2.00","currency":"USD"'
    body = f'{{{first},{last},"payer_uid":"u"}}'.encode()
    answer = await post(api, body)
    assert answer.status == 201
    assert (answer.json["amount"], answer.json["currency"]) == ("2.00", "USD")


async def test_amounts_that_are_not_plain_decimal_strings_are_malformed(api: Api) -> None:
    values = [
        *('""', '" 1"', '"1 "', '"+1"', '"01"', '"00"', '"1."', '".5"', '"1e3"', '"1E3"', '"0x1"'),
        *(
            '"1,5"',
            '"1_000"',
            '"NaN"',
            '"Infinity"',
            '"--1"',
            '"-"',
            '"-01"',
            '"1\\n"',
            '"1\\u0000"',
        ),
        *('"\\u0661"', '"\\uff11"', '"1.\\u0665"', '"1.0.0"', '"one"', '"-.5"', '"- 1"'),
        *("1590", "1590.0", "1590.00", "0", "-1", "1e400", "true", "false", "null", "{}", "[]"),
        '["1.00"]',
    ]
    assert await _refusals(api, "amount", values) == {value[:40]: _MALFORMED for value in values}


async def test_amounts_out_of_range_or_with_too_many_decimals_are_refused(api: Api) -> None:
    values = [
        *('"0"', '"0.00"', '"-0"', '"-0.00"', '"-1"', '"-1590.00"', '"0.001"', '"1.000"'),
        *('"1000000000.01"', '"1000000001"', '"9' + "9" * 60 + '"', '"0.' + "0" * 5000 + '1"'),
    ]
    assert await _refusals(api, "amount", values) == {value[:40]: _REFUSED for value in values}


@pytest.mark.parametrize(
    ("currency", "valid", "invalid"),
    [
        ("JPY", ["1", "100", "1000000000"], ["100.0", "100.00", "0.5"]),
        ("THB", ["0.01", "1", "1.5", "1.50", "1000000000.00"], ["1.500", "0.001"]),
        ("USD", ["0.01", "999999999.99"], ["0.011"]),
        ("USDT", ["0." + "0" * 17 + "1", "1." + "0" * 18], ["0." + "0" * 18 + "1"]),
        ("NATIVED", ["1." + "1" * 18], ["1." + "1" * 19]),
    ],
)
async def test_an_amount_is_limited_to_its_currencys_decimals_and_returned_as_sent(
    api: Api, currency: str, valid: list[str], invalid: list[str]
) -> None:
    await offers_tokens(api)
    for amount in valid:
        answer = await api.create(currency=currency, amount=amount)
        assert (answer.status, answer.json.get("amount")) == (201, amount), answer.body
        assert (await api.get(answer.json["id"])).json["amount"] == amount
    for amount in invalid:
        assert refusal(await api.create(currency=currency, amount=amount)) == _REFUSED, amount


async def test_exactly_eight_uppercase_currency_codes_are_accepted(api: Api) -> None:
    await offers_tokens(api)
    for currency in ("USD", "THB", "JPY", "TWD", "IDR", "PHP", "USDT", "NATIVED"):
        assert (await api.create(currency=currency, amount="1")).status == 201, currency
    for unknown in ("thb", "Usd", "EUR", "XXX", "USDC", "USDT ", "840", "฿", "'; --"):
        assert refusal(await api.create(currency=unknown)) == (400, "INVALID_CURRENCY"), unknown


async def test_a_currency_without_a_payment_method_of_the_merchant_is_unsupported(api: Api) -> None:
    assert refusal(await api.create(currency="USDT")) == (422, "UNSUPPORTED_CURRENCY")
    await api.world.rows("UPDATE payment_method SET currencies = '{USDT}'")
    assert refusal(await api.create(currency="THB")) == (422, "UNSUPPORTED_CURRENCY")
    assert (await api.create(currency="USD")).status == 201  # with a token that is pegged to it
    without = await api.create(currency="USD", include_pegged_assets=False)
    assert refusal(without) == (422, "UNSUPPORTED_CURRENCY")
    await api.world.rows("UPDATE provider_account SET enabled = false")
    assert refusal(await api.create(currency="USDT")) == (422, "UNSUPPORTED_CURRENCY")


async def test_the_53_countries_are_accepted_and_returned_only_in_the_url(api: Api) -> None:
    assert len(COUNTRIES) == 53
    for country in COUNTRIES:
        answer = await api.create(country=country)
        assert answer.status == 201, country
        assert answer.json["checkout_url"].endswith(
            f"{answer.json['checkout_id']}?country={country}"
        )
    stored = await api.get(answer.json["id"])
    assert stored.json["checkout_url"] == f"http://pay.test/c/{answer.json['checkout_id']}"
    assert "country" not in stored.json


async def test_other_countries_are_unsupported(api: Api) -> None:
    for country in ("KR", "CN", "XX", "us", "Th", "U1", "\u00dcS", "  ", "\U0001f1f9\U0001f1ed"):
        expected = (422, "UNSUPPORTED_COUNTRY")
        assert refusal(await api.create(country=country)) == expected, country
    assert (await api.create(currency="JPY", amount="1", country="US")).status == 201


async def test_a_payment_expires_after_the_requested_time(api: Api) -> None:
    for expires_in, life_s in ((None, 1800), (0, 1800), (1, 1), (1800, 1800), (86400, 86400)):
        answer = await api.create(expires_in=expires_in)
        assert _lifetime_s(answer) == life_s


async def test_a_payer_uid_has_1_to_255_characters_of_any_script(api: Api) -> None:
    for uid in ("u", "a" * 255, "\U0001f600" * 255, " ", "\u0000"[:0] + "\n", "ก" * 255, "'\"\\"):
        answer = await api.create(payer_uid=uid)
        assert (answer.status, answer.json.get("payer_uid")) == (201, uid)
    assert refusal(await api.create(payer_uid="\U0001f600" * 256)) == _BAD_REQUEST


_ADDRESSES = {
    "a+b@example.com": "a+b@example.com",
    "o'neil@x-y.example": "o'neil@x-y.example",
    "jörg@bücher.example": None,  # only ASCII addresses are sent to the gateway
    "info@bücher.example": "info@xn--bcher-kva.example",
    "info@straße.example": "info@xn--strae-oqa.example",
    "用户@例子.example": None,
    "सम्पर्क@डाटामेल.example": None,
    "a@localhost": None,
    "a@[192.0.2.1]": None,
    "a@[IPv6:2001:db8::1]": None,
    "taro..@carrier.example": None,
    '"john doe"@example.com': None,
    '"a@b"@example.com': None,
    "a@-b.example": None,
    "a" * 313 + "@b.test": None,
}


@pytest.mark.parametrize("email", _ADDRESSES)
async def test_an_email_in_any_script_is_stored_unchanged_and_does_not_prevent_a_payment(
    api: Api, email: str
) -> None:
    created = await api.create(payer_email=email)
    assert created.status == 201, created.body
    assert (await payment_of(api, created)).payer_email == email
    assert (await select(api, created)).status == 200
    assert api.world.gateway.created[0].payer_email == _ADDRESSES[email]
    entered = await api.create()
    assert (await select(api, entered, payer_email=email)).status == 200


async def test_include_pegged_assets_defaults_to_true(api: Api) -> None:
    for value, expected in ((None, True), (True, True), (False, False)):
        created = await api.create(include_pegged_assets=value)
        assert created.json["include_pegged_assets"] is expected
        assert (await api.get(created.json["id"])).json["include_pegged_assets"] is expected


async def test_the_first_fault_in_the_documented_order_is_reported(api: Api) -> None:
    body: dict[str, Any] = {"currency": "XXX", "amount": "0", "payer_uid": "", "country": "KR"}
    unsigned = {"Content-Type": "application/json", "Idempotency-Key": "bad"}

    async def get_refusal(headers: dict[str, str] | None = None) -> tuple[int, str]:
        encoded = json.dumps(body).encode()
        if headers is None:
            return refusal(await post(api, encoded))
        return refusal(await api.send("POST", "/v1/payments", data=encoded, headers=headers))

    assert await get_refusal(unsigned) == (401, "UNAUTHORIZED")
    answer = await post(api, b"not JSON", Idempotency_Key="bad")
    assert "Idempotency-Key" in answer.json["message"]
    assert await get_refusal() == _BAD_REQUEST
    body["payer_uid"] = "u"
    assert await get_refusal() == (400, "INVALID_CURRENCY")
    body["currency"] = "USDT"
    assert await get_refusal() == (422, "UNSUPPORTED_CURRENCY")
    body["currency"] = "THB"
    assert await get_refusal() == _REFUSED
    body["amount"] = "1"
    assert await get_refusal() == (422, "UNSUPPORTED_COUNTRY")
    body["country"] = "TH"
    assert (await post(api, json.dumps(body).encode())).status == 201


def _lifetime_s(answer: Answer) -> float:
    created = datetime.fromisoformat(answer.json["created_at"])
    return (datetime.fromisoformat(answer.json["expires_at"]) - created).total_seconds()
