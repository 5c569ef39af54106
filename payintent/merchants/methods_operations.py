"""Operations on merchants' payment methods."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, ClassVar

from payintent.chains import store as chain_store
from payintent.core.errors import BadRequestError, ConflictError, NotFoundError
from payintent.core.languages import LOCALES
from payintent.db.database import Executor, Tx
from payintent.gateway_accounts import store as account_store
from payintent.gateways.amount_limits import parse_limits
from payintent.merchants import methods_store as method_store
from payintent.merchants import store as merchant_store
from payintent.merchants.methods_store import METHODS_MAX, MethodKind, NewPaymentMethod
from payintent.merchants.model import FeeMode, PaymentMethod
from payintent.merchants.store import require_merchant
from payintent.operators.fields import (
    MerchantId,
    argument,
    check_market,
    check_name,
    check_rate,
    is_database_id,
    option,
    quote_input,
)
from payintent.operators.operation import (
    ChangeOperation,
    OperationContext,
    ReadOperation,
    check_approved,
    details,
    to_json_value,
)

_POSITION_MAX = 10_000
_LIMITS = "Limits that replace the gateway's limits on the total, such as USD:0.50:1000,THB:20:"
_TRANSLATIONS = "Labels in other languages of the checkout, such as th:บัตรเครดิต,ja:カード"
_MethodId = Annotated[int, argument("The payment method ID.")]


class AddPaymentMethod(ChangeOperation[PaymentMethod], frozen=True, kw_only=True):
    """Add a payment method to a merchant."""

    action: ClassVar[str] = "method.add"
    merchant_id: MerchantId
    account_id: Annotated[int, option("The gateway account.", name="account")]
    kind: Annotated[
        MethodKind,
        option("card, redirect, qr or onchain.", any_text=True),
    ]
    label: Annotated[str, option("The label shown to buyers.")]
    currencies: Annotated[
        list[str], option("Comma-separated, such as USD,THB; for on-chain methods, the token.")
    ]
    countries: Annotated[list[str] | None, option("Comma-separated. Default: all.")] = None
    token: Annotated[str | None, option("The token of an on-chain method, such as USDT.")] = None
    fee_mode: Annotated[FeeMode, option("Whether the amount includes the fee.")] = FeeMode.INCLUSIVE
    fee_rate: Annotated[Decimal, option("The fee rate; 0.029 means 2.9 %.")] = Decimal(0)
    position: Annotated[int, option("Methods with lower positions come first.")] = 0
    limits: Annotated[list[str] | None, option(_LIMITS)] = None
    label_translations: Annotated[list[str] | None, option(_TRANSLATIONS)] = None

    async def needs_approval(self, context: OperationContext) -> bool:
        """Require approval once the merchant is live, because a method sets the fee and payee."""
        await require_merchant(context.database, self.merchant_id)
        return await merchant_store.has_gone_live(context.database, self.merchant_id)

    async def changes(self, context: OperationContext) -> list[str]:
        merchant = await require_merchant(context.database, self.merchant_id)
        method = f"{self.kind} method {quote_input(self.label)}"
        return [
            f"{merchant.title} offers the {method}",
            *(
                f"{name} is {value}"
                for name, value in details(self).items()
                if name not in ("merchant_id", "kind", "label")
            ),
        ]

    async def check(self, context: OperationContext) -> None:
        _check_limits(self.limits)
        parse_translations(self.label_translations or ())
        merchant = await require_merchant(context.database, self.merchant_id)
        _check_terms(self.label, self.currencies, self.countries, self.fee_rate, self.position)
        account = None
        if is_database_id(self.account_id):
            account = await account_store.get(context.database, self.account_id)
        if account is None or account.merchant_id not in {None, self.merchant_id}:
            raise NotFoundError(f"this merchant has no account {self.account_id}")
        if account.livemode != merchant.livemode:
            raise BadRequestError(
                f"account {account.id} and merchant {merchant.id} must both be live or both be test"
            )
        await self._check_token(context)

    async def _check_token(self, context: OperationContext) -> None:
        contract = await chain_store.get_contract(context.database, self.account_id)
        if (self.kind == "onchain") != (contract is not None):
            raise BadRequestError(
                "kind onchain requires a contract account; other kinds require a gateway account"
            )
        if contract is None:
            if self.token is not None:
                raise BadRequestError("only on-chain methods can have a token")
            return
        symbols = {
            token.symbol
            for token in await chain_store.list_contract_tokens(context.database, contract)
        }
        if self.token not in symbols:
            raise BadRequestError(f"token must be one of {', '.join(sorted(symbols))}")
        _check_token_currencies(self.token, self.currencies)

    async def apply(self, context: OperationContext, tx: Tx) -> PaymentMethod:
        await merchant_store.lock(tx, self.merchant_id)  # waits for a concurrent activation
        has_gone_live = await merchant_store.has_gone_live(tx, self.merchant_id)
        check_approved(context, needs_approval=has_gone_live)
        if await method_store.count(tx, self.merchant_id) >= METHODS_MAX:
            raise ConflictError(
                f"a merchant can have at most {METHODS_MAX} payment methods, including disabled"
                " methods"
            )
        contract = await chain_store.get_contract(tx, self.account_id)
        method = NewPaymentMethod(
            kind=self.kind,
            label=self.label,
            currencies=self.currencies,
            countries=self.countries,
            fee_mode=self.fee_mode,
            fee_rate=self.fee_rate,
            chain=contract and contract.chain,
            token=self.token,
            limits=self.limits or (),
            label_translations=parse_translations(self.label_translations or ()),
        )
        method_id = await method_store.add(
            tx, self.merchant_id, self.account_id, method, self.position
        )
        return await _lock_method(tx, method_id)


class ListPaymentMethods(ReadOperation[list[PaymentMethod]], frozen=True, kw_only=True):
    """List a merchant's methods in display order."""

    action: ClassVar[str] = "method.list"
    columns = (
        *("id", "kind", "label", "provider", "currencies", "countries", "fee_rate", "fee_mode"),
        "enabled",
    )
    merchant_id: MerchantId

    async def read(self, context: OperationContext) -> list[PaymentMethod]:
        await require_merchant(context.database, self.merchant_id)
        chains = (await method_store.get_version(context.database)).watched_chains
        return await method_store.list_for_merchant(context.database, self.merchant_id, chains)


class ChangePaymentMethod(ChangeOperation[PaymentMethod], frozen=True, kw_only=True):
    """Change a method. Omitted fields stay the same, as do quotes that buyers have selected."""

    action: ClassVar[str] = "method.change"
    method_id: _MethodId
    label: Annotated[str | None, option("The label shown to buyers.")] = None
    currencies: Annotated[list[str] | None, option("Comma-separated, such as USD,THB.")] = None
    countries: Annotated[list[str] | None, option('Comma-separated; "" for all.')] = None
    fee_mode: Annotated[FeeMode | None, option("Whether the amount includes the fee.")] = None
    fee_rate: Annotated[Decimal | None, option("The fee rate; 0.029 means 2.9 %.")] = None
    position: Annotated[int | None, option("Methods with lower positions come first.")] = None
    limits: Annotated[list[str] | None, option(f'{_LIMITS}; "" for none')] = None
    label_translations: Annotated[list[str] | None, option(f'{_TRANSLATIONS}; "" for none')] = None

    async def needs_approval(self, context: OperationContext) -> bool:
        """Require approval for a fee change after the merchant has gone live."""
        method = await _require_method(context.database, self.method_id)
        return await self._needs_approval(context.database, method)

    async def _needs_approval(self, database: Executor, method: PaymentMethod) -> bool:
        changes_mode = self.fee_mode not in (None, method.fee_mode)
        changes_fee = changes_mode or self.fee_rate not in (None, method.fee_rate)
        return changes_fee and await merchant_store.has_gone_live(database, method.merchant_id)

    async def changes(self, context: OperationContext) -> list[str]:
        method = await _require_method(context.database, self.method_id)
        values = to_json_value(method)
        values["label_translations"] = format_translations(method.label_translations)
        return [
            f"{name} of merchant {method.merchant_id}'s method {method.id} "
            f"({quote_input(method.label)}) changes from {values[name]} to {value}"
            for name, value in details(self).items()
            if name != "method_id"
        ]

    async def check(self, context: OperationContext) -> None:
        method = await _require_method(context.database, self.method_id)
        _check_token_currencies(method.token, self.currencies)
        _check_limits(self.limits)
        parse_translations(self.label_translations or ())
        countries = self.countries or None
        _check_terms(self.label, self.currencies, countries, self.fee_rate, self.position)

    async def apply(self, context: OperationContext, tx: Tx) -> PaymentMethod:
        merchant_id = (await _require_method(tx, self.method_id)).merchant_id
        await merchant_store.lock(tx, merchant_id)  # waits for a concurrent activation
        method = await _lock_method(tx, self.method_id)
        check_approved(context, needs_approval=await self._needs_approval(tx, method))
        method = replace(
            method,
            label=self.label or method.label,
            currencies=tuple(self.currencies or method.currencies),
            countries=method.countries if self.countries is None else tuple(self.countries) or None,
            fee_mode=self.fee_mode or method.fee_mode,
            fee_rate=method.fee_rate if self.fee_rate is None else self.fee_rate,
            position=method.position if self.position is None else self.position,
            limits=method.limits if self.limits is None else tuple(self.limits),
            label_translations=method.label_translations
            if self.label_translations is None
            else parse_translations(self.label_translations),
        )
        await method_store.update(tx, method)
        return method


class EnablePaymentMethod(ChangeOperation[PaymentMethod], frozen=True, kw_only=True):
    """Enable a payment method."""

    action: ClassVar[str] = "method.enable"
    method_id: _MethodId

    async def apply(self, context: OperationContext, tx: Tx) -> PaymentMethod:
        return await _set_enabled(tx, self.method_id, enabled=True)


class DisablePaymentMethod(ChangeOperation[PaymentMethod], frozen=True, kw_only=True):
    """Disable a payment method. Payments that already use it continue."""

    action: ClassVar[str] = "method.disable"
    is_destructive: ClassVar[bool] = True
    method_id: _MethodId

    async def apply(self, context: OperationContext, tx: Tx) -> PaymentMethod:
        return await _set_enabled(tx, self.method_id, enabled=False)


async def _set_enabled(tx: Tx, method_id: int, *, enabled: bool) -> PaymentMethod:
    method = replace(await _lock_method(tx, method_id), enabled=enabled)
    await method_store.update(tx, method)
    return method


async def _require_method(database: Executor, method_id: int) -> PaymentMethod:
    method = await method_store.get(database, method_id) if is_database_id(method_id) else None
    if method is None:
        raise NotFoundError(f"no payment method {method_id}")
    return method


async def _lock_method(tx: Tx, method_id: int) -> PaymentMethod:
    method = await method_store.lock(tx, method_id) if is_database_id(method_id) else None
    if method is None:
        raise NotFoundError(f"no payment method {method_id}")
    return method


def _check_token_currencies(token: str | None, currencies: list[str] | None) -> None:
    """Check the currencies of an on-chain method, whose quotes are sent as units of its token."""
    if token is not None and currencies not in (None, [token]):
        raise BadRequestError(f"currencies must be {token}, the token of the method")


def _check_limits(limits: list[str] | None) -> None:
    try:
        parse_limits(limits or ())
    except ValueError as error:
        raise BadRequestError(f"limits: {error}") from None


def _check_terms(
    label: str | None,
    currencies: list[str] | None,
    countries: list[str] | None,
    fee_rate: Decimal | None,
    position: int | None,
) -> None:
    if label is not None:
        check_name("label", label)
    check_market(countries, currencies)
    if fee_rate is not None:
        check_rate("fee_rate", fee_rate)
    if position is not None and not 0 <= position <= _POSITION_MAX:
        raise BadRequestError(f"position must be from 0 to {_POSITION_MAX}")


def parse_translations(entries: Iterable[str]) -> dict[str, str]:
    """Parse entries such as `th:บัตรเครดิต`, at most one per language of the checkout."""
    translations: dict[str, str] = {}
    for entry in entries:
        language, _, label = entry.partition(":")
        if language not in LOCALES:
            raise BadRequestError(
                "label_translations must be LANGUAGE:LABEL with one of the languages "
                f"{', '.join(LOCALES)}, not {quote_input(entry)}"
            )
        if language in translations:
            raise BadRequestError(f"label_translations must have at most one entry for {language}")
        check_name(f"label_translations for {language}", label)
        translations[language] = label
    return translations


def format_translations(translations: Mapping[str, str]) -> list[str]:
    return sorted(f"{language}:{label}" for language, label in translations.items())
