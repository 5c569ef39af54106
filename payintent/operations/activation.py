"""A merchant's way into service (spec section 1): every step is recorded, and none is skipped."""

from dataclasses import replace
from typing import Annotated, ClassVar

from payintent.domain.activation import ActivationAction, ActivationStatus, next_activation_status
from payintent.domain.errors import ConflictError
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.fields import MerchantId, option
from payintent.operations.validation import check_market, check_name, require_merchant
from payintent.storage import merchants
from payintent.storage.database import Tx
from payintent.storage.merchants import ActivationRecord

_FILED_MAX = 500


class ShowActivation(ReadOperation[ActivationRecord], frozen=True, kw_only=True):
    """Show how far a merchant's activation is, and what is filed for it."""

    action: ClassVar[str] = "merchant.activation"
    merchant_id: MerchantId

    async def read(self, context: OperationContext) -> ActivationRecord:
        await require_merchant(context.database, self.merchant_id)
        found = await merchants.get_activation(context.database, self.merchant_id)
        assert found is not None  # noqa: S101 - merchants are never deleted
        return found


class RequestActivation(ChangeOperation[ActivationRecord], frozen=True, kw_only=True):
    """Note contract, KYC, and what the merchant asks to be activated for."""

    action: ClassVar[str] = "merchant.request"
    merchant_id: MerchantId
    countries: Annotated[list[str], option("With commas: TH,JP.")]
    currencies: Annotated[list[str], option("With commas: THB,USDT.")]
    contract: Annotated[str, option("Where the contract is filed.")]
    kyc: Annotated[str, option("Where the check of the merchant is filed.")]

    async def check(self, context: OperationContext) -> None:
        check_market(self.countries, self.currencies)
        check_name("contract", self.contract, _FILED_MAX)
        check_name("kyc", self.kyc, _FILED_MAX)

    async def apply(self, context: OperationContext, tx: Tx) -> ActivationRecord:
        file = await _step(tx, self.merchant_id, ActivationAction.REQUEST)
        return await _file(
            tx,
            replace(
                file,
                contract=self.contract,
                kyc=self.kyc,
                requested_countries=self.countries,
                requested_currencies=self.currencies,
            ),
        )


class ApplyActivation(ChangeOperation[ActivationRecord], frozen=True, kw_only=True):
    """Let a merchant take what it asked for; payments can be made to validate the flow."""

    action: ClassVar[str] = "merchant.apply"
    merchant_id: MerchantId

    async def apply(self, context: OperationContext, tx: Tx) -> ActivationRecord:
        file = await _step(tx, self.merchant_id, ActivationAction.APPLY)
        if file.requested_countries is None:
            raise ConflictError("nothing was requested that could be applied")
        market = replace(
            file, countries=file.requested_countries, currencies=file.requested_currencies
        )
        return await _file(tx, market)


class ValidateActivation(ChangeOperation[ActivationRecord], frozen=True, kw_only=True):
    """Note that the flow was validated.

    The reason says how.
    """

    action: ClassVar[str] = "merchant.validate"
    merchant_id: MerchantId

    async def apply(self, context: OperationContext, tx: Tx) -> ActivationRecord:
        """Mark the flow as validated; raise `CONFLICT` if that is not the next step."""
        return await _file(tx, await _step(tx, self.merchant_id, ActivationAction.VALIDATE))


class ActivateMerchant(ChangeOperation[ActivationRecord], frozen=True, kw_only=True):
    """Put a validated merchant into service."""

    action: ClassVar[str] = "merchant.activate"
    merchant_id: MerchantId

    async def apply(self, context: OperationContext, tx: Tx) -> ActivationRecord:
        """Mark the merchant as active; raise `CONFLICT` if that is not the next step."""
        return await _file(tx, await _step(tx, self.merchant_id, ActivationAction.ACTIVATE))


class SuspendMerchant(ChangeOperation[ActivationRecord], frozen=True, kw_only=True):
    """Take a merchant out of service; what runs, ends.

    There are no new payments and no new selections.
    """

    action: ClassVar[str] = "merchant.suspend"
    is_destructive: ClassVar[bool] = True
    merchant_id: MerchantId

    async def apply(self, context: OperationContext, tx: Tx) -> ActivationRecord:
        """Suspend the merchant; raise `CONFLICT` if that is not the next step."""
        return await _file(tx, await _step(tx, self.merchant_id, ActivationAction.SUSPEND))


class ResumeMerchant(ChangeOperation[ActivationRecord], frozen=True, kw_only=True):
    """Bring a suspended merchant back to where it was.

    That is ACTIVE, or APPLIED if it was never active.
    """

    action: ClassVar[str] = "merchant.resume"
    merchant_id: MerchantId

    async def apply(self, context: OperationContext, tx: Tx) -> ActivationRecord:
        """Restore the status before; raise `CONFLICT` if the merchant is not suspended."""
        return await _file(tx, await _step(tx, self.merchant_id, ActivationAction.RESUME))


async def _step(tx: Tx, merchant_id: int, step: ActivationAction) -> ActivationRecord:
    await require_merchant(tx, merchant_id)
    await merchants.lock(tx, merchant_id)
    file = await merchants.get_activation(tx, merchant_id)
    assert file is not None  # noqa: S101 - merchants are never deleted
    after = next_activation_status(
        ActivationStatus(file.activation), step, was_active=file.activated_at is not None
    )
    return replace(file, activation=after)


async def _file(tx: Tx, file: ActivationRecord) -> ActivationRecord:
    await merchants.save_activation(tx, file)
    found = await merchants.get_activation(tx, file.merchant_id)
    assert found is not None  # noqa: S101 - merchants are never deleted
    return found
