"""Operations that activate merchants, and a checklist of the steps (spec section 1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from payintent.core.errors import ConflictError
from payintent.db.database import Tx
from payintent.merchants import access_store
from payintent.merchants import methods_store as method_store
from payintent.merchants import store as merchant_store
from payintent.merchants.model import (
    ActivationAction,
    ActivationStatus,
    Market,
    Merchant,
    PaymentMethod,
    accepts_payments,
    next_activation_status,
)
from payintent.merchants.store import ActivationRecord, require_merchant
from payintent.operators.fields import (
    LIST_LIMIT_MAX,
    MerchantId,
    check_market,
    check_name,
    option,
)
from payintent.operators.operation import ChangeOperation, OperationContext, ReadOperation

_FILE_REFERENCE_CHARS_MAX = 500


class ShowActivation(ReadOperation[ActivationRecord], frozen=True, kw_only=True):
    """Show a merchant's activation status, and the locations of its contract and KYC file."""

    action: ClassVar[str] = "merchant.activation"
    merchant_id: MerchantId

    async def read(self, context: OperationContext) -> ActivationRecord:
        await require_merchant(context.database, self.merchant_id)
        return await merchant_store.get_activation(context.database, self.merchant_id)


class ActivationStep(ChangeOperation[ActivationRecord], frozen=True, kw_only=True):
    """An activation step. Raises `CONFLICT` if the merchant's status does not allow it."""

    step: ClassVar[ActivationAction]
    merchant_id: MerchantId

    async def apply(self, context: OperationContext, tx: Tx) -> ActivationRecord:
        await require_merchant(tx, self.merchant_id)
        await merchant_store.lock(tx, self.merchant_id)
        record = await merchant_store.get_activation(tx, self.merchant_id)
        status = next_activation_status(
            ActivationStatus(record.activation),
            self.step,
            was_active=record.activated_at is not None,
        )
        await merchant_store.save_activation(tx, replace(self.update(record), activation=status))
        return await merchant_store.get_activation(tx, self.merchant_id)

    def update(self, record: ActivationRecord) -> ActivationRecord:
        """Return the record with this step's changes, except the status."""
        return record


class RequestActivation(ActivationStep, frozen=True, kw_only=True):
    """Record the contract, the KYC file, and the requested countries and currencies."""

    action: ClassVar[str] = "merchant.request"
    step = ActivationAction.REQUEST
    countries: Annotated[list[str], option("Comma-separated, such as TH,JP.")]
    currencies: Annotated[list[str], option("Comma-separated, such as THB,USDT.")]
    contract: Annotated[str, option("The location of the contract.")]
    kyc: Annotated[str, option("The location of the KYC file.")]

    async def check(self, context: OperationContext) -> None:
        check_market(self.countries, self.currencies)
        check_name("contract", self.contract, _FILE_REFERENCE_CHARS_MAX)
        check_name("kyc", self.kyc, _FILE_REFERENCE_CHARS_MAX)

    def update(self, record: ActivationRecord) -> ActivationRecord:
        return replace(
            record,
            contract=self.contract,
            kyc=self.kyc,
            requested_countries=self.countries,
            requested_currencies=self.currencies,
        )


class ApplyActivation(ActivationStep, frozen=True, kw_only=True):
    """Apply the requested market, so that payments can be made to validate the integration."""

    action: ClassVar[str] = "merchant.apply"
    step = ActivationAction.APPLY

    def update(self, record: ActivationRecord) -> ActivationRecord:
        if record.requested_countries is None:
            raise ConflictError("the merchant has not requested a market")
        return replace(
            record, countries=record.requested_countries, currencies=record.requested_currencies
        )


class ValidateActivation(ActivationStep, frozen=True, kw_only=True):
    """Record that the integration was validated. Explain in the reason how it was validated."""

    action: ClassVar[str] = "merchant.validate"
    step = ActivationAction.VALIDATE


class ActivateMerchant(ActivationStep, frozen=True, kw_only=True):
    """Activate a validated merchant."""

    action: ClassVar[str] = "merchant.activate"
    step = ActivationAction.ACTIVATE


class SuspendMerchant(ActivationStep, frozen=True, kw_only=True):
    """Suspend a merchant. New payments and selections are rejected; open sessions can finish."""

    action: ClassVar[str] = "merchant.suspend"
    is_destructive: ClassVar[bool] = True
    step = ActivationAction.SUSPEND


class ResumeMerchant(ActivationStep, frozen=True, kw_only=True):
    """Resume a suspended merchant. It becomes ACTIVE, or APPLIED if it was never active."""

    action: ClassVar[str] = "merchant.resume"
    step = ActivationAction.RESUME


_MESSAGE_CURRENCIES_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistStep:
    step: str
    done: bool
    says: str  # the current status, or the missing data
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
        chains = (await method_store.get_version(database)).watched_chains
        methods = await method_store.list_for_merchant(database, merchant.id, chains)
        keys = await access_store.list_keys(database, merchant.id, LIST_LIMIT_MAX)
        return [
            _key_step(sum(key.revoked_at is None for key in keys)),
            _webhook_step(merchant),
            _profile_step(merchant),
            _request_step(record),
            _methods_step(record, methods),
            _market_step(record),
            _payment_step(
                has_paid_payment=await merchant_store.has_paid_payment(database, merchant.id)
            ),
            _status_step(record, ActivationStatus.VALIDATED, "merchant.validate"),
            _status_step(record, ActivationStatus.ACTIVE, "merchant.activate"),
        ]


def _key_step(active_keys: int) -> ChecklistStep:
    summary = f"{active_keys} active" if active_keys else "no active key"
    return ChecklistStep(step="API key", done=active_keys > 0, says=summary, action="key.issue")


def _webhook_step(merchant: Merchant) -> ChecklistStep:
    return ChecklistStep(
        step="Callback URL",
        done=merchant.callback_url is not None,
        says=merchant.callback_url or "not set; events are stored but not sent",
        action="merchant.set-callback-url",
    )


def _profile_step(merchant: Merchant) -> ChecklistStep:
    problem = _describe_missing(
        {
            "a support link": merchant.support_url,
            "a return URL or allowed origins": merchant.return_url or merchant.allowed_origins,
        }
    )
    return ChecklistStep(
        step="Profile", done=not problem, says=problem or "complete", action="merchant.profile"
    )


def _request_step(record: ActivationRecord) -> ChecklistStep:
    problem = _describe_missing(
        {
            "the contract": record.contract,
            "the KYC file": record.kyc,
            "countries": record.requested_countries,
            "currencies": record.requested_currencies,
        }
    )
    return ChecklistStep(
        step="Contract and KYC filed",
        done=not problem,
        says=problem or f"contract {record.contract}, KYC {record.kyc}",
        action="merchant.request",
    )


def _describe_missing(values: Mapping[str, object]) -> str:
    missing_names = [name for name, value in values.items() if not value]
    return f"missing: {', '.join(missing_names)}" if missing_names else ""


def _methods_step(record: ActivationRecord, methods: Sequence[PaymentMethod]) -> ChecklistStep:
    """Report whether the usable methods cover the requested currencies and countries."""
    usable_methods = [method for method in methods if method.enabled and method.account_enabled]
    currencies = record.requested_currencies or record.currencies
    countries = record.requested_countries or record.countries
    unsupported_codes = [
        code
        for code in currencies or ()
        if not any(_accepts(method, code, countries) for method in usable_methods)
    ]
    summary = f"usable methods: {len(usable_methods)} of {len(methods)}"
    if not methods:
        summary = "the merchant has no methods"
    elif not usable_methods:
        summary = "no method is usable: accounts, gateways or chains are disabled"
    elif unsupported_codes:
        codes = ", ".join(unsupported_codes[:_MESSAGE_CURRENCIES_MAX])
        summary = f"no method accepts {codes} in the requested countries"
    return ChecklistStep(
        step="Accounts and methods",
        done=bool(usable_methods) and not unsupported_codes,
        says=summary,
        action="method.add",
    )


def _accepts(method: PaymentMethod, currency: str, countries: Sequence[str] | None) -> bool:
    market = Market(countries=method.countries, currencies=method.currencies)
    if countries is None:
        return currency in method.currencies
    return any(market.includes(currency, country) for country in countries)


def _market_step(record: ActivationRecord) -> ChecklistStep:
    is_applied = record.activation not in {ActivationStatus.NEW, ActivationStatus.REQUESTED}
    requested_market = (record.requested_countries, record.requested_currencies)
    is_pending = (
        is_applied
        and record.requested_countries is not None
        and requested_market != (record.countries, record.currencies)
    )
    summary = (
        "the requested market has been applied" if is_applied else "payments are not accepted yet"
    )
    return ChecklistStep(
        step="Market applied",
        done=is_applied and not is_pending,
        says="another market has since been requested" if is_pending else summary,
        action="merchant.apply",
    )


def _payment_step(*, has_paid_payment: bool) -> ChecklistStep:
    summary = (
        "at least one payment has been paid" if has_paid_payment else "no payment has been paid yet"
    )
    return ChecklistStep(
        step="A payment was made", done=has_paid_payment, says=summary, action="payment.list"
    )


def _status_step(record: ActivationRecord, status: ActivationStatus, action: str) -> ChecklistStep:
    current = ActivationStatus(record.activation)
    was_active = record.activated_at is not None
    done = current in {status, ActivationStatus.ACTIVE} or (
        was_active and status is ActivationStatus.VALIDATED
    )
    summary = f"the merchant is {current}"
    if current is ActivationStatus.SUSPENDED:
        summary += "; resume it"
        action = "merchant.resume"
    elif not accepts_payments(current):
        summary += "; complete the earlier steps first"
    return ChecklistStep(step=status.capitalize(), done=done, says=summary, action=action)
