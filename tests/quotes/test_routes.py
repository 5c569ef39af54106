"""Quotes and their selection over HTTP."""

from decimal import Decimal
from typing import Any

import pytest

from payintent.gateways.port import OutcomeUnknown, SessionRejected
from payintent.runtime.settings import Settings
from tests.support.arrange import bring_to, offers_tokens, payment_of, quotes, refusal, select, view
from tests.support.world import Answer, Api

_EDGE = {"CloudFront-Viewer-Country": "PH", "X-Edge-Secret": "edge-secret"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    secret = type(settings.edge_secret)("edge-secret")
    return settings.model_copy(update={"edge_secret": secret, "edge_trusted_proxies": "127.0.0.1"})


async def _get_country(answer: Answer) -> tuple[str, str]:
    assert answer.status == 200, answer.body
    return answer.json["country"], answer.json["country_source"]


async def test_quotes_have_the_documented_fields(api: Api) -> None:
    created = await api.create()
    answer = await quotes(api, created)
    assert answer.status == 200
    assert list(answer.json) == [
        *("checkout_id", "currency", "country", "country_source", "quotes")
    ]
    [card, transfer] = answer.json["quotes"]
    assert card == {
        "payment_method_id": api.world.card,
        "kind": "card",
        "label": "Card",
        "provider": "fake",
        "currency": "THB",
        "amount": "1590.00",
        "fee_mode": "INCLUSIVE",
        "fee_rate": "0.029",
        "fee_amount": "46.11",
        "estimated_tax": "0",
        "total_amount": "1590.00",
    }
    assert (transfer["payment_method_id"], transfer["kind"]) == (api.world.transfer, "redirect")


async def test_the_country_comes_from_the_query_or_the_viewer_or_a_default(api: Api) -> None:
    baht = await api.create()
    dollars = await api.create(currency="USD", amount="10")
    yen = await api.create(currency="JPY", amount="10")
    assert await _get_country(await quotes(api, baht, "?country=TH")) == ("TH", "query")
    assert await _get_country(await quotes(api, baht, "?country=US", headers=_EDGE)) == (
        "US",
        "query",
    )
    assert await _get_country(await quotes(api, dollars, headers=_EDGE)) == ("US", "default")
    from_france = _EDGE | {"CloudFront-Viewer-Country": "FR"}
    assert await _get_country(await quotes(api, dollars, headers=from_france)) == ("FR", "geo")
    forged = {"CloudFront-Viewer-Country": "PH"}
    assert await _get_country(await quotes(api, dollars, headers=forged)) == ("US", "default")
    unlisted = _EDGE | {"CloudFront-Viewer-Country": "KR"}
    assert await _get_country(await quotes(api, dollars, headers=unlisted)) == ("US", "default")
    assert await _get_country(await quotes(api, baht)) == ("TH", "first")
    assert await _get_country(await quotes(api, yen)) == ("JP", "first")


async def test_a_thai_payment_viewed_from_abroad_offers_its_methods(api: Api) -> None:
    created = await api.create()
    from_france = _EDGE | {"CloudFront-Viewer-Country": "FR"}
    answer = await quotes(api, created, headers=from_france)
    assert await _get_country(answer) == ("TH", "first")
    assert len(answer.json["quotes"]) == 2
    selected = await select(api, created, headers=from_france)
    assert (selected.status, selected.json["quote"]) == (200, answer.json["quotes"][0])
    await api.world.rows("UPDATE merchant SET default_country = 'TH'")
    assert await _get_country(await quotes(api, created, headers=from_france)) == ("TH", "default")
    french_quotes = await quotes(api, created, "?country=FR", headers=from_france)
    assert (await _get_country(french_quotes), french_quotes.json["quotes"]) == (
        ("FR", "query"),
        [],
    )


async def test_an_unsupported_country_is_rejected(api: Api) -> None:
    created = await api.create()
    for country in ("KR", "th", "ZZ", "%00%00"):
        answer = await quotes(api, created, f"?country={country}")
        assert refusal(answer) == (422, "UNSUPPORTED_COUNTRY"), country
    for country in ("T", "THA"):
        answer = await quotes(api, created, f"?country={country}")
        assert refusal(answer) == (400, "BAD_REQUEST"), country


async def test_a_currency_filters_the_list_or_is_rejected(api: Api) -> None:
    await offers_tokens(api)
    created = await api.create(currency="USD", amount="49.90")
    everything = await quotes(api, created)
    offered = [(quote["currency"], quote["total_amount"]) for quote in everything.json["quotes"]]
    assert offered == [("USD", "49.90"), ("USDT", "49.9"), ("NATIVED", "49.9")]
    tokens = await quotes(api, created, "?currency=USDT")
    assert [quote["currency"] for quote in tokens.json["quotes"]] == ["USDT"]
    assert tokens.json["currency"] == "USDT"
    fiat_only = await api.create(currency="USD", amount="49.90", include_pegged_assets=False)
    assert [quote["currency"] for quote in (await quotes(api, fiat_only)).json["quotes"]] == ["USD"]
    refused = await quotes(api, fiat_only, "?currency=USDT")
    assert refusal(refused) == (422, "UNSUPPORTED_CURRENCY")
    for query, expected in (
        ("?currency=THB", (422, "UNSUPPORTED_CURRENCY")),
        ("?currency=USD&country=TH", (422, "UNSUPPORTED_CURRENCY")),
        ("?currency=usd", (400, "INVALID_CURRENCY")),
        ("?currency=XXX", (400, "INVALID_CURRENCY")),
    ):
        assert refusal(await quotes(api, created, query)) == expected, query


async def test_a_country_without_methods_has_an_empty_list_unless_a_currency_is_given(
    api: Api,
) -> None:
    created = await api.create()
    answer = await quotes(api, created, "?country=US&unknown=1")
    assert (answer.status, answer.json["quotes"]) == (200, [])
    with_currency = await quotes(api, created, "?country=US&currency=THB")
    assert refusal(with_currency) == (422, "UNSUPPORTED_CURRENCY")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("PAID", (409, "INVALID_CHECKOUT_STATE")),
        ("FAILED", (409, "INVALID_CHECKOUT_STATE")),
        ("CANCELLED", (409, "INVALID_CHECKOUT_STATE")),
        ("EXPIRED", (410, "CHECKOUT_EXPIRED")),
    ],
)
async def test_quotes_and_selections_are_rejected_for_an_ended_checkout(
    api: Api, status: str, expected: tuple[int, str]
) -> None:
    created = await api.create()
    await bring_to(api, created, status)
    session_count = len(api.world.gateway.created)
    assert refusal(await quotes(api, created)) == expected
    assert refusal(await select(api, created)) == expected
    assert len(api.world.gateway.created) == session_count


async def test_an_expired_payment_with_a_selected_method_is_closed_to_the_buyer(api: Api) -> None:
    created = await api.create()
    await bring_to(api, created, "PROCESSING")
    await api.world.move_clock(1800)
    assert refusal(await quotes(api, created)) == (410, "CHECKOUT_EXPIRED")
    assert refusal(await select(api, created)) == (410, "CHECKOUT_EXPIRED")
    assert (await api.get(created.json["id"])).json["status"] == "PROCESSING"


async def test_a_selection_returns_the_checkout_quote_session_and_next_action(api: Api) -> None:
    created = await api.create()
    answer = await select(api, created, country="TH", locale="th-TH")
    assert answer.status == 200
    assert list(answer.json) == ["checkout", "quote", "session", "next_action"]
    assert answer.json["checkout"]["status"] == "PROCESSING"
    assert answer.json["checkout"]["selected"] == answer.json["quote"]
    assert answer.json["quote"] == (await quotes(api, created)).json["quotes"][0]
    assert set(answer.json["session"]) == {"id", "expires_at"}
    assert answer.json["session"]["id"].startswith("sess_")
    assert answer.json["session"]["expires_at"] == created.json["expires_at"]
    assert answer.json["next_action"] == {
        "type": "redirect",
        "redirect": {"url": "http://gateway.test/pay", "method": "GET", "fields": {}},
        "fallback_url": created.json["checkout_url"],
    }
    [gateway_request] = api.world.gateway.created
    assert (gateway_request.amount_minor, gateway_request.currency, gateway_request.locale) == (
        159000,
        "THB",
        "th-TH",
    )
    assert gateway_request.return_url == f"{created.json['checkout_url']}/return?lang=th-TH"
    assert (
        gateway_request.callback_url == f"http://pay.test/v1/callbacks/fake/{api.world.account_id}"
    )


async def test_an_invalid_body_is_rejected_and_selects_nothing(api: Api) -> None:
    created = await api.create()
    cases: dict[str, tuple[dict[str, Any], tuple[int, str]]] = {
        "text instead of a number": ({"payment_method_id": "1"}, (400, "BAD_REQUEST")),
        "fraction": ({"payment_method_id": 1.5}, (400, "BAD_REQUEST")),
        "true": ({"payment_method_id": True}, (400, "BAD_REQUEST")),
        "null": ({"payment_method_id": None}, (400, "BAD_REQUEST")),
        "e-mail": ({"payer_email": "x"}, (400, "BAD_REQUEST")),
        "locale": ({"locale": "x" * 36}, (400, "BAD_REQUEST")),
        "NUL": ({"locale": "a\u0000"}, (400, "BAD_REQUEST")),
        "long url": ({"return_url": "https://a/" + "x" * 2_048}, (400, "BAD_REQUEST")),
        "total as number": ({"expected_total_amount": 1590}, (400, "BAD_REQUEST")),
        "total as text": ({"expected_total_amount": "much"}, (400, "BAD_REQUEST")),
        "total with exponent": ({"expected_total_amount": "1.59e3"}, (400, "BAD_REQUEST")),
        "empty total": ({"expected_total_amount": ""}, (400, "BAD_REQUEST")),
        "country": ({"country": "THA"}, (400, "BAD_REQUEST")),
        "an unsupported country": ({"country": "KR"}, (422, "UNSUPPORTED_COUNTRY")),
        "currency": ({"currency": "XXX"}, (400, "INVALID_CURRENCY")),
        "an unsupported currency": ({"currency": "USD"}, (422, "UNSUPPORTED_CURRENCY")),
        "a currency not used in the country": ({"country": "US"}, (422, "UNSUPPORTED_CURRENCY")),
        "negative": ({"payment_method_id": -1}, (404, "PAYMENT_METHOD_NOT_FOUND")),
        "huge": ({"payment_method_id": 2**63}, (404, "PAYMENT_METHOD_NOT_FOUND")),
        "vast": ({"payment_method_id": 10**100}, (404, "PAYMENT_METHOD_NOT_FOUND")),
        "unknown": ({"payment_method_id": 999}, (404, "PAYMENT_METHOD_NOT_FOUND")),
    }
    errors = {
        name: refusal(await select(api, created, **body)) for name, (body, _) in cases.items()
    }
    assert errors == {name: error for name, (_, error) in cases.items()}
    assert (await payment_of(api, created)).status == "PENDING"
    assert api.world.gateway.created == []


async def test_a_foreign_or_disabled_method_cannot_be_selected(
    api: Api,
) -> None:
    await api.world.add_merchant()
    [foreign] = await api.world.rows(
        "SELECT max(id) AS id FROM payment_method WHERE merchant_id <> $1", api.world.merchant_id
    )
    created = await api.create()
    not_found = (404, "PAYMENT_METHOD_NOT_FOUND")
    assert refusal(await select(api, created, payment_method_id=foreign["id"])) == not_found
    await api.world.rows("UPDATE payment_method SET enabled = false WHERE id = $1", api.world.card)
    assert refusal(await select(api, created)) == not_found
    await api.world.rows("UPDATE payment_method SET enabled = true")
    await api.world.rows("UPDATE provider_account SET enabled = false")
    assert refusal(await select(api, created)) == (422, "PG_NOT_AVAILABLE")
    assert (await quotes(api, created)).json["quotes"] == []


async def test_a_selection_with_an_outdated_total_is_a_conflict(api: Api) -> None:
    created = await api.create()
    await api.world.rows("UPDATE payment_method SET fee_mode = 'EXCLUSIVE'")
    answer = await select(api, created, expected_total_amount="1590.00")
    assert refusal(answer) == (409, "CONFLICT")
    assert "1636.11" in answer.json["message"]
    assert (await payment_of(api, created)).status == "PENDING"
    good = await select(api, created, expected_total_amount="1636.11")
    assert (good.status, good.json["quote"]["total_amount"]) == (200, "1636.11")


@pytest.mark.parametrize("total", ["1590", "1590.0", "1590.00", "1590.000"])
async def test_expected_totals_are_compared_by_value(api: Api, total: str) -> None:
    created = await api.create()
    answer = await select(api, created, expected_total_amount=total)
    assert (answer.status, answer.json["quote"]["total_amount"]) == (200, "1590.00")


async def test_return_urls_must_have_an_allowed_origin_of_the_merchant(api: Api) -> None:
    await api.world.rows("UPDATE merchant SET allowed_origins = '{https://shop.example}'")
    created = await api.create()
    for url in (
        *("https://evil.example/", "https://shop.example.evil.example/", "http://shop.example/"),
        *("https://shop.example:444/", "https://shop.example@evil.example/", "javascript:alert(1)"),
        *("//shop.example/", "https:shop.example", "https://shop.example\\@evil.example/", "x"),
        *("https://SHOP.example.evil/", " https://shop.example/", "data:text/html,x"),
    ):
        assert refusal(await select(api, created, return_url=url)) == (400, "BAD_REQUEST"), url
    answer = await select(api, created, return_url="https://shop.example/done?x=1#y")
    assert answer.status == 200
    assert answer.json["checkout"]["return_url"] == "https://shop.example/done?x=1#y"


@pytest.mark.parametrize(
    "answer", [OutcomeUnknown(detail="timeout"), SessionRejected(detail="planted")]
)
async def test_a_gateway_failure_returns_502_and_leaves_the_payment_unchanged(
    api: Api, answer: OutcomeUnknown | SessionRejected
) -> None:
    created = await api.create()
    before = (await api.get(created.json["id"])).body
    api.world.gateway.answer_create = lambda _: answer
    failed = await select(api, created)
    assert refusal(failed) == (502, "PG_UPSTREAM_ERROR")
    assert b"planted" not in failed.body
    assert (await api.get(created.json["id"])).body == before
    from tests.support.fakes import accept

    api.world.gateway.answer_create = accept
    assert (await select(api, created)).status == 200


async def test_an_email_in_the_selection_replaces_the_merchants_email(api: Api) -> None:
    created = await api.create(payer_email="merchant@example.com")
    assert (await select(api, created, payer_email="buyer@example.org")).status == 200
    assert (await view(api, created)).json["payer_email"] == "b***@example.org"
    assert (await payment_of(api, created)).payer_email == "buyer@example.org"


async def test_the_selected_quote_does_not_change_with_later_prices(api: Api) -> None:
    created = await api.create()
    before = (await select(api, created)).json["quote"]
    await api.world.rows(
        "UPDATE payment_method SET fee_mode = 'EXCLUSIVE', fee_rate = $1", Decimal("0.5")
    )
    assert (await view(api, created)).json["selected"] == before
    assert (await api.get(created.json["id"])).json["quote_total_amount"] == "1590.00"
