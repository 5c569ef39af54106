"""The daily refund amount above which a merchant's refunds at gateways need approval."""

import re
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, ClassVar

from payintent.domain.currencies import TENDER
from payintent.domain.errors import BadRequestError
from payintent.domain.merchant import Merchant
from payintent.operations.base import OperationContext
from payintent.operations.fields import argument
from payintent.operations.merchants import MerchantChange
from payintent.operations.validation import quote_input, require_merchant
from payintent.storage import merchants
from payintent.storage.database import Tx

_AMOUNT = re.compile(r"[0-9]{1,18}(?:\.([0-9]{1,18}))?", re.ASCII)


class SetRefundThreshold(MerchantChange, frozen=True, kw_only=True):
    """Set the daily amount above which a merchant's gateway refunds need approval."""

    action: ClassVar[str] = "merchant.set-refund-threshold"
    currency: Annotated[str, argument("Such as THB; each currency has its own threshold.")]
    above: Annotated[str | None, argument("The amount per day. Default: no threshold.")] = None

    def is_sensitive(self, before: Merchant) -> bool:
        """Return whether higher refunds become possible without approval."""
        threshold = before.refund_approval_above.get(self.currency)
        if threshold is None:
            return False
        return self.above is None or Decimal(self.above) > Decimal(threshold)

    async def changes(self, context: OperationContext) -> list[str]:
        merchant = await require_merchant(context.database, self.merchant_id)
        before = merchant.refund_approval_above.get(self.currency, "none")
        change = f"becomes {self.above or 'none'}; it is {before}"
        return [f"the {self.currency} refund threshold of {merchant.title} {change}"]

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
        before = await self.lock_merchant(context, tx)
        thresholds = dict(before.refund_approval_above)
        thresholds.pop(self.currency, None)
        if self.above is not None:
            thresholds[self.currency] = self.above
        await merchants.set_refund_thresholds(tx, self.merchant_id, thresholds)
        return replace(before, refund_approval_above=thresholds)
