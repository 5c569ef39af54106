"""Lists of merchants and callback secrets, and the activation checklist."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from payintent.merchants import access_store, callback_secrets
from payintent.merchants import methods_store as method_store
from payintent.merchants import store as merchant_store
from payintent.merchants.callback_secrets import CallbackSecretTimes
from payintent.merchants.model import (
    ActivationStatus,
    Market,
    Merchant,
    PaymentMethod,
    accepts_payments,
)
from payintent.merchants.store import ActivationRecord, require_merchant
from payintent.operators.fields import (
    LISTED_MAX,
    MerchantId,
    check_after,
    check_list_limit,
    check_text_if_given,
    option,
)
from payintent.operators.operation import OperationContext, ReadOperation

_NAME_MAX = 200
_MESSAGE_CURRENCIES_MAX = 10


class ListMerchants(ReadOperation[list[Merchant]], frozen=True, kw_only=True):
    """List merchants."""

    action: ClassVar[str] = "merchant.list"
    columns = ("id", "name", "livemode", "activation", "callback_url", "tax_manager")
    name: Annotated[str | None, option("Part of the name.")] = None
    activation: Annotated[ActivationStatus | None, option("The activation status.")] = None
    after: Annotated[int, option("The next page: merchants after this number.", min=0)] = 0
    limit: int = LISTED_MAX

    async def read(self, context: OperationContext) -> list[Merchant]:
        check_list_limit(self.limit)
        check_text_if_given("name", self.name, _NAME_MAX)
        check_after(self.after)
        return await merchant_store.list_merchants(
            context.database,
            self.limit,
            after=self.after,
            name=self.name,
            activation=self.activation,
        )


class ListCallbackSecrets(ReadOperation[list[CallbackSecretTimes]], frozen=True, kw_only=True):
    """List a merchant's callback secrets with their creation and expiry times."""

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
    says: str  # the current state, or what is missing
    action: str  # the operation that completes the step


class ShowChecklist(ReadOperation[list[ChecklistStep]], frozen=True, kw_only=True):
    """Show the steps of a merchant's activation and their progress."""

    action: ClassVar[str] = "merchant.checklist"
    columns = ("step", "done", "says", "action")
    merchant_id: MerchantId

    async def read(self, context: OperationContext) -> list[ChecklistStep]:
        database = context.database
        merchant = await require_merchant(database, self.merchant_id)
        record = await merchant_store.get_activation(database, merchant.id)
        watched = (await method_store.get_version(database)).watched_chains
        methods = await method_store.list_for_merchant(database, merchant.id, watched)
        keys = await access_store.list_keys(database, merchant.id, LISTED_MAX)
        return [
            _key_step(sum(key.revoked_at is None for key in keys)),
            _webhook_step(merchant),
            _profile_step(merchant),
            _request_step(record),
            _methods_step(record, methods),
            _market_step(record),
            _payment_step(has_paid=await merchant_store.has_paid_payment(database, merchant.id)),
            _status_step(record, ActivationStatus.VALIDATED, "merchant.validate"),
            _status_step(record, ActivationStatus.ACTIVE, "merchant.activate"),
        ]


def _key_step(active_keys: int) -> ChecklistStep:
    says = f"{active_keys} in use" if active_keys else "no active key"
    return ChecklistStep(step="API key", done=active_keys > 0, says=says, action="key.issue")


def _webhook_step(merchant: Merchant) -> ChecklistStep:
    return ChecklistStep(
        step="Callback URL",
        done=merchant.callback_url is not None,
        says=merchant.callback_url or "none: events are stored but not sent",
        action="merchant.set-callback-url",
    )


def _profile_step(merchant: Merchant) -> ChecklistStep:
    missing = _missing(
        {
            "a support link": merchant.support_url,
            "a return URL or allowed origins": merchant.return_url or merchant.allowed_origins,
        }
    )
    return ChecklistStep(
        step="Profile", done=not missing, says=missing or "complete", action="merchant.profile"
    )


def _request_step(record: ActivationRecord) -> ChecklistStep:
    missing = _missing(
        {
            "the contract": record.contract,
            "the KYC file": record.kyc,
            "countries": record.requested_countries,
            "currencies": record.requested_currencies,
        }
    )
    return ChecklistStep(
        step="Contract and KYC filed",
        done=not missing,
        says=missing or f"contract {record.contract}, KYC {record.kyc}",
        action="merchant.request",
    )


def _missing(values: Mapping[str, object]) -> str:
    missing = [name for name, value in values.items() if not value]
    return f"missing: {', '.join(missing)}" if missing else ""


def _methods_step(record: ActivationRecord, methods: Sequence[PaymentMethod]) -> ChecklistStep:
    """Check whether the usable methods cover the requested currencies and countries."""
    usable = [method for method in methods if method.enabled and method.account_enabled]
    currencies = record.requested_currencies or record.currencies
    countries = record.requested_countries or record.countries
    unsupported = [
        code
        for code in currencies or ()
        if not any(_accepts(method, code, countries) for method in usable)
    ]
    says = f"{len(usable)} of {len(methods)} methods are usable"
    if not methods:
        says = "none: add a method"
    elif not usable:
        says = "no method is usable: accounts, gateways or chains are disabled"
    elif unsupported:
        codes = ", ".join(unsupported[:_MESSAGE_CURRENCIES_MAX])
        says = f"no method accepts {codes} in the requested countries"
    return ChecklistStep(
        step="Accounts and methods",
        done=bool(usable) and not unsupported,
        says=says,
        action="method.add",
    )


def _accepts(method: PaymentMethod, currency: str, countries: Sequence[str] | None) -> bool:
    market = Market(countries=method.countries, currencies=method.currencies)
    if countries is None:
        return currency in method.currencies
    return any(market.includes(currency, country) for country in countries)


def _market_step(record: ActivationRecord) -> ChecklistStep:
    is_applied = record.activation not in {ActivationStatus.NEW, ActivationStatus.REQUESTED}
    requested = (record.requested_countries, record.requested_currencies)
    is_pending = (
        is_applied
        and record.requested_countries is not None
        and requested != (record.countries, record.currencies)
    )
    says = "the requested market is applied" if is_applied else "payments are not accepted yet"
    return ChecklistStep(
        step="Market applied",
        done=is_applied and not is_pending,
        says="another market was requested since" if is_pending else says,
        action="merchant.apply",
    )


def _payment_step(*, has_paid: bool) -> ChecklistStep:
    says = "at least one payment was paid" if has_paid else "not yet: test the whole flow"
    return ChecklistStep(step="A payment was made", done=has_paid, says=says, action="payment.list")


def _status_step(record: ActivationRecord, status: ActivationStatus, action: str) -> ChecklistStep:
    current = ActivationStatus(record.activation)
    was_active = record.activated_at is not None
    done = current in {status, ActivationStatus.ACTIVE} or (
        was_active and status is ActivationStatus.VALIDATED
    )
    says = f"the merchant is {current}"
    if current is ActivationStatus.SUSPENDED:
        says += ": resume it"
        action = "merchant.resume"
    elif not accepts_payments(current):
        says += ": complete the earlier steps first"
    return ChecklistStep(step=status.capitalize(), done=done, says=says, action=action)
