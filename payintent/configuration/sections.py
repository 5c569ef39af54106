"""The sections of a configuration file, and how to read, change and remove their entries.

Accounts, contracts and refunders are excluded, because they are bound to the keys and credentials
of a single installation.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from payintent.chains import store as chain_store
from payintent.chains.operations import SetToken
from payintent.chains.store import DEPOSIT_PROVIDER, TEST_DEPOSIT_PROVIDER
from payintent.configuration.entries import (
    ChainEntry,
    ConfigEntry,
    DepositToleranceEntry,
    FraudRuleEntry,
    MerchantFraudRuleEntry,
    MethodEntry,
    ProviderEntry,
    RateLimitEntry,
    RefundThresholdEntry,
    RestrictionEntry,
    RetentionEntry,
    TaxRateEntry,
    TokenEntry,
    format_number,
)
from payintent.core.access import RateLimitClass
from payintent.evm.abi import to_checksum_address
from payintent.fraud import store as fraud_store
from payintent.fraud.operations import AddFraudRule, RemoveFraudRule
from payintent.gateway_accounts import store as account_store
from payintent.gateway_accounts.providers_operations import (
    DisableProvider,
    EnableProvider,
    RenameProvider,
)
from payintent.merchants import access_store, restrictions
from payintent.merchants import methods_store as method_store
from payintent.merchants import store as merchant_store
from payintent.merchants import taxes as tax_rates
from payintent.merchants.access_operations import ClearRateLimit, SetRateLimit
from payintent.merchants.methods_operations import (
    AddPaymentMethod,
    ChangePaymentMethod,
    DisablePaymentMethod,
    EnablePaymentMethod,
    format_translations,
)
from payintent.merchants.model import Merchant
from payintent.merchants.operations import SetDepositTolerance, SetRefundThreshold
from payintent.merchants.restrictions import AddRestriction, LiftRestriction
from payintent.merchants.taxes import RemoveTaxRate, SetTaxRate
from payintent.onchain.operations import SetChain
from payintent.operators.fields import LIST_LIMIT_MAX
from payintent.operators.operation import ChangeOperation, OperationContext, copy_fields

_LIMITS_MAX = 10_000_000
Operations = Sequence[ChangeOperation[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledEntry:
    entry: Any
    row_id: int = 0  # only set if operations need it
    is_exported: bool = True  # False for a provider with default settings and for a disabled method


@dataclass(frozen=True, slots=True)
class Change:
    """A new or changed entry."""

    entry: Any  # with all fields
    fields: Mapping[str, Any]  # only the fields that differ
    installed_entry: InstalledEntry | None  # None if the entry is new


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSection:
    name: str
    entry_type: type[ConfigEntry]
    key: tuple[str, ...]  # fields that identify an entry
    read: Callable[[OperationContext], Awaitable[list[InstalledEntry]]]
    change: Callable[[Change], Operations]
    #: By default, entries are not removed.
    remove: Callable[[InstalledEntry], Operations] = lambda _: ()
    is_fixed: bool = False  # entries are added by migrations or gateways, not by operators
    allows_duplicates: bool = False  # several entries may have the same key
    is_per_merchant: bool = False  # exported only on request
    #: Instructions for the operator if no operation can make the change.
    instructions: Callable[[Any], str] | None = None

    def get_key(self, entry: ConfigEntry) -> tuple[object, ...]:
        return tuple(getattr(entry, name) for name in self.key)


async def _read_chains(context: OperationContext) -> list[InstalledEntry]:
    return [
        InstalledEntry(
            entry=copy_fields(
                ChainEntry,
                row,
                chain=row.slug,
                confirmations=UNSET if row.confirmations is None else row.confirmations,
                public_rpc_urls=list(row.public_rpc_urls),
                explorer_urls=list(row.explorer_urls),
                refund_approval_above=format_number(row.refund_approval_above),
                sweep_gas_price_max=format_number(row.sweep_gas_price_max),
                transfer_fee_usd=format_number(row.transfer_fee_usd),
            )
        )
        for row in await chain_store.list_chains(context.database)
    ]


async def _read_tokens(context: OperationContext) -> list[InstalledEntry]:
    return [
        InstalledEntry(
            entry=copy_fields(
                TokenEntry,
                token,
                address=UNSET if token.address is None else to_checksum_address(token.address),
                minimum=int(token.minimum),
                auto_refund_from=format_number(token.auto_refund_from),
                sweep_value=format_number(token.sweep_value),
                sweep_minimum=format_number(token.sweep_minimum),
                surplus_from=format_number(token.surplus_from),
            )
        )
        for chain in await chain_store.list_chains(context.database)
        for token in await chain_store.list_tokens(context.database, chain.slug)
    ]


async def _read_providers(context: OperationContext) -> list[InstalledEntry]:
    return [
        InstalledEntry(
            entry=ProviderEntry(provider=row.name, wire_name=row.wire_name, enabled=row.enabled),
            is_exported=row.wire_name != _default_wire_name(row.name) or not row.enabled,
        )
        for row in await account_store.list_providers(context.database)
    ]


def _default_wire_name(provider: str) -> str:
    return DEPOSIT_PROVIDER if provider == TEST_DEPOSIT_PROVIDER else provider


def _change_provider(change: Change) -> Operations:
    operations: list[ChangeOperation[Any]] = []
    provider, fields = change.entry.provider, change.fields
    if "wire_name" in fields:
        operations.append(RenameProvider(provider=provider, wire_name=fields["wire_name"]))
    if "enabled" in fields:
        switch = EnableProvider if fields["enabled"] else DisableProvider
        operations.append(switch(provider=provider))
    return operations


def _reset_provider(installed_entry: InstalledEntry) -> Operations:
    operations: list[ChangeOperation[Any]] = []
    provider = installed_entry.entry.provider
    wire_name = _default_wire_name(provider)
    if installed_entry.entry.wire_name != wire_name:
        operations.append(RenameProvider(provider=provider, wire_name=wire_name))
    if not installed_entry.entry.enabled:
        operations.append(EnableProvider(provider=provider))
    return operations


async def _read_restrictions(context: OperationContext) -> list[InstalledEntry]:
    return [
        InstalledEntry(
            entry=RestrictionEntry(type=row.type, country=row.country, active=row.active)
        )
        for row in await restrictions.list_restrictions(context.database)
    ]


def _change_restriction(change: Change) -> Operations:
    """Add or lift a restriction. A new inactive restriction is added and then lifted."""
    key = {"type": change.entry.type, "country": change.entry.country}
    operations: list[ChangeOperation[Any]] = []
    if change.entry.active or change.installed_entry is None:
        operations.append(AddRestriction(**key))
    if not change.entry.active:
        operations.append(LiftRestriction(**key))
    return operations


def _lift_restriction(installed_entry: InstalledEntry) -> Operations:
    if not installed_entry.entry.active:
        return ()
    return [LiftRestriction(type=installed_entry.entry.type, country=installed_entry.entry.country)]


async def _read_fraud_rules(
    entry: type[ConfigEntry], context: OperationContext
) -> list[InstalledEntry]:
    is_per_merchant = entry is MerchantFraudRuleEntry
    return [
        InstalledEntry(entry=copy_fields(entry, rule), row_id=rule.id)
        for rule in await fraud_store.list_rules(context.database)
        if (rule.merchant_id is not None) is is_per_merchant
    ]


async def _read_tax_rates(context: OperationContext) -> list[InstalledEntry]:
    rates = await tax_rates.list_tax_rates(context.database)
    return [
        InstalledEntry(entry=TaxRateEntry(country=country, rate=format_number(rate)))
        for country, rate in rates.items()
    ]


async def _read_retention(context: OperationContext) -> list[InstalledEntry]:
    return [
        InstalledEntry(entry=RetentionEntry(rule=rule, days=days))
        for rule, days in context.settings.retention.items()
    ]


async def _read_rate_limits(context: OperationContext) -> list[InstalledEntry]:
    return [
        InstalledEntry(entry=copy_fields(RateLimitEntry, row, kind=RateLimitClass(row.kind)))
        for row in await access_store.list_limits(context.database, None, _LIMITS_MAX)
    ]


async def _list_merchants(context: OperationContext) -> list[Merchant]:
    result: list[Merchant] = []
    while True:
        after = result[-1].id if result else 0
        page = await merchant_store.list_merchants(context.database, LIST_LIMIT_MAX, after=after)
        result += page
        if len(page) < LIST_LIMIT_MAX:
            return result


async def _read_refund_thresholds(context: OperationContext) -> list[InstalledEntry]:
    return [
        InstalledEntry(
            entry=RefundThresholdEntry(
                merchant_id=merchant.id, currency=currency, above=format_number(above)
            )
        )
        for merchant in await _list_merchants(context)
        for currency, above in sorted(merchant.refund_approval_above.items())
    ]


async def _read_deposit_tolerances(context: OperationContext) -> list[InstalledEntry]:
    return [
        InstalledEntry(
            entry=DepositToleranceEntry(
                merchant_id=merchant.id, percent=format_number(merchant.deposit_tolerance)
            )
        )
        for merchant in await _list_merchants(context)
        if merchant.deposit_tolerance
    ]


def _set_deposit_tolerance(entry: DepositToleranceEntry, percent: str) -> Operations:
    return [SetDepositTolerance(merchant_id=entry.merchant_id, percent=Decimal(percent))]


async def _read_methods(context: OperationContext) -> list[InstalledEntry]:
    return [
        InstalledEntry(
            entry=copy_fields(
                MethodEntry,
                method,
                currencies=list(method.currencies),
                countries=None if method.countries is None else list(method.countries),
                fee_rate=format_number(method.fee_rate),
                limits=list(method.limits),
                label_translations=format_translations(method.label_translations),
            ),
            row_id=method.id,
            is_exported=method.enabled,
        )
        for merchant in await _list_merchants(context)
        for method in await method_store.list_for_merchant(context.database, merchant.id, ())
    ]


def _change_method(change: Change) -> Operations:
    fields = dict(change.fields)
    if "fee_rate" in fields:
        fields["fee_rate"] = Decimal(fields["fee_rate"])
    if change.installed_entry is None:
        return [AddPaymentMethod(**fields)]
    operations: list[ChangeOperation[Any]] = []
    if fields:
        if "countries" in fields:  # an empty list means all countries
            fields["countries"] = fields["countries"] or []
        operations.append(ChangePaymentMethod(method_id=change.installed_entry.row_id, **fields))
    if not change.installed_entry.is_exported:
        operations.append(EnablePaymentMethod(method_id=change.installed_entry.row_id))
    return operations


def _remove_method(installed_entry: InstalledEntry) -> Operations:
    return (
        [DisablePaymentMethod(method_id=installed_entry.row_id)]
        if installed_entry.is_exported
        else ()
    )


def _select_specified_fields(entry: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in msgspec.structs.asdict(entry).items()
        if value is not UNSET and value is not None
    }


SECTIONS: Sequence[ConfigSection] = (
    ConfigSection(
        name="chains",
        entry_type=ChainEntry,
        key=("chain",),
        read=_read_chains,
        change=lambda change: [SetChain(chain=change.entry.chain, **change.fields)],
        is_fixed=True,
    ),
    ConfigSection(
        name="tokens",
        entry_type=TokenEntry,
        key=("chain", "symbol"),
        read=_read_tokens,
        change=lambda change: [
            SetToken(chain=change.entry.chain, symbol=change.entry.symbol, **change.fields)
        ],
        is_fixed=True,
    ),
    ConfigSection(
        name="providers",
        entry_type=ProviderEntry,
        key=("provider",),
        read=_read_providers,
        change=_change_provider,
        remove=_reset_provider,
        is_fixed=True,
    ),
    ConfigSection(
        name="restrictions",
        entry_type=RestrictionEntry,
        key=("type", "country"),
        read=_read_restrictions,
        change=_change_restriction,
        remove=_lift_restriction,
    ),
    ConfigSection(
        name="fraud_rules",
        entry_type=FraudRuleEntry,
        key=FraudRuleEntry.__struct_fields__,
        read=partial(_read_fraud_rules, FraudRuleEntry),
        change=lambda change: [AddFraudRule(**_select_specified_fields(change.entry))],
        remove=lambda installed_entry: [RemoveFraudRule(rule_id=installed_entry.row_id)],
        allows_duplicates=True,
    ),
    ConfigSection(
        name="tax_rates",
        entry_type=TaxRateEntry,
        key=("country",),
        read=_read_tax_rates,
        change=lambda change: [
            SetTaxRate(country=change.entry.country, rate=Decimal(change.entry.rate))
        ],
        remove=lambda installed_entry: [RemoveTaxRate(country=installed_entry.entry.country)],
    ),
    ConfigSection(
        name="retention",
        entry_type=RetentionEntry,
        key=("rule",),
        read=_read_retention,
        change=lambda _: (),
        is_fixed=True,
        instructions=lambda entry: f"set PAYINTENT_{entry.rule.upper()}_DAYS={entry.days}",
    ),
    ConfigSection(
        name="merchant_rate_limits",
        entry_type=RateLimitEntry,
        key=("merchant_id", "kind"),
        read=_read_rate_limits,
        change=lambda change: [SetRateLimit(**_select_specified_fields(change.entry))],
        remove=lambda installed_entry: [
            ClearRateLimit(
                merchant_id=installed_entry.entry.merchant_id, kind=installed_entry.entry.kind
            )
        ],
        is_per_merchant=True,
    ),
    ConfigSection(
        name="merchant_fraud_rules",
        entry_type=MerchantFraudRuleEntry,
        key=MerchantFraudRuleEntry.__struct_fields__,
        read=partial(_read_fraud_rules, MerchantFraudRuleEntry),
        change=lambda change: [AddFraudRule(**_select_specified_fields(change.entry))],
        remove=lambda installed_entry: [RemoveFraudRule(rule_id=installed_entry.row_id)],
        allows_duplicates=True,
        is_per_merchant=True,
    ),
    ConfigSection(
        name="merchant_refund_thresholds",
        entry_type=RefundThresholdEntry,
        key=("merchant_id", "currency"),
        read=_read_refund_thresholds,
        change=lambda change: [SetRefundThreshold(**_select_specified_fields(change.entry))],
        remove=lambda installed_entry: [
            SetRefundThreshold(
                merchant_id=installed_entry.entry.merchant_id,
                currency=installed_entry.entry.currency,
            )
        ],
        is_per_merchant=True,
    ),
    ConfigSection(
        name="merchant_deposit_tolerances",
        entry_type=DepositToleranceEntry,
        key=("merchant_id",),
        read=_read_deposit_tolerances,
        change=lambda change: _set_deposit_tolerance(change.entry, change.entry.percent),
        remove=lambda installed_entry: _set_deposit_tolerance(installed_entry.entry, "0"),
        is_per_merchant=True,
    ),
    ConfigSection(
        name="merchant_methods",
        entry_type=MethodEntry,
        key=("merchant_id", "account_id", "kind", "token", "label"),
        read=_read_methods,
        change=_change_method,
        remove=_remove_method,
        allows_duplicates=True,
        is_per_merchant=True,
    ),
)
