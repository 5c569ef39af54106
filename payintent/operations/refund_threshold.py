"""The daily refund amount above which a merchant's refunds at gateways need approval."""

import re
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, ClassVar

from payintent.domain.currencies import TENDER
from payintent.domain.errors import BadRequestError
from payintent.domain.merchant import Merchant
from payintent.operations.base import ChangeOperation, OperationContext, check_agreed
from payintent.operations.fields import MerchantId, argument
from payintent.operations.validation import quote_input, require_merchant
from payintent.storage import merchants
from payintent.storage.database import Executor, Tx

_AMOUNT = re.compile(r"[0-9]{1,18}(?:\.([0-9]{1,18}))?", re.ASCII)


class SetRefundThreshold(ChangeOperation[Merchant], frozen=True, kw_only=True):
    """Set the daily amount above which a merchant's gateway refunds need approval."""

    action: ClassVar[str] = "merchant.set-refund-threshold"
    merchant_id: MerchantId
    currency: Annotated[str, argument("Such as THB; each currency has its own threshold.")]
    above: Annotated[str | None, argument("The amount per day. Default: no threshold.")] = None

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True once the merchant is in service, if the change allows higher refunds."""
        merchant = await require_merchant(context.database, self.merchant_id)
        return await self._requires_approval(context.database, merchant)

    async def _requires_approval(self, database: Executor, before: Merchant) -> bool:
        threshold = before.refund_approval_above.get(self.currency)
        if threshold is None:
            return False
        raises = self.above is None or Decimal(self.above) > Decimal(threshold)
        return raises and await merchants.is_in_service(database, before.id)

    async def changes(self, context: OperationContext) -> list[str]:
        merchant = await require_merchant(context.database, self.merchant_id)
        before = merchant.refund_approval_above.get(self.currency, "none")
        owner = f"merchant {merchant.id} ({quote_input(merchant.name)})"
        change = f"becomes {self.above or 'none'}; it is {before}"
        return [f"the {self.currency} refund threshold of {owner} {change}"]

    async def check(self, context: OperationContext) -> None:
        await require_merchant(context.database, self.merchant_id)
        if self.currency not in TENDER:
            raise BadRequestError(f"currency {quote_input(self.currency)} is not known")
        if self.above is None:
            return
        amount = _AMOUNT.fullmatch(self.above)
        decimals = TENDER[self.currency].amount_decimals
        if amount is None or len(amount[1] or "") > decimals:
            raise BadRequestError(
                f"above must be an amount of {self.currency} with at most {decimals} decimals"
            )

    async def apply(self, context: OperationContext, tx: Tx) -> Merchant:
        """Store the threshold; refunds that already need approval still need it."""
        await require_merchant(tx, self.merchant_id)
        before = await merchants.lock(tx, self.merchant_id)
        assert before is not None  # noqa: S101 - merchants are never deleted
        check_agreed(context, needs_approval=await self._requires_approval(tx, before))
        thresholds = dict(before.refund_approval_above)
        thresholds.pop(self.currency, None)
        if self.above is not None:
            thresholds[self.currency] = self.above
        await merchants.set_refund_thresholds(tx, self.merchant_id, thresholds)
        return replace(before, refund_approval_above=thresholds)
