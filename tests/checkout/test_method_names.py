"""The names of payment methods in the buyer's language."""

import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from payintent.checkout.buyer_mails import compose_receipt
from payintent.checkout.languages import load_language
from payintent.checkout.methods.names import chain_name, method_name
from payintent.core.languages import LOCALES
from payintent.merchants.methods_operations import ChangePaymentMethod
from payintent.merchants.model import Quote
from payintent.merchants.operations import SetMerchantProfile
from payintent.merchants.provisioning import get_default_methods
from tests.support.arrange import bring_to, payment_of, quotes, select, view
from tests.support.sample_values import a_quote
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

_LABELS = {
    method.label
    for provider in ("simulator", "stripe", "ecpay", "test")
    for method in get_default_methods(provider)
}
_THAI, _ARABIC = "บัตร <เครดิต>", "بطاقة ائتمان"


def _quote(label: str, **fields: Any) -> Quote:
    return replace(a_quote(), label=label, **fields)


@pytest.mark.parametrize("locale", LOCALES)
def test_every_built_in_method_has_a_name_in_every_language(locale: str) -> None:
    for label in _LABELS:
        name = method_name(_quote(label), load_language(locale))
        assert (name == label) == (locale == "en"), label


@pytest.mark.parametrize("locale", LOCALES)
def test_a_token_method_is_named_by_its_token_and_chain(locale: str) -> None:
    quote = _quote("USDT on BNB Smart Chain", token="USDT")
    name = method_name(quote, load_language(locale))
    assert re.sub("[\u2068\u2069]", "", name).startswith("USDT")
    assert "BNB Smart Chain" in name
    assert (name == quote.label) == (locale == "en")


@pytest.mark.parametrize("label", ["2C2P", "Nimbus card", "Card of the house", "Pay on delivery"])
def test_a_custom_label_is_shown_unchanged(label: str) -> None:
    assert method_name(_quote(label), load_language("ja")) == label


@pytest.mark.parametrize("label", ["Card", "Nimbus card"])
def test_a_translation_by_the_operator_takes_precedence(label: str) -> None:
    quote = _quote(label, label_translations={"ja": "Card", "th": _THAI})
    assert method_name(quote, load_language("ja")) == "Card"
    assert method_name(quote, load_language("th")) == _THAI
    assert method_name(quote, load_language("ar")) == method_name(
        _quote(label), load_language("ar")
    )


def test_a_translation_also_names_the_chain_of_a_token() -> None:
    quote = _quote("USDT on Native", token="USDT", label_translations={"th": "เครือข่าย Native"})
    assert chain_name(quote, None, load_language("th")) == "เครือข่าย Native"
    assert chain_name(quote, None, load_language("ja")) == "Native"


async def test_the_page_and_the_receipt_name_the_method_in_the_buyers_language(api: Api) -> None:
    created = await api.create()
    path = f"/c/{created.json['checkout_id']}"
    name = load_language("ja").t("kind_card")
    assert name in (await api.send("GET", f"{path}?lang=ja")).body.decode()
    await bring_to(api, created, "PAID")
    receipt = (await api.send("GET", f"{path}/receipt?lang=ja")).body.decode()
    assert f"<dd>{name}</dd>" in receipt


async def _translate_card(api: Api) -> None:
    labels = {"th": _THAI, "ar": _ARABIC}
    entries = [f"{language}:{label}" for language, label in labels.items()]
    await api.world.perform(
        ChangePaymentMethod(method_id=api.world.card, label_translations=entries)
    )


async def _page(api: Api, created: Answer, language: str, rest: str = "") -> str:
    path = f"/c/{created.json['checkout_id']}{rest}?lang={language}"
    return (await api.send("GET", path)).body.decode()


_NAMES = [("th", "บัตร &lt;เครดิต&gt;"), ("ar", _ARABIC), ("en", "Card")]


@pytest.mark.parametrize(("language", "name"), _NAMES)
async def test_pages_show_the_translation_and_the_api_returns_the_default_label(
    api: Api, language: str, name: str
) -> None:
    await _translate_card(api)
    created = await api.create()
    assert f'<span class="name">{name}' in await _page(api, created, language)
    offer = (await quotes(api, created)).json["quotes"][0]
    selected = (await select(api, created)).json["quote"]
    assert offer["label"] == selected["label"] == "Card"
    assert "label_translations" not in offer | selected
    await api.world.perform(
        ChangePaymentMethod(method_id=api.world.card, label="New", label_translations=[])
    )
    assert f"<span>{name}</span></h2>" in await _page(api, created, language)
    assert (await view(api, created)).json["selected"] == selected


@pytest.mark.parametrize(("language", "name"), _NAMES)
async def test_a_receipt_shows_the_method_name_at_the_time_of_selection(
    api: Api, language: str, name: str
) -> None:
    world = api.world
    await world.perform(SetMerchantProfile(merchant_id=world.merchant_id, locale=language))
    await _translate_card(api)
    created = await api.create(payer_email="buyer@example.com")
    await bring_to(api, created, "PAID")
    await world.perform(ChangePaymentMethod(method_id=world.card, label_translations=[]))
    assert f"<dd>{name}</dd>" in await _page(api, created, language, "/receipt")
    mail = await compose_receipt(world.database, (await payment_of(api, created)).id)
    assert mail is not None
    assert unescape(name) in mail.text
