"""Operations for the steps of a merchant's activation (spec section 1)."""

from dataclasses import replace
from typing import Annotated, ClassVar

from payintent.core.errors import ConflictError
from payintent.db.database import Tx
from payintent.merchants import store as merchant_store
from payintent.merchants.model import ActivationAction, ActivationStatus, next_activation_status
from payintent.merchants.store import ActivationRecord, require_merchant
from payintent.operators.fields import MerchantId, check_market, check_name, option
from payintent.operators.operation import ChangeOperation, OperationContext, ReadOperation

_FILE_REFERENCE_MAX = 500


class ShowActivation(ReadOperation[ActivationRecord], frozen=True, kw_only=True):
    """Show a merchant's activation status and files."""

    action: ClassVar[str] = "merchant.activation"
    merchant_id: MerchantId

    async def read(self, context: OperationContext) -> ActivationRecord:
        await require_merchant(context.database, self.merchant_id)
        return await merchant_store.get_activation(context.database, self.merchant_id)


class ActivationStep(ChangeOperation[ActivationRecord], frozen=True, kw_only=True):
    """A step of a merchant's activation; raises `CONFLICT` if its status does not allow it."""

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
    """Record contract, KYC, and the requested countries and currencies."""

    action: ClassVar[str] = "merchant.request"
    step = ActivationAction.REQUEST
    countries: Annotated[list[str], option("With commas: TH,JP.")]
    currencies: Annotated[list[str], option("With commas: THB,USDT.")]
    contract: Annotated[str, option("The location of the contract.")]
    kyc: Annotated[str, option("The location of the KYC file.")]

    async def check(self, context: OperationContext) -> None:
        check_market(self.countries, self.currencies)
        check_name("contract", self.contract, _FILE_REFERENCE_MAX)
        check_name("kyc", self.kyc, _FILE_REFERENCE_MAX)

    def update(self, record: ActivationRecord) -> ActivationRecord:
        return replace(
            record,
            contract=self.contract,
            kyc=self.kyc,
            requested_countries=self.countries,
            requested_currencies=self.currencies,
        )


class ApplyActivation(ActivationStep, frozen=True, kw_only=True):
    """Apply the requested market; payments become possible, to validate the integration."""

    action: ClassVar[str] = "merchant.apply"
    step = ActivationAction.APPLY

    def update(self, record: ActivationRecord) -> ActivationRecord:
        if record.requested_countries is None:
            raise ConflictError("the merchant has not requested a market")
        return replace(
            record, countries=record.requested_countries, currencies=record.requested_currencies
        )


class ValidateActivation(ActivationStep, frozen=True, kw_only=True):
    """Record that the integration was validated; give the method as the reason."""

    action: ClassVar[str] = "merchant.validate"
    step = ActivationAction.VALIDATE


class ActivateMerchant(ActivationStep, frozen=True, kw_only=True):
    """Put a validated merchant into service."""

    action: ClassVar[str] = "merchant.activate"
    step = ActivationAction.ACTIVATE


class SuspendMerchant(ActivationStep, frozen=True, kw_only=True):
    """Suspend a merchant: reject new payments and selections, but let current sessions finish."""

    action: ClassVar[str] = "merchant.suspend"
    is_destructive: ClassVar[bool] = True
    step = ActivationAction.SUSPEND


class ResumeMerchant(ActivationStep, frozen=True, kw_only=True):
    """Resume a suspended merchant: it becomes ACTIVE, or APPLIED if it never was active."""

    action: ClassVar[str] = "merchant.resume"
    step = ActivationAction.RESUME
