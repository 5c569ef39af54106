"""Operations that take a merchant through activation, step by step (spec section 1)."""

from dataclasses import replace
from typing import Annotated, ClassVar

from payintent.domain.activation import ActivationAction, ActivationStatus, next_activation_status
from payintent.domain.errors import ConflictError
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.fields import MerchantId, option
from payintent.operations.validation import check_market, check_name, require_merchant
from payintent.storage import merchants
from payintent.storage.database import Executor, Tx
from payintent.storage.merchants import ActivationRecord

_FILE_REFERENCE_MAX = 500


class ShowActivation(ReadOperation[ActivationRecord], frozen=True, kw_only=True):
    """Show a merchant's activation status and files."""

    action: ClassVar[str] = "merchant.activation"
    merchant_id: MerchantId

    async def read(self, context: OperationContext) -> ActivationRecord:
        await require_merchant(context.database, self.merchant_id)
        return await _get_activation(context.database, self.merchant_id)


class RequestActivation(ChangeOperation[ActivationRecord], frozen=True, kw_only=True):
    """Record contract, KYC, and the requested countries and currencies."""

    action: ClassVar[str] = "merchant.request"
    merchant_id: MerchantId
    countries: Annotated[list[str], option("With commas: TH,JP.")]
    currencies: Annotated[list[str], option("With commas: THB,USDT.")]
    contract: Annotated[str, option("The location of the contract.")]
    kyc: Annotated[str, option("The location of the KYC file.")]

    async def check(self, context: OperationContext) -> None:
        check_market(self.countries, self.currencies)
        check_name("contract", self.contract, _FILE_REFERENCE_MAX)
        check_name("kyc", self.kyc, _FILE_REFERENCE_MAX)

    async def apply(self, context: OperationContext, tx: Tx) -> ActivationRecord:
        record = await _lock_and_advance(tx, self.merchant_id, ActivationAction.REQUEST)
        return await _save(
            tx,
            replace(
                record,
                contract=self.contract,
                kyc=self.kyc,
                requested_countries=self.countries,
                requested_currencies=self.currencies,
            ),
        )


class ApplyActivation(ChangeOperation[ActivationRecord], frozen=True, kw_only=True):
    """Apply the requested market; payments become possible, to validate the integration."""

    action: ClassVar[str] = "merchant.apply"
    merchant_id: MerchantId

    async def apply(self, context: OperationContext, tx: Tx) -> ActivationRecord:
        record = await _lock_and_advance(tx, self.merchant_id, ActivationAction.APPLY)
        if record.requested_countries is None:
            raise ConflictError("the merchant has not requested a market")
        return await _save(
            tx,
            replace(
                record,
                countries=record.requested_countries,
                currencies=record.requested_currencies,
            ),
        )


class ValidateActivation(ChangeOperation[ActivationRecord], frozen=True, kw_only=True):
    """Record that the integration was validated; give the method as the reason."""

    action: ClassVar[str] = "merchant.validate"
    merchant_id: MerchantId

    async def apply(self, context: OperationContext, tx: Tx) -> ActivationRecord:
        return await _save(
            tx, await _lock_and_advance(tx, self.merchant_id, ActivationAction.VALIDATE)
        )


class ActivateMerchant(ChangeOperation[ActivationRecord], frozen=True, kw_only=True):
    """Put a validated merchant into service."""

    action: ClassVar[str] = "merchant.activate"
    merchant_id: MerchantId

    async def apply(self, context: OperationContext, tx: Tx) -> ActivationRecord:
        return await _save(
            tx, await _lock_and_advance(tx, self.merchant_id, ActivationAction.ACTIVATE)
        )


class SuspendMerchant(ChangeOperation[ActivationRecord], frozen=True, kw_only=True):
    """Suspend a merchant: reject new payments and selections, but let current sessions finish."""

    action: ClassVar[str] = "merchant.suspend"
    is_destructive: ClassVar[bool] = True
    merchant_id: MerchantId

    async def apply(self, context: OperationContext, tx: Tx) -> ActivationRecord:
        return await _save(
            tx, await _lock_and_advance(tx, self.merchant_id, ActivationAction.SUSPEND)
        )


class ResumeMerchant(ChangeOperation[ActivationRecord], frozen=True, kw_only=True):
    """Resume a suspended merchant: it becomes ACTIVE, or APPLIED if it never was active."""

    action: ClassVar[str] = "merchant.resume"
    merchant_id: MerchantId

    async def apply(self, context: OperationContext, tx: Tx) -> ActivationRecord:
        return await _save(
            tx, await _lock_and_advance(tx, self.merchant_id, ActivationAction.RESUME)
        )


async def _lock_and_advance(tx: Tx, merchant_id: int, action: ActivationAction) -> ActivationRecord:
    """Return the record with the next status; raise `CONFLICT` if the action is not allowed."""
    await require_merchant(tx, merchant_id)
    await merchants.lock(tx, merchant_id)
    record = await _get_activation(tx, merchant_id)
    status = next_activation_status(
        ActivationStatus(record.activation), action, was_active=record.activated_at is not None
    )
    return replace(record, activation=status)


async def _save(tx: Tx, record: ActivationRecord) -> ActivationRecord:
    await merchants.save_activation(tx, record)
    return await _get_activation(tx, record.merchant_id)


async def _get_activation(database: Executor, merchant_id: int) -> ActivationRecord:
    record = await merchants.get_activation(database, merchant_id)
    assert record is not None  # noqa: S101 - merchants are never deleted
    return record
