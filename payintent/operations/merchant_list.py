"""Merchants as operators look for them, and what is left to do before one is in service."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from payintent.domain.activation import ActivationStatus, is_in_service
from payintent.domain.merchant import Market, Merchant, PaymentMethod
from payintent.domain.payment import PaymentStatus
from payintent.operations.base import OperationContext, ReadOperation
from payintent.operations.fields import MerchantId, option
from payintent.operations.validation import (
    LISTED_MAX,
    check_after,
    check_list_limit,
    check_text_if_given,
    require_merchant,
)
from payintent.storage import (
    api_keys,
    callback_secrets,
    configuration,
    merchants,
    payment_methods,
    payment_search,
)
from payintent.storage.callback_secrets import CallbackSecretTimes
from payintent.storage.database import Executor
from payintent.storage.merchants import ActivationRecord, MerchantFilter
from payintent.storage.payment_search import PaymentScope

_NAME_MAX = 200
_NAMED_MAX = 10  # currencies in a message
_WAS_PAID = (PaymentStatus.PAID, PaymentStatus.PARTIALLY_REFUNDED, PaymentStatus.REFUNDED)


class ListMerchants(ReadOperation[list[Merchant]], frozen=True, kw_only=True):
    """List merchants."""

    action: ClassVar[str] = "merchant.list"
    columns = ("id", "name", "livemode", "activation", "callback_url", "tax_manager")
    name: Annotated[str | None, option("Whose name has this part.")] = None
    activation: Annotated[ActivationStatus | None, option("Whose activation is this far.")] = None
    after: Annotated[int, option("The next page: merchants after this number.", min=0)] = 0
    limit: int = LISTED_MAX

    async def read(self, context: OperationContext) -> list[Merchant]:
        check_list_limit(self.limit)
        check_text_if_given("name", self.name, _NAME_MAX)
        check_after(self.after)
        wanted = MerchantFilter(name=self.name, activation=self.activation, after=self.after)
        return await merchants.list_merchants(context.database, wanted, self.limit)


class ListCallbackSecrets(ReadOperation[list[CallbackSecretTimes]], frozen=True, kw_only=True):
    """List a merchant's callback secrets: when each was made, and until when it signs along."""

    action: ClassVar[str] = "merchant.secrets"
    columns = ("id", "created_at", "expires_at", "signs")
    merchant_id: MerchantId

    async def read(self, context: OperationContext) -> list[CallbackSecretTimes]:
        await require_merchant(context.database, self.merchant_id)
        return await callback_secrets.list_times(context.database, self.merchant_id, LISTED_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistStep:
    step: str
    done: bool
    says: str  # what is there, or what is missing
    action: str  # the operation that does it


class ShowChecklist(ReadOperation[list[ChecklistStep]], frozen=True, kw_only=True):
    """Show the steps of a merchant's way into service, with what is missing."""

    action: ClassVar[str] = "merchant.checklist"
    columns = ("step", "done", "says", "action")
    merchant_id: MerchantId

    async def read(self, context: OperationContext) -> list[ChecklistStep]:
        database = context.database
        merchant = await require_merchant(database, self.merchant_id)
        file = await merchants.get_activation(database, merchant.id)
        assert file is not None  # noqa: S101 - merchants are never deleted
        watched = (await configuration.get_version(database)).watched_chains
        methods = await payment_methods.list_for_merchant(database, merchant.id, watched)
        keys = await api_keys.list_keys(database, merchant.id, LISTED_MAX)
        return [
            _key(sum(key.revoked_at is None for key in keys)),
            _webhooks(merchant),
            _profile(merchant),
            _request(file),
            _methods(file, methods),
            _apply(file),
            await _read_tried(database, merchant.id),
            _reached(file, ActivationStatus.VALIDATED, "merchant.validate"),
            _reached(file, ActivationStatus.ACTIVE, "merchant.activate"),
        ]


def _key(usable: int) -> ChecklistStep:
    says = f"{usable} in use" if usable else "there is none, or all are revoked"
    return ChecklistStep(step="API key", done=usable > 0, says=says, action="key.issue")


def _webhooks(merchant: Merchant) -> ChecklistStep:
    return ChecklistStep(
        step="Callback URL",
        done=merchant.callback_url is not None,
        says=merchant.callback_url or "none: events are kept, and sent nowhere",
        action="merchant.set-callback-url",
    )


def _profile(merchant: Merchant) -> ChecklistStep:
    missing = [
        words
        for words, value in (
            ("a support link", merchant.support_url),
            ("where buyers return to", merchant.return_url or merchant.allowed_origins),
        )
        if not value
    ]
    return ChecklistStep(
        step="Profile",
        done=not missing,
        says=f"missing: {', '.join(missing)}" if missing else "described",
        action="merchant.profile",
    )


def _request(file: ActivationRecord) -> ChecklistStep:
    missing = [
        words
        for words, value in (
            ("the contract", file.contract),
            ("the check of the merchant", file.kyc),
            ("countries", file.requested_countries),
            ("currencies", file.requested_currencies),
        )
        if not value
    ]
    filed = f"contract {file.contract}, check {file.kyc}"
    return ChecklistStep(
        step="Contract and check filed",
        done=not missing,
        says=f"missing: {', '.join(missing)}" if missing else filed,
        action="merchant.request",
    )


def _methods(file: ActivationRecord, methods: Sequence[PaymentMethod]) -> ChecklistStep:
    """Compare what can be paid with the currencies and countries that were asked for."""
    usable = [method for method in methods if method.enabled and method.account_enabled]
    currencies = file.requested_currencies or file.currencies
    countries = file.requested_countries or file.countries
    without = [
        code
        for code in currencies or ()
        if not any(_accepts(method, code, countries) for method in usable)
    ]
    says = f"{len(usable)} of {len(methods)} can be used"
    if not usable:
        says = "none can be used: " + (
            "their accounts, gateways or chains are off" if methods else "add a method"
        )
    elif without:
        named = ", ".join(without[:_NAMED_MAX])
        says = f"no method takes {named} where it was asked for"
    return ChecklistStep(
        step="Accounts and methods",
        done=bool(usable) and not without,
        says=says,
        action="method.add",
    )


def _accepts(method: PaymentMethod, currency: str, countries: Sequence[str] | None) -> bool:
    market = Market(countries=method.countries, currencies=method.currencies)
    if countries is None:
        return currency in method.currencies
    return any(market.includes(currency, country) for country in countries)


def _apply(file: ActivationRecord) -> ChecklistStep:
    applied = file.activation not in {ActivationStatus.NEW, ActivationStatus.REQUESTED}
    changed = (file.requested_countries, file.requested_currencies) != (
        file.countries,
        file.currencies,
    )
    waits = applied and changed and file.requested_countries is not None
    says = "its market is what it asked for" if applied else "it takes no payments yet"
    return ChecklistStep(
        step="Market applied",
        done=applied and not waits,
        says="it asked for another market since" if waits else says,
        action="merchant.apply",
    )


async def _read_tried(database: Executor, merchant_id: int) -> ChecklistStep:
    scope = PaymentScope(merchant_id=merchant_id, statuses=_WAS_PAID, limit=1)
    has_paid = bool(await payment_search.list_ids(database, scope, None))
    says = "at least one was paid" if has_paid else "none was paid: try the whole flow"
    return ChecklistStep(step="A payment was made", done=has_paid, says=says, action="payment.list")


def _reached(file: ActivationRecord, wanted: ActivationStatus, action: str) -> ChecklistStep:
    now = ActivationStatus(file.activation)
    was_active = file.activated_at is not None
    done = now in {wanted, ActivationStatus.ACTIVE} or (
        was_active and wanted is ActivationStatus.VALIDATED
    )
    says = f"it is {now}"
    if now is ActivationStatus.SUSPENDED:
        says += ": resume it"
        action = "merchant.resume"
    elif not is_in_service(now):
        says += ": the steps before come first"
    return ChecklistStep(step=wanted.capitalize(), done=done, says=says, action=action)
