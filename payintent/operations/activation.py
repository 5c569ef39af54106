"""A merchant's way into service (spec section 1): every step is noted, and none is skipped."""

from dataclasses import replace
from typing import ClassVar

from payintent.domain.activation import Activation, ActivationStep, activation_step
from payintent.domain.errors import Code, Refused
from payintent.operations.base import Change, Desk, Read
from payintent.operations.validation import check_market, check_name, known_merchant
from payintent.storage import merchants
from payintent.storage.database import Tx
from payintent.storage.merchants import ActivationFile

_FILED_MAX = 500


class ShowActivation(Read[ActivationFile], frozen=True, kw_only=True):
    """Show how far a merchant's activation is, and what is filed for it."""

    action: ClassVar[str] = "merchant.activation"
    merchant_id: int

    async def read(self, desk: Desk) -> ActivationFile:
        """Give it."""
        await known_merchant(desk.database, self.merchant_id)
        found = await merchants.activation_of(desk.database, self.merchant_id)
        assert found is not None  # noqa: S101 - merchants are never deleted
        return found


class RequestActivation(Change[ActivationFile], frozen=True, kw_only=True):
    """Note contract and KYC, and which countries and currencies are asked for."""

    action: ClassVar[str] = "merchant.request"
    merchant_id: int
    countries: list[str]
    currencies: list[str]
    contract: str  # where it is filed
    kyc: str

    async def check(self, desk: Desk) -> None:
        """Refuse what is not known, and a request without contract or KYC."""
        del desk
        check_market(self.countries, self.currencies)
        check_name("contract", self.contract, _FILED_MAX)
        check_name("kyc", self.kyc, _FILED_MAX)

    async def apply(self, desk: Desk, tx: Tx) -> ActivationFile:
        """File the request."""
        del desk
        file = await _step(tx, self.merchant_id, ActivationStep.REQUEST)
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


class ApplyActivation(Change[ActivationFile], frozen=True, kw_only=True):
    """Let the merchant take what it asked for; payments can be made to validate the flow."""

    action: ClassVar[str] = "merchant.apply"
    merchant_id: int

    async def apply(self, desk: Desk, tx: Tx) -> ActivationFile:
        """Make the requested market the merchant's own."""
        del desk
        file = await _step(tx, self.merchant_id, ActivationStep.APPLY)
        if file.requested_countries is None:
            raise Refused(Code.CONFLICT, "nothing was requested that could be applied")
        market = replace(
            file, countries=file.requested_countries, currencies=file.requested_currencies
        )
        return await _file(tx, market)


class ValidateActivation(Change[ActivationFile], frozen=True, kw_only=True):
    """Note that the merchant's flow was validated; the reason says how."""

    action: ClassVar[str] = "merchant.validate"
    merchant_id: int

    async def apply(self, desk: Desk, tx: Tx) -> ActivationFile:
        """Take the step."""
        del desk
        return await _file(tx, await _step(tx, self.merchant_id, ActivationStep.VALIDATE))


class Activate(Change[ActivationFile], frozen=True, kw_only=True):
    """Put a validated merchant into service."""

    action: ClassVar[str] = "merchant.activate"
    merchant_id: int

    async def apply(self, desk: Desk, tx: Tx) -> ActivationFile:
        """Take the step."""
        del desk
        return await _file(tx, await _step(tx, self.merchant_id, ActivationStep.ACTIVATE))


class Suspend(Change[ActivationFile], frozen=True, kw_only=True):
    """Take a merchant out of service: no new payments, no new selections; what runs, ends."""

    action: ClassVar[str] = "merchant.suspend"
    merchant_id: int

    async def apply(self, desk: Desk, tx: Tx) -> ActivationFile:
        """Take the step."""
        del desk
        return await _file(tx, await _step(tx, self.merchant_id, ActivationStep.SUSPEND))


class Resume(Change[ActivationFile], frozen=True, kw_only=True):
    """Bring a suspended merchant back to where it was: ACTIVE, or APPLIED before that."""

    action: ClassVar[str] = "merchant.resume"
    merchant_id: int

    async def apply(self, desk: Desk, tx: Tx) -> ActivationFile:
        """Take the step."""
        del desk
        return await _file(tx, await _step(tx, self.merchant_id, ActivationStep.RESUME))


async def _step(tx: Tx, merchant_id: int, step: ActivationStep) -> ActivationFile:
    await known_merchant(tx, merchant_id)
    await merchants.lock(tx, merchant_id)
    file = await merchants.activation_of(tx, merchant_id)
    assert file is not None  # noqa: S101 - merchants are never deleted
    after = activation_step(
        Activation(file.activation), step, was_active=file.activated_at is not None
    )
    return replace(file, activation=after)


async def _file(tx: Tx, file: ActivationFile) -> ActivationFile:
    await merchants.file_activation(tx, file)
    found = await merchants.activation_of(tx, file.merchant_id)
    assert found is not None  # noqa: S101 - merchants are never deleted
    return found
