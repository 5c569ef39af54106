"""The entries of a configuration file, by section: a field that is left out stays as it is."""

from decimal import Decimal
from typing import Annotated, Literal, Self

import msgspec
from msgspec import UNSET, UnsetType

from payintent.chains.operations import read_address
from payintent.core.access import RateLimitClass
from payintent.evm.abi import to_checksum_address
from payintent.fraud.model import FraudRuleKind, RiskLevel
from payintent.merchants.payable import RestrictionType
from payintent.merchants.price import FeeMode
from payintent.runtime.addresses import to_comparable
from payintent.runtime.settings import RetentionRule

Number = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,18}(\.[0-9]{1,18})?$")]
MethodType = Literal["card", "redirect", "qr", "onchain"]


def write_number(number: str | Decimal) -> str:
    """Write a number without zeros at its end."""
    text = f"{Decimal(number):f}"  # `normalize` would round to 28 digits
    return text.rstrip("0").removesuffix(".") if "." in text else text


class ConfigEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    def normalized(self) -> Self:
        """Write its values as the installation shows them (`BAD_REQUEST`)."""
        numbers = {
            name: write_number(getattr(self, name))
            for name in ("rate", "fee_rate", "above", "refund_approval_above", "auto_refund_from")
            if isinstance(getattr(self, name, None), str)
        }
        return msgspec.structs.replace(self, **numbers)


class ChainEntry(ConfigEntry, frozen=True, kw_only=True):
    chain: str
    finality: Literal["finalized", "confirmations"] | UnsetType = UNSET
    confirmations: int | UnsetType = UNSET
    instant_finality: bool | UnsetType = UNSET
    public_rpc_urls: list[str] | UnsetType = UNSET
    explorer_urls: list[str] | UnsetType = UNSET
    refund_approval_above: Number | UnsetType = UNSET
    auto_refund_gas: int | UnsetType = UNSET


class TokenEntry(ConfigEntry, frozen=True, kw_only=True):
    chain: str
    symbol: str
    address: str | UnsetType = UNSET
    decimals: int | UnsetType = UNSET
    approve_zero_first: bool | UnsetType = UNSET
    minimum: int | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    auto_refund_from: Number | UnsetType = UNSET

    def normalized(self) -> Self:
        entry = super().normalized()
        if isinstance(entry.address, UnsetType):
            return entry
        address = to_checksum_address(read_address("address", entry.address))
        return msgspec.structs.replace(entry, address=address)


class ProviderEntry(ConfigEntry, frozen=True, kw_only=True):
    provider: str
    wire_name: str | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET


class RestrictionEntry(ConfigEntry, frozen=True, kw_only=True):
    """A restricted country; a lifted restriction is not active."""

    type: RestrictionType
    country: str
    active: bool = True


class FraudRuleEntry(ConfigEntry, frozen=True, kw_only=True):
    """A fraud rule for all merchants."""

    kind: FraudRuleKind
    value: str | None = None
    count_max: int | None = None
    window_s: int | None = None
    code: str
    level: RiskLevel = RiskLevel.HIGH
    score: int = 100

    def normalized(self) -> Self:
        if self.kind is not FraudRuleKind.EMAIL or self.value is None:
            return self
        return msgspec.structs.replace(self, value=to_comparable(self.value))


class MerchantFraudRuleEntry(FraudRuleEntry, frozen=True, kw_only=True):
    merchant_id: int


class TaxRateEntry(ConfigEntry, frozen=True, kw_only=True):
    """A country's tax rate; 0.07 is 7 %."""

    country: str
    rate: Number


class RetentionEntry(ConfigEntry, frozen=True, kw_only=True):
    """After how many days a retention rule deletes; 0: never."""

    rule: RetentionRule
    days: int


class RateLimitEntry(ConfigEntry, frozen=True, kw_only=True):
    merchant_id: int
    kind: RateLimitClass
    per_s: int
    burst: int | UnsetType = UNSET


class RefundThresholdEntry(ConfigEntry, frozen=True, kw_only=True):
    """How much of a currency a merchant may refund in a day without a second person."""

    merchant_id: int
    currency: str
    above: Number


class MethodEntry(ConfigEntry, frozen=True, kw_only=True):
    merchant_id: int
    account_id: int
    kind: MethodType
    label: str
    token: str | None = None
    currencies: list[str]
    countries: list[str] | None = None
    fee_mode: FeeMode = FeeMode.INCLUSIVE
    fee_rate: Number
    position: int = 0
    limits: list[str] | UnsetType = UNSET
