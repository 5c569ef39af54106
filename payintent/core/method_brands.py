"""Payment methods that buyers know by name, such as PromptPay, and the group of each method.

A method has a brand if its label contains the brand's name. The names are trademarks of their
owners, and are used only to show buyers how they will pay.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

_CACHE_SIZE = 1_000  # labels


class MethodGroup(StrEnum):
    """The groups on the checkout page, in their default order."""

    CARD = "card"
    WALLET = "wallet"
    BANK = "bank"
    CASH = "cash"
    OTHER = "other"
    ONCHAIN = "onchain"


@dataclass(frozen=True, slots=True)
class MethodBrand:
    code: str
    name: str
    group: MethodGroup
    other_names: tuple[str, ...] = ()
    local_names: Mapping[str, str] = field(default_factory=dict[str, str])  # by language

    def occurs_in(self, label: str) -> bool:
        """Return whether one of the names occurs in a label, as whole words."""
        return any(
            _contains_words(label, name)
            for name in (self.name, *self.other_names, *self.local_names.values())
        )


def _contains_words(text: str, name: str) -> bool:
    """Search for a name. Case is ignored, except for `DANA`, which is also Indonesian for "funds".

    Names in non-Latin scripts do not need spaces around them.
    """
    if name != "DANA":
        text, name = text.casefold(), name.casefold()
    before, found, after = text.partition(name)
    if not found or not name.isascii():
        return bool(found)
    return not (before[-1:].isalnum() or after[:1].isalnum())


_WALLET, _BANK, _CASH = MethodGroup.WALLET, MethodGroup.BANK, MethodGroup.CASH
#: The first brand whose name occurs in a label is the method's brand.
BRANDS: tuple[MethodBrand, ...] = (
    MethodBrand("promptpay", "PromptPay", _BANK, ("Prompt Pay",), {"th": "พร้อมเพย์"}),
    MethodBrand("truemoney", "TrueMoney", _WALLET, ("True Money",), {"th": "ทรูมันนี่"}),
    MethodBrand("gcash", "GCash", _WALLET),
    MethodBrand("maya", "Maya", _WALLET, ("PayMaya",)),
    MethodBrand("qris", "QRIS", _WALLET),
    MethodBrand("gopay", "GoPay", _WALLET),
    MethodBrand("ovo", "OVO", _WALLET),
    MethodBrand("dana", "DANA", _WALLET),
    MethodBrand("shopeepay", "ShopeePay", _WALLET, ("Shopee Pay",)),
    MethodBrand("grabpay", "GrabPay", _WALLET, ("Grab Pay",)),
    MethodBrand("linepay", "LINE Pay", _WALLET),
    MethodBrand("paypay", "PayPay", _WALLET),
    MethodBrand("jkopay", "JKOPAY", _WALLET, (), {"zh-Hant": "街口支付"}),
    MethodBrand("paynow", "PayNow", _BANK),
    MethodBrand("applepay", "Apple Pay", _WALLET),
    MethodBrand("googlepay", "Google Pay", _WALLET),
    MethodBrand("alipay", "Alipay", _WALLET),
    MethodBrand("wechatpay", "WeChat Pay", _WALLET, ("WeChat",)),
    MethodBrand("paypal", "PayPal", _WALLET),
    MethodBrand("konbini", "Konbini", _CASH, (), {"ja": "コンビニ"}),
)
BRANDS_BY_CODE: Mapping[str, MethodBrand] = {brand.code: brand for brand in BRANDS}


@lru_cache(maxsize=_CACHE_SIZE)
def find_brand(label: str) -> MethodBrand | None:
    return next((brand for brand in BRANDS if brand.occurs_in(label)), None)


def match_brand(label: str) -> MethodBrand | None:
    """Return the brand whose name is the whole label, ignoring case."""
    brand = find_brand(label)
    return brand if brand is not None and brand.name.casefold() == label.casefold() else None
