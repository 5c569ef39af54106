"""Payment method names in the buyer's language."""

import re
from collections.abc import Mapping
from typing import Any

from payintent.checkout.languages import Language

#: Translation keys of the labels that provisioning and the documentation use.
_KEYS = {
    "Card": "kind_card",
    "Bank transfer": "method_bank_transfer",
    "Test card": "method_test_card",
}
_CARD_OF_PROVIDER = re.compile(r"Card \((.+)\)")


def method_name(quote: Mapping[str, Any], language: Language) -> str:
    """Translate a built-in label. Labels that the operator wrote are returned unchanged."""
    label: str = quote["label"]
    if key := _KEYS.get(label):
        return language.t(key)
    if match := _CARD_OF_PROVIDER.fullmatch(label):
        return language.t("method_provider", method=language.t("kind_card"), provider=match[1])
    token, separator, chain = label.partition(" on ")
    if separator and token == quote.get("token"):
        return language.t("method_token", token=token, chain=chain)
    return label
