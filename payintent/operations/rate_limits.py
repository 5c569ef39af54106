"""Merchants' rate limits, where they differ from the installation's."""

from typing import ClassVar

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.rate_limit import RateLimitClass
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.validation import (
    LISTED_MAX,
    check_list_limit,
    check_merchant,
    require_merchant,
)
from payintent.storage import rate_limits
from payintent.storage.database import Tx
from payintent.storage.rate_limits import RateLimitSetting

_PER_S_MAX, _BURST_MAX = 1_000_000, 10_000_000


class SetRateLimit(ChangeOperation[RateLimitSetting], frozen=True, kw_only=True):
    """Limit a merchant: so many requests a second, so many at once after a pause."""

    action: ClassVar[str] = "limit.set"
    merchant_id: int
    kind: RateLimitClass
    per_s: int
    burst: int | None = None  # None: twice `per_s`

    async def check(self, context: OperationContext) -> None:
        """Refuse a limit that lets nothing pass, or anything."""
        await require_merchant(context.database, self.merchant_id)
        if not 1 <= self.per_s <= _PER_S_MAX:
            raise RefusedError(ErrorCode.BAD_REQUEST, f"per_s must be from 1 to {_PER_S_MAX}")
        if self.burst is not None and not 1 <= self.burst <= _BURST_MAX:
            raise RefusedError(ErrorCode.BAD_REQUEST, f"burst must be from 1 to {_BURST_MAX}")

    async def apply(self, context: OperationContext, tx: Tx) -> RateLimitSetting:
        """Write it; every process knows within a second."""
        del context
        limit = RateLimitSetting(
            merchant_id=self.merchant_id,
            kind=self.kind,
            per_s=self.per_s,
            burst=2 * self.per_s if self.burst is None else self.burst,
        )
        await rate_limits.set_limit(tx, limit)
        return limit


class ListRateLimits(ReadOperation[list[RateLimitSetting]], frozen=True, kw_only=True):
    """List the limits that were set."""

    action: ClassVar[str] = "limit.list"
    merchant_id: int | None = None
    limit: int = LISTED_MAX

    async def read(self, context: OperationContext) -> list[RateLimitSetting]:
        """Give them."""
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        return await rate_limits.list_limits(context.database, self.merchant_id, self.limit)


class ClearRateLimit(ChangeOperation[None], frozen=True, kw_only=True):
    """Go back to the installation's own limit."""

    action: ClassVar[str] = "limit.clear"
    merchant_id: int
    kind: RateLimitClass

    async def check(self, context: OperationContext) -> None:
        """Refuse an unknown merchant."""
        await require_merchant(context.database, self.merchant_id)

    async def apply(self, context: OperationContext, tx: Tx) -> None:
        """Remove it."""
        del context
        if not await rate_limits.clear_limit(tx, self.merchant_id, self.kind):
            raise RefusedError(
                ErrorCode.NOT_FOUND, f"merchant {self.merchant_id} has no {self.kind} limit"
            )
