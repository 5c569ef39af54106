"""Names of payment methods in the buyer's language."""

import re

import pytest

from payintent.checkout.languages import LOCALES, load_language
from payintent.checkout.method_names import method_name
from payintent.merchants.provisioning import default_methods
from tests.support.arrange import bring_to
from tests.support.world import Api

pytestmark = pytest.mark.full

_LABELS = {
    method.label
    for provider in ("simulator", "stripe", "ecpay", "test")
    for method in default_methods(provider)
}


@pytest.mark.parametrize("locale", LOCALES)
def test_every_built_in_method_has_a_name_in_every_language(locale: str) -> None:
    for label in _LABELS:
        name = method_name({"label": label}, load_language(locale))
        assert (name == label) == (locale == "en"), label


@pytest.mark.parametrize("locale", LOCALES)
def test_a_token_method_is_named_by_its_token_and_chain(locale: str) -> None:
    quote = {"label": "USDT on BNB Smart Chain", "token": "USDT"}
    name = method_name(quote, load_language(locale))
    assert re.sub("[\u2068\u2069]", "", name).startswith("USDT")
    assert "BNB Smart Chain" in name
    assert (name == quote["label"]) == (locale == "en")


@pytest.mark.parametrize("label", ["2C2P", "Nimbus card", "Card of the house", "Pay on delivery"])
def test_a_label_of_the_operator_is_shown_as_it_was_written(label: str) -> None:
    assert method_name({"label": label}, load_language("ja")) == label


async def test_page_and_receipt_name_the_method_in_the_buyers_language(api: Api) -> None:
    created = await api.create()
    path = f"/c/{created.json['checkout_id']}"
    name = load_language("ja").t("kind_card")
    assert name in (await api.send("GET", f"{path}?lang=ja")).body.decode()
    await bring_to(api, created, "PAID")
    receipt = (await api.send("GET", f"{path}/receipt?lang=ja")).body.decode()
    assert f"<dd>{name}</dd>" in receipt
