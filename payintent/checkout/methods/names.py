"""Payment method names in the buyer's language."""

import re

from payintent.chains.store import ChainRecord
from payintent.checkout.languages import Language
from payintent.core.method_brands import match_brand
from payintent.merchants.model import Quote

#: Translation keys of the labels that provisioning and the documentation use.
_KEYS = {
    "Card": "kind_card",
    "Bank transfer": "method_bank_transfer",
    "Test card": "method_test_card",
}
_CARD_OF_PROVIDER = re.compile(r"Card \((.+)\)")


def method_name(quote: Quote, language: Language) -> str:
    """Return the operator's label for the language, or the translation of a built-in label."""
    if translation := quote.label_translations.get(language.locale):
        return translation
    label = quote.label
    if key := _KEYS.get(label):
        return language.t(key)
    if match := _CARD_OF_PROVIDER.fullmatch(label):
        return language.t("method_provider", method=language.t("kind_card"), provider=match[1])
    token, separator, chain = label.partition(" on ")
    if separator and token == quote.token:
        return language.t("method_token", token=token, chain=chain)
    brand = match_brand(label)
    if brand is not None:
        return brand.local_names.get(language.locale, label)
    return label


def chain_name(quote: Quote, chain: ChainRecord | None, language: Language) -> str:
    """Return the operator's label for the language, or the chain's name if there is none."""
    if translation := quote.label_translations.get(language.locale):
        return translation
    return chain.name if chain else quote.label.removeprefix(f"{quote.token} on ")
