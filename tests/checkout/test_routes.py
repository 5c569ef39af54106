"""The buyer's view of a checkout: its public fields, and the buyer's permitted actions."""

import json

import pytest

from payintent.runtime.settings import Settings
from tests.support.arrange import bring_to, document, payment_of, post, refusal, select, view
from tests.support.world import Answer, Api

_ALWAYS = {
    *("checkout_id", "payment_id", "status", "version", "amount", "currency", "decimals"),
    *("merchant", "include_pegged_assets", "server_time", "can", "next_action", "events_url"),
}
_ENDED = {"select": False, "change_method": False, "cancel": False}
_FIELDS = {
    "PENDING": ({"expires_at"}, {"select": True, "change_method": False, "cancel": True}),
    "PROCESSING": (
        {"expires_at", "selected"},
        {"select": True, "change_method": True, "cancel": False},
    ),
    "PAID": ({"selected", "receipt_id", "merchant_told"}, _ENDED),
    "FAILED": ({"selected", "failure_reason", "merchant_told"}, _ENDED),
    "EXPIRED": ({"merchant_told"}, _ENDED),
    "CANCELLED": ({"merchant_told"}, _ENDED),
}


async def _patch(api: Api, created: Answer, body: object) -> Answer:
    return await api.send("PATCH", f"/v1/checkout/{created.json['checkout_id']}", json=body)


async def _cancel(api: Api, created: Answer) -> Answer:
    return await api.send("POST", f"/v1/checkout/{created.json['checkout_id']}/cancel")


@pytest.mark.parametrize("status", _FIELDS)
async def test_the_view_has_the_fields_and_actions_of_its_status(api: Api, status: str) -> None:
    created = await api.create()
    await bring_to(api, created, status)
    response = await view(api, created)
    more, can = _FIELDS[status]
    assert response.status == 200
    assert set(response.json) == _ALWAYS | more
    assert response.json["can"] == can
    assert (response.json["status"], response.json["payment_id"]) == (status, created.json["id"])
    assert (response.json["amount"], response.json["decimals"]) == ("1590.00", 2)
    assert response.json["merchant"] == {"name": "Nimbus Books"}
    expected = "redirect" if status == "PROCESSING" else "none"
    action = response.json["next_action"]
    assert action["type"] == expected
    assert expected in action
    assert action["fallback_url"] == created.json["checkout_url"]


async def test_every_change_increases_the_version(api: Api) -> None:
    created = await api.create()
    versions = [(await view(api, created)).json["version"]]
    for status in ("PROCESSING",):
        await bring_to(api, created, status)
        versions.append((await view(api, created)).json["version"])
    assert versions == sorted(set(versions))


async def test_only_the_product_and_order_id_of_the_metadata_are_exposed(api: Api) -> None:
    product = {
        "name": "Atlas",
        "detail": "Hardcover",
        "image": "https://shop.example/a.png",
        "category": "books",
        "quantity": 2,
        "vendor": "Nimbus",
    }
    secret = {"margin": "planted-secret", "cost": 7}
    created = await api.create(
        payer_uid="planted-uid",
        payer_email="jane.doe@example.com",
        metadata={"product": product | secret, "order_id": "A-1", "note": "planted-note"},
    )
    for answer in (
        await view(api, created),
        await select(api, created),
        await view(api, created),
        await api.send("GET", f"/c/{created.json['checkout_id']}"),
    ):
        assert answer.status == 200
        assert b"planted" not in answer.body
        assert b"jane.doe" not in answer.body
    response = (await view(api, created)).json
    assert (response["product"], response["order_id"]) == (product, "A-1")
    assert response["payer_email"] == "j***@example.com"


async def test_long_product_values_are_truncated_and_invalid_values_omitted(api: Api) -> None:
    odd = {"name": "n" * 500, "detail": 7, "image": None, "quantity": True, "vendor": ["x"]}
    created = await api.create(metadata={"product": odd, "order_id": "o" * 500})
    response = (await view(api, created)).json
    assert response["product"] == {"name": "n" * 120}
    assert response["order_id"] == "o" * 120


async def test_an_unknown_or_malformed_checkout_id_is_not_found(api: Api) -> None:
    created = await api.create()
    checkout_id = created.json["checkout_id"]
    for unknown_id in ("cs_" + "0" * 16, checkout_id[:-1], checkout_id + "0", "cs_%00", "1", "%ff",
                  checkout_id.upper(), created.json["id"]):  # fmt: skip
        for method, path in (
            ("GET", ""),
            ("GET", "/quotes"),
            ("POST", "/quotes"),
            ("POST", "/cancel"),
            ("PATCH", ""),
        ):
            answer = await api.send(method, f"/v1/checkout/{unknown_id}{path}", json={})
            assert refusal(answer) == (404, "CHECKOUT_NOT_FOUND"), unknown_id


async def test_the_buyers_email_replaces_the_merchants(api: Api) -> None:
    created = await api.create(payer_email="merchant@example.com")
    answer = await _patch(api, created, {"payer_email": "buyer@example.org"})
    assert (answer.status, answer.json["payer_email"]) == (200, "b***@example.org")
    assert (await payment_of(api, created)).payer_email == "buyer@example.org"
    for bad in ({"payer_email": "x"}, {"payer_email": None}, {}, [], {"payer_email": 1}):
        assert refusal(await _patch(api, created, bad)) == (400, "BAD_REQUEST"), bad
    assert (await payment_of(api, created)).payer_email == "buyer@example.org"


async def test_an_ended_checkout_rejects_an_email(api: Api) -> None:
    ended, elapsed = await api.create(), await api.create()
    await bring_to(api, ended, "CANCELLED")
    body = {"payer_email": "buyer@example.org"}
    assert refusal(await _patch(api, ended, body)) == (409, "INVALID_CHECKOUT_STATE")
    await api.world.move_clock(1800)
    assert refusal(await _patch(api, elapsed, body)) == (410, "CHECKOUT_EXPIRED")


async def test_a_buyer_can_cancel_a_pending_payment_without_a_webhook_event(api: Api) -> None:
    created = await api.create()
    answer = await _cancel(api, created)
    assert (answer.status, answer.body) == (200, b'{"status":"cancelled"}')
    assert (await api.get(created.json["id"])).json["status"] == "CANCELLED"
    assert await api.world.events(await payment_of(api, created)) == []
    assert refusal(await _cancel(api, created)) == (409, "INVALID_CHECKOUT_STATE")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("PROCESSING", (409, "INVALID_PAYMENT_STATE")),
        ("PAID", (409, "INVALID_CHECKOUT_STATE")),
        ("EXPIRED", (410, "CHECKOUT_EXPIRED")),
    ],
)
async def test_a_buyer_can_cancel_only_pending_payments(
    api: Api, status: str, expected: tuple[int, str]
) -> None:
    created = await api.create()
    await bring_to(api, created, status)
    assert refusal(await _cancel(api, created)) == expected
    assert (await payment_of(api, created)).status == status


class TestWithoutACheckoutBase:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"checkout_base": ""})

    async def test_payments_have_no_checkout_url(self, api: Api) -> None:
        created = await api.create(country="TH")
        assert created.status == 201
        assert "checkout_url" not in created.json
        assert "checkout_url" not in (await api.get(created.json["id"])).json
        assert "fallback_url" not in (await view(api, created)).json["next_action"]
        page = f"/c/{created.json['checkout_id']}"
        assert (await api.send("GET", page)).status == 200
        back = await api.send("GET", f"{page}/return")
        assert (back.status, back.headers["Location"]) == (303, page)


async def test_json_escapes_in_metadata_are_decoded(api: Api) -> None:
    created = await post(api, document(metadata='{"order_id":"\\u0041\\ud83d\\ude00"}'))
    response = await view(api, created)
    assert json.loads(response.body)["order_id"] == "A\U0001f600"


@pytest.mark.parametrize("number", ["1009", "0", "-0", "1.50", "1e3", "7" * 60])
async def test_a_numeric_order_id_is_shown_exactly_as_sent(api: Api, number: str) -> None:
    created = await post(api, document(metadata=f'{{"order_id": {number} }}'))
    assert (await view(api, created)).json["order_id"] == number
    page = await api.send("GET", f"/c/{created.json['checkout_id']}")
    assert f"Order {number}" in page.body.decode()


@pytest.mark.parametrize("order_id", ["true", "null", "{}", "[1]"])
async def test_an_order_id_is_shown_only_if_it_is_a_string_or_number(
    api: Api, order_id: str
) -> None:
    created = await post(api, document(metadata=f'{{"order_id":{order_id}}}'))
    assert "order_id" not in (await view(api, created)).json


async def test_a_lone_surrogate_is_returned_as_sent(api: Api) -> None:
    image = "https://shop.test/\\ud83d.png"
    product = f'{{"name":"a\\ud83d","detail":"\\udc00","image":"{image}","vendor":"\\ud800"}}'
    created = await post(
        api, document(metadata=f'{{"product":{product},"order_id":"\\udfff\\ud83d\\ude00"}}')
    )
    assert created.status == 201
    await api.world.rows("UPDATE merchant SET allowed_origins = '{https://shop.test}'")
    response = await view(api, created)
    read = json.loads(response.body)
    assert read["product"] == json.loads(product)
    assert read["order_id"] == "\udfff\U0001f600"
    path = f"/c/{created.json['checkout_id']}"
    for headers in ({}, {"Accept-Encoding": "identity"}):
        page = await api.send("GET", path, headers=headers)
        assert (page.status, "a\ufffd" in page.body.decode()) == (200, True)
