"""The merchant's branding on the page, and the list of payment methods."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from payintent.checkout.accent import DARK, LIGHT, accent_shades
from payintent.checkout.languages import load_language
from payintent.checkout.methods.groups import group_methods
from payintent.checkout.methods.icons import (
    choose_icon,
    draw_chain_icon,
    draw_token_icon,
)
from payintent.checkout.static_files import page_style
from payintent.http.pages.static_files import minify_style
from payintent.merchants.operations import SetMerchantProfile
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.refunds.requests import create_in_status
from tests.support.arrange import bring_to
from tests.support.contracts import TOKENS, bill, contract_service, offer_tokens
from tests.support.fakes import FakeGateway
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

_FINAL_STATUSES = ("PAID", "FAILED", "EXPIRED", "CANCELLED", "PARTIALLY_REFUNDED", "REFUNDED")


async def _set_profile(api: Api, **fields: Any) -> None:
    await api.world.perform(SetMerchantProfile(merchant_id=api.world.merchant_id, **fields))


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Load the policies for every page, so that all pages run the same queries."""
    return settings.model_copy(update={"policy_cache_s": 0.0})


async def _page(api: Api, created: Answer, rest: str = "") -> str:
    return (await api.send("GET", f"/c/{created.json['checkout_id']}{rest}")).body.decode()


@pytest.mark.parametrize("status", _FINAL_STATUSES)
async def test_every_final_page_links_to_the_shop_its_support_and_its_terms(
    api: Api, status: str
) -> None:
    await _set_profile(
        api,
        return_url="https://shop.test/thanks",
        support_url="https://shop.test/help",
        terms_url="https://shop.test/terms",
    )
    page = await _page(api, await create_in_status(api, status))
    assert page.count('class="button" href="https://shop.test/thanks?payment_id=') == 1
    assert 'href="https://shop.test/help"' in page
    assert 'href="https://shop.test/terms"' in page


async def test_the_page_has_the_merchants_colour_corrected_for_each_theme(api: Api) -> None:
    created = await api.create()
    plain = page_style().text
    assert f"<style>{plain}</style>" in await _page(api, created)
    await _set_profile(api, accent_colour="#FFD400")
    page = await _page(api, created, "?lang=ja")
    tint = page.partition(f"<style>{plain}")[2].partition("</style>")[0]
    for theme in (LIGHT, DARK):
        shades = accent_shades("#ffd400", theme)
        properties = f"--act:{shades.button};--on:{shades.text};--link:{shades.link}"
        assert properties in tint
    await _set_profile(api, accent_colour="")
    assert f"<style>{plain}</style>" in await _page(api, created)


async def test_branding_needs_no_additional_database_queries(api: Api) -> None:
    created = await api.create()
    await _page(api, created)
    statements = [await _statements(api, created)]
    await _set_profile(api, accent_colour="#0b5bd3", terms_url="https://shop.test/terms")
    await _page(api, created)
    statements.append(await _statements(api, created))
    assert statements[0] == statements[1]


async def _statements(api: Api, created: Answer) -> list[str]:
    """List the database reads of a page. Background tasks only write, once per second."""
    database = api.world.database
    statements: list[str] = []
    read_row, read_rows = database.row, database.fetch

    def record(sql: str) -> None:
        if not sql.lstrip().startswith("INSERT"):
            statements.append(sql)

    async def row(sql: str, *values: Any) -> Any:
        record(sql)
        return await read_row(sql, *values)

    async def rows(sql: str, *values: Any) -> Any:
        record(sql)
        return await read_rows(sql, *values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "row", row)
        patch.setattr(database, "fetch", rows)
        await _page(api, created)
    return statements


# Payment methods


def _quote(kind: str, label: str, number: int = 1, **fields: Any) -> dict[str, Any]:
    usual = {
        "payment_method_id": number,
        "kind": kind,
        "label": label,
        "name": label,
        "chain_name": label.removeprefix(f"{fields.get('token')} on "),
        "currency": fields.get("token", "USD"),
        "fee_mode": "INCLUSIVE",
        "fee_amount": "0",
        "estimated_tax": "0",
        "total_amount": "25.50",
    }
    return usual | fields


def _token(token: str, chain: str, label: str = "", **fields: Any) -> dict[str, Any]:
    return _quote("onchain", label or f"{token} on {chain}", token=token, chain=chain, **fields)


_EIGHT_QUOTES = [
    _quote("card", "Card"),
    _token("USDT", "Ethereum"),
    _quote("redirect", "Bank transfer"),
    _quote("qr", "PromptPay"),
    _quote("redirect", "Convenience store"),
    _token("USDT", "BNB Smart Chain"),
    _token("USDC", "Ethereum"),
    _quote("redirect", "2C2P"),
]


def test_a_group_of_several_cards_is_titled_cards() -> None:
    texts = load_language("en")
    [cards] = group_methods([_quote("card", "Card"), _quote("card", "Another card")], texts)
    assert cards.title is not None
    assert texts.t(cards.title) == "Cards"


def test_methods_are_grouped_and_each_token_is_listed_once_with_its_chains() -> None:
    groups = group_methods(_EIGHT_QUOTES, load_language("en"))
    names_by_group = [
        (
            group.title,
            [(option.name, [choice.name for choice in option.choices]) for option in group.options],
        )
        for group in groups
    ]
    assert names_by_group == [
        ("group_card", [("Card", ["Card"])]),
        ("group_bank", [(name, [name]) for name in ("Bank transfer", "PromptPay")]),
        ("group_cash", [("Convenience store", ["Convenience store"])]),
        ("group_other", [("2C2P", ["2C2P"])]),
        (
            "group_onchain",
            [
                ("USDT", ["Ethereum", "BNB Smart Chain"]),
                ("USDC on Ethereum", ["USDC on Ethereum"]),
            ],
        ),
    ]
    option = groups[4].options[0]
    assert option.total == _EIGHT_QUOTES[1]
    mixed_totals = group_methods(
        [_EIGHT_QUOTES[1], _EIGHT_QUOTES[5] | {"total_amount": "26"}], load_language("en")
    )
    assert mixed_totals[0].options[0].total is None  # each chain has its own total


def test_names_notes_and_titles_do_not_repeat_each_other() -> None:
    texts = load_language("en")
    for quotes in (
        _EIGHT_QUOTES,
        _EIGHT_QUOTES[:1],
        _EIGHT_QUOTES[1:2],
        [_quote("card", "Card"), _quote("card", "Two")],
    ):
        for group in group_methods(quotes, texts):
            for option in group.options:
                labels = [option.name, *([texts.t(option.note)] if option.note else [])]
                labels += [texts.t(group.title)] if group.title else []
                if labels != ["Card", "Card"]:  # the group title, and a method with the same name
                    assert len({item.casefold() for item in labels}) == len(labels), labels
    groups = group_methods([_quote("qr", texts.t("kind_qr"))], texts)
    assert groups[0].options[0].note is None


def test_methods_have_distinguishable_icons() -> None:
    icons = [
        str(option.icon)
        for group in group_methods(_EIGHT_QUOTES, load_language("en"))
        for option in group.options
    ]
    assert len(set(icons)) == len(icons) == 7
    assert {"card", "bank", "qr", "store", "phone", "page"} == {
        choose_icon("card", "anything"),
        choose_icon("redirect", "Bank transfer"),
        choose_icon("qr", "PromptPay"),
        choose_icon("redirect", "Konbini"),
        choose_icon("redirect", "GrabPay"),
        choose_icon("redirect", "2C2P"),
    }
    assert (
        len({draw_chain_icon("ethereum"), draw_chain_icon("bsc"), draw_chain_icon("native")}) == 3
    )


def test_the_icon_of_an_unknown_token_is_its_escaped_first_letter() -> None:
    assert ">D</text>" in draw_token_icon("DAI")
    assert ">&lt;</text>" in draw_chain_icon("<script>")


# Primary actions


def _primary_buttons(page: str) -> list[str]:
    """List the primary buttons outside collapsed sections."""
    visible = re.sub(r"<details(?! open).*?</details>", "", page, flags=re.DOTALL)
    visible = re.sub(r"<form class=\"methods\".*?<button", "<button", visible, flags=re.DOTALL)
    return re.findall(r'<button type="submit">|<a class="button" ', visible)


@pytest.mark.parametrize("status", ["PENDING", "PROCESSING", *_FINAL_STATUSES])
async def test_a_page_has_one_primary_action(api: Api, status: str) -> None:
    await _set_profile(api, return_url="https://shop.test/thanks")
    page = await _page(api, await create_in_status(api, status))
    assert len(_primary_buttons(page)) == 1, page


async def test_the_methods_are_collapsed_while_a_payment_is_processing(api: Api) -> None:
    page = await _page(api, await create_in_status(api, "PROCESSING"))
    folded = page.partition('<details class="other">')[2].partition("</details>")[0]
    assert folded.count('name="method"') == page.count('name="method"') == 2
    assert '<button type="submit" class="quiet">' in folded


async def test_the_methods_are_expanded_after_a_rejected_selection(api: Api) -> None:
    created = await api.create()
    await bring_to(api, created, "PROCESSING")
    answer = await api.send(
        "POST", f"/c/{created.json['checkout_id']}/select", data={"method": "999|THB|1.00"}
    )
    assert '<details class="other" open>' in answer.body.decode()


class TestTokenPayments:
    @pytest.fixture
    async def service(self, settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
        async with contract_service(settings, gateway) as service:
            yield service

    async def test_the_header_shows_the_total_in_the_token_and_the_price(self, api: Api) -> None:
        methods = await offer_tokens(api.world)
        payment, _ = await bill(api.world, methods["USDT"])
        page = (await api.send("GET", f"/c/{payment.checkout_id}")).body.decode()
        head = page.partition("<header")[2].partition("</header>")[0]
        assert str(draw_token_icon("USDT")) in head
        assert re.search(r">25\.5 <abbr[^>]*>USDT<", head)
        assert "<dt>Price</dt><dd><bdi>25.50\u00a0USD</bdi></dd>" in head

    async def test_each_token_is_offered_with_its_icon_and_the_price(self, api: Api) -> None:
        await offer_tokens(api.world)
        page = await _page(api, await api.create(currency="USD", amount="25.50"))
        labels = re.findall(r'<label class="method">.*?</label>', page, flags=re.DOTALL)
        tokens = {token: item for item in labels for token in TOKENS["native"] if token in item}
        assert set(tokens) == set(TOKENS["native"])
        for token, label in tokens.items():
            assert label.count(str(draw_token_icon(token))) == 1
            assert f"<bdi>25.5\u00a0{token}</bdi>" in label
            assert label.count("Price <bdi>25.50\u00a0USD</bdi>") == 1
        remaining_labels = [item for item in labels if item not in tokens.values()]
        assert remaining_labels
        # The remaining methods are charged in the currency of the price.
        assert not any("Price" in label for label in remaining_labels)


def test_a_style_sheet_is_minified_without_changing_its_meaning() -> None:
    style = """/* a */ a:not(.b) { margin: 0 auto ; color : red; }
    @media (min-width: 900px) { p > q, i::after { content: "a  {b}"; } }"""
    assert minify_style(style) == (
        "a:not(.b){margin:0 auto;color :red}"
        '@media (min-width:900px){p>q,i::after{content:"a  {b}"}}'
    )
