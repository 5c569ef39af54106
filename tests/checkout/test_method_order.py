"""The names, icons, groups and order of payment methods."""

import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from payintent.checkout.accent import contrast
from payintent.checkout.languages import load_language
from payintent.checkout.methods.groups import group_methods
from payintent.checkout.methods.icons import choose_group, draw_brand_icon, draw_quote_icon
from payintent.checkout.methods.names import method_name
from payintent.checkout.methods.order import (
    MethodPreferences,
    fastest_affordable_first,
    make_method_key,
    order_quotes,
    parse_method_key,
)
from payintent.core.method_brands import BRANDS, MethodGroup, find_brand
from payintent.merchants.methods_operations import ChangePaymentMethod
from payintent.payments.method_usage import MethodUsage
from tests.support.fakes import captured
from tests.support.sample_values import a_quote
from tests.support.world import Answer, Api, World

pytestmark = pytest.mark.full

ENGLISH = load_language("en")


def quote(number: int, label: str, kind: str = "redirect", **fields: Any) -> dict[str, Any]:
    usual = {
        "payment_method_id": number,
        "kind": kind,
        "label": label,
        "name": label,
        "chain_name": label,
        "currency": "USD",
        "fee_mode": "INCLUSIVE",
        "fee_amount": "0",
        "estimated_tax": "0",
        "total_amount": "25.50",
    }
    return usual | fields


def network(number: int, chain: str, typical_s: int, fee: str, **fields: Any) -> dict[str, Any]:
    return quote(
        number,
        f"USDT on {chain}",
        "onchain",
        chain=chain,
        chain_name=chain,
        token="USDT",
        currency="USDT",
        typical_s=typical_s,
        network_fee=Decimal(fee),
        **fields,
    )


def list_option_names(quotes: list[dict[str, Any]], **preferences: Any) -> list[list[str]]:
    """List the names on the page by group."""
    buyer = MethodPreferences(**preferences)
    groups = group_methods(order_quotes(quotes, buyer), ENGLISH, buyer)
    return [[option.name for option in group.options] for group in groups]


# Brands


@pytest.mark.parametrize("brand", BRANDS, ids=lambda brand: brand.code)
def test_a_brand_is_recognized_by_its_names_and_has_a_legible_tile(brand: Any) -> None:
    for label in (
        brand.name,
        f"{brand.name} (2C2P)",
        f"Pay with {brand.name}",
        *brand.local_names.values(),
    ):
        assert find_brand(label) is brand, label
    colour = re.search(r'rx="6" fill="(#[0-9a-f]{6})"', str(draw_brand_icon(brand.code)))
    assert colour is not None, "the brand has no tile"
    assert contrast(colour[1], "#ffffff") >= 4.5
    assert str(draw_brand_icon(brand.code)).isascii()  # every device has a font for its letters


def test_every_brand_has_a_different_tile() -> None:
    assert len({str(draw_brand_icon(brand.code)) for brand in BRANDS}) == len(BRANDS)


@pytest.mark.parametrize(
    "label", ["2C2P", "Transfer dana", "Bank transfer", "Card", "Mayan bank", "Apple payment", ""]
)
def test_a_label_without_a_brand_name_has_no_brand(label: str) -> None:
    assert find_brand(label) is None


def test_a_branded_card_is_grouped_and_drawn_as_a_card() -> None:
    assert choose_group("card", "GCash card") is MethodGroup.CARD
    assert draw_quote_icon(quote(1, "GCash card", "card")) == draw_quote_icon(
        quote(1, "Card", "card")
    )


@pytest.mark.parametrize(
    ("kind", "label", "group"),
    [
        ("card", "Anything", MethodGroup.CARD),
        ("qr", "PromptPay", MethodGroup.BANK),
        ("qr", "QRIS", MethodGroup.WALLET),
        ("redirect", "TrueMoney", MethodGroup.WALLET),
        ("redirect", "Konbini", MethodGroup.CASH),
        ("redirect", "Bank transfer", MethodGroup.BANK),
        ("redirect", "Mobile banking", MethodGroup.BANK),
        ("redirect", "My e-wallet", MethodGroup.WALLET),
        ("redirect", "2C2P", MethodGroup.OTHER),
        ("onchain", "USDT on Native", MethodGroup.ONCHAIN),
    ],
)
def test_every_method_belongs_to_a_group(kind: str, label: str, group: MethodGroup) -> None:
    assert choose_group(kind, label) is group


def test_a_brand_is_named_in_the_buyers_language() -> None:
    for label, locale, name in (
        ("PromptPay", "th", "พร้อมเพย์"),
        ("PromptPay", "en", "PromptPay"),
        ("Konbini", "ja", "コンビニ"),
        ("JKOPAY", "zh-Hant", "街口支付"),
        ("PromptPay QR", "th", "PromptPay QR"),  # a label that the operator has changed
    ):
        assert method_name(replace(a_quote(), label=label), load_language(locale)) == name


# Order


FOUR = [
    quote(1, "Card", "card"),
    quote(2, "TrueMoney"),
    quote(3, "PromptPay", "qr"),
    quote(4, "LINE Pay"),
]


def test_groups_have_a_fixed_default_order() -> None:
    assert list_option_names(FOUR) == [["Card"], ["TrueMoney", "LINE Pay"], ["PromptPay"]]


def test_the_method_that_was_used_last_comes_first() -> None:
    assert list_option_names(FOUR, last_key="promptpay")[0] == ["PromptPay"]
    assert list_option_names(FOUR, last_key="linepay")[0] == ["LINE Pay", "TrueMoney"]
    assert list_option_names(FOUR, last_key="paypal") == list_option_names(FOUR)
    groups = group_methods(FOUR, ENGLISH, MethodPreferences(last_key="promptpay"))
    marked = [option.name for group in groups for option in group.options if option.is_last_used]
    assert marked == ["PromptPay"]


def test_the_most_used_methods_come_first_unless_positions_are_configured() -> None:
    assert list_option_names(FOUR, usage={3: 90, 4: 30}) == [
        ["PromptPay"],
        ["LINE Pay", "TrueMoney"],
        ["Card"],
    ]
    positions = {1: 0, 2: 1, 3: 2, 4: 3}
    assert list_option_names(FOUR, usage={3: 90, 4: 30}, positions=positions)[1] == [
        "TrueMoney",
        "LINE Pay",
    ]
    assert list_option_names(FOUR, usage={3: 90}, last_key="card")[:2] == [["Card"], ["PromptPay"]]


def test_the_fastest_network_comes_first_if_it_costs_little_more() -> None:
    slow, fast = network(1, "Slow", 900, "0.01"), network(2, "Fast", 5, "0.26")
    expensive, free = network(3, "Dear", 1, "0.27"), network(4, "Free", 600, "0.01")
    ordered = fastest_affordable_first([slow, fast, expensive, free])
    assert [item["chain"] for item in ordered] == ["Fast", "Free", "Slow", "Dear"]
    large = [item | {"total_amount": "2600"} for item in (slow, expensive)]
    ordered = fastest_affordable_first(large)  # the difference is at most a cent per dollar
    assert [item["chain"] for item in ordered] == ["Dear", "Slow"]


def test_the_network_that_was_used_last_comes_before_faster_networks() -> None:
    quotes = [network(1, "slow", 900, "0.01"), network(2, "fast", 5, "0.01")]
    preferences = MethodPreferences(last_key="USDT.slow")
    assert [order_quote["chain"] for order_quote in order_quotes(quotes, preferences)] == [
        "slow",
        "fast",
    ]
    deposit = MethodPreferences(last_key="USDT.slow-address")
    assert [order_quote["chain"] for order_quote in order_quotes(quotes, deposit)] == [
        "fast",
        "slow",
    ]


@pytest.mark.parametrize(
    "text", [None, "", "a b", "card;", "<b>", "é", "x" * 41, "card\n", '"card"']
)
def test_an_invalid_method_key_is_ignored(text: str | None) -> None:
    assert parse_method_key(text) is None


def test_every_method_key_can_be_parsed() -> None:
    for item in (*FOUR, network(1, "bsc", 1, "0"), network(1, "bsc", 1, "0", is_deposit=True)):
        assert parse_method_key(make_method_key(item)) == make_method_key(item)


# Pages


async def page(api: Api, created: Answer, cookie: str = "") -> str:
    headers = {"Cookie": cookie} if cookie else {}
    answer = await api.send("GET", f"/c/{created.json['checkout_id']}", headers=headers)
    return answer.body.decode()


def names(text: str) -> list[str]:
    return [name.strip() for name in re.findall(r'<span class="name">([^<]*)', text)]


async def select_on_page(api: Api, created: Answer, method: int) -> Answer:
    return await api.send(
        "POST",
        f"/c/{created.json['checkout_id']}/select",
        data={"method": f"{method}|THB|1590.00"},
        allow_redirects=False,
    )


async def test_a_cookie_stores_only_the_kind_of_the_selected_method(api: Api) -> None:
    first = await page(api, created := await api.create())
    assert names(first) == ["Card", "Transfer"]
    assert "Used last time" not in first
    answer = await select_on_page(api, created, api.world.transfer)
    cookie = answer.headers["Set-Cookie"]
    assert cookie == ("payintent-method=bank; HttpOnly; Max-Age=15552000; Path=/c; SameSite=lax")
    again = await page(api, await api.create(), "payintent-method=bank")
    assert names(again) == ["Transfer", "Card"]
    assert again.count("Used last time") == 1
    assert re.search(rf'value="{api.world.transfer}\|THB\|1590.00"[^>]* checked', again)


@pytest.mark.parametrize("value", ["", "<b>", "x" * 5000, "nothing", '"bank', "bank; bank"])
async def test_a_malformed_cookie_is_ignored(api: Api, value: str) -> None:
    text = await page(api, await api.create(), f"other={value}; payintent-method=<{value}")
    assert names(text) == ["Card", "Transfer"]


async def test_a_failed_selection_is_not_remembered(api: Api) -> None:
    answer = await select_on_page(api, await api.create(), 999)
    assert answer.status == 404
    assert "Set-Cookie" not in answer.headers


async def pay(world: World, method: int) -> None:
    payment = await world.create()
    session = (await world.select(payment, method)).session
    await world.report(payment, session.id, captured(159_000, reference=f"paid-{session.id}"))


async def test_the_methods_used_most_by_a_merchants_buyers_come_first(api: Api) -> None:
    world = api.world
    await world.create()  # an unpaid payment does not count
    for _ in range(19):
        await pay(world, world.transfer)
    assert await MethodUsage(world.database).get(world.merchant_id) == {}  # too few payments
    await pay(world, world.card)
    counts = {world.transfer: 19, world.card: 1}
    usage = MethodUsage(world.database)
    assert await usage.get(world.merchant_id) == counts
    assert names(await page(api, await api.create())) == ["Transfer", "Card"]
    await pay(world, world.card)
    assert await usage.get(world.merchant_id) == counts  # the usage is cached for ten minutes
    assert await MethodUsage(world.database).get(world.merchant_id) == counts | {world.card: 2}
    assert await MethodUsage(world.database).get(world.merchant_id + 1) == {}


async def test_the_page_lists_the_card_brands(api: Api) -> None:
    text = await page(api, await api.create())
    assert re.findall('<span class="mark">([^<]*)', text) == ["Visa", "Mastercard"]


@pytest.mark.parametrize(
    ("label", "brand"), [("TrueMoney", "truemoney"), ("gcash", "gcash"), ("GCash or Maya", None)]
)
async def test_the_brand_of_the_selected_method_is_sent_to_the_gateway(
    api: Api, label: str, brand: str | None
) -> None:
    world = api.world
    await world.perform(ChangePaymentMethod(method_id=world.transfer, label=label))
    assert (await select_on_page(api, await api.create(), world.transfer)).status == 303
    [request] = world.gateway.created
    assert request.brand == brand
