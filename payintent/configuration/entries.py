"""Entry types for each configuration section. Fields omitted from a file remain unchanged."""

from collections.abc import Collection
from decimal import Decimal
from typing import Annotated, Any, Self, cast

import msgspec
from msgspec import UNSET, UnsetType

from payintent.chains.operations import SetToken, parse_checksum_address
from payintent.evm.abi import to_checksum_address
from payintent.fraud.model import FraudRuleKind, RiskLevel
from payintent.fraud.operations import SCORE_MAX, AddFraudRule
from payintent.mail.message import to_comparable
from payintent.merchants.access_operations import SetRateLimit
from payintent.merchants.methods_operations import AddPaymentMethod
from payintent.merchants.payable import RestrictionType
from payintent.onchain.operations import SetChain
from payintent.operators.fields import OperationField, list_fields
from payintent.operators.operation import ChangeOperation
from payintent.runtime.settings import RetentionRule

Number = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,18}(\.[0-9]{1,18})?$")]
Countries = Annotated[list[str], msgspec.Meta(min_length=1)]  # None means all countries
_NUMBERS = (
    *("rate", "fee_rate", "above", "refund_approval_above", "auto_refund_from"),
    *(
        "sweep_gas_price_max",
        "transfer_fee_usd",
        "sweep_value",
        "sweep_minimum",
        "surplus_from",
        "percent",
    ),
)


def format_number(number: str | Decimal) -> str:
    """Format a number without trailing zeros."""
    text = f"{Decimal(number):f}"  # `normalize` would round to 28 digits
    return text.rstrip("0").removesuffix(".") if "." in text else text


class ConfigEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    def normalize(self) -> Self:
        """Return a copy with canonical values; raise `BAD_REQUEST` for an invalid address."""
        values: dict[str, Any] = {
            name: value
            for name, value in msgspec.structs.asdict(self).items()
            if isinstance(value, str)
        }
        changes: dict[str, Any] = {
            name: format_number(values[name]) for name in _NUMBERS if name in values
        }
        if "address" in values:
            address = parse_checksum_address("address", values["address"])
            changes["address"] = to_checksum_address(address)
        if values.get("kind") is FraudRuleKind.EMAIL and "value" in values:
            changes["value"] = to_comparable(values["value"])
        if translations := getattr(self, "label_translations", None):
            changes["label_translations"] = sorted(translations)
        return msgspec.structs.replace(self, **changes)


def _build_entry_type(
    operation: type[ChangeOperation[Any]],
    *first_fields: str,
    omit: Collection[str] = (),
    **overrides: tuple[Any, ...],
) -> type[ConfigEntry]:
    """Build an entry type from the fields of an operation, starting with `first_fields`.

    Optional fields of the operation may be omitted, even if the operation has a default for them,
    because an omitted field must not change an installed entry. `overrides` replaces the type of a
    field, and the default of an optional field.
    """
    fields: dict[str, tuple[Any, ...]] = dict.fromkeys(first_fields, ())
    fields |= {field.name: _define_field(field) for field in list_fields(operation)} | overrides
    for name in omit:
        fields.pop(name, None)
    struct = msgspec.defstruct(
        f"{operation.__name__}Entry",
        [(name, *definition) for name, definition in fields.items()],
        bases=(ConfigEntry,),
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return cast("type[ConfigEntry]", struct)


def _define_field(field: OperationField) -> tuple[Any, ...]:
    return (field.type,) if field.is_required else (field.type | UnsetType, UNSET)


_OPTIONAL_NUMBER = (Number | UnsetType, UNSET)
#: All fields identify a rule, so omitted fields have their defaults.
_RULE_OVERRIDES: dict[str, Any] = {
    "value": (str | None, None),
    "count_max": (int | None, None),
    "window_s": (int | None, None),
    "code": (str,),
    "level": (RiskLevel, RiskLevel.HIGH),
    "score": (int, SCORE_MAX),
}
ChainEntry = _build_entry_type(
    SetChain,
    omit=("refunder", "sweeper"),
    refund_approval_above=_OPTIONAL_NUMBER,
    sweep_gas_price_max=_OPTIONAL_NUMBER,
    transfer_fee_usd=_OPTIONAL_NUMBER,
)
TokenEntry = _build_entry_type(
    SetToken,
    auto_refund_from=_OPTIONAL_NUMBER,
    sweep_value=_OPTIONAL_NUMBER,
    sweep_minimum=_OPTIONAL_NUMBER,
    surplus_from=_OPTIONAL_NUMBER,
)
RateLimitEntry = _build_entry_type(SetRateLimit)
#: A fraud rule that applies to all merchants.
FraudRuleEntry = _build_entry_type(AddFraudRule, omit=("merchant_id",), **_RULE_OVERRIDES)
MerchantFraudRuleEntry = _build_entry_type(
    AddFraudRule, *FraudRuleEntry.__struct_fields__, **_RULE_OVERRIDES, merchant_id=(int,)
)
MethodEntry = _build_entry_type(
    AddPaymentMethod,
    *("merchant_id", "account_id", "kind", "label", "token"),
    token=(str | None, None),
    countries=(Countries | None | UnsetType, UNSET),
    fee_rate=(Number,),
)


class ProviderEntry(ConfigEntry, frozen=True, kw_only=True):
    provider: str
    wire_name: str | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET


class RestrictionEntry(ConfigEntry, frozen=True, kw_only=True):
    """A restricted country. `active` is false if the restriction has been lifted."""

    type: RestrictionType
    country: str
    active: bool = True


class TaxRateEntry(ConfigEntry, frozen=True, kw_only=True):
    """A country's tax rate; 0.07 means 7 %."""

    country: str
    rate: Number


class RetentionEntry(ConfigEntry, frozen=True, kw_only=True):
    """Retention period in days; 0 disables deletion."""

    rule: RetentionRule
    days: int


class RefundThresholdEntry(ConfigEntry, frozen=True, kw_only=True):
    """Daily refund total per currency above which a merchant's refunds need approval."""

    merchant_id: int
    currency: str
    above: Number


class DepositToleranceEntry(ConfigEntry, frozen=True, kw_only=True):
    merchant_id: int
    percent: Number
