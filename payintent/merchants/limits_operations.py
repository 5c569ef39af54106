"""Operations that show and change the rate limits of individual merchants."""

from typing import Annotated, ClassVar, Generic, TypeVar

from payintent.core.access import RateLimitClass
from payintent.core.errors import BadRequestError, NotFoundError
from payintent.db.database import Tx
from payintent.merchants import limits_store as rate_limit_store
from payintent.merchants.limits_store import RateLimitSetting
from payintent.merchants.store import require_merchant
from payintent.operators.fields import (
    LISTED_MAX,
    MerchantFilter,
    MerchantId,
    argument,
    check_list_limit,
    check_merchant,
    option,
)
from payintent.operators.operation import ChangeOperation, OperationContext, ReadOperation

_PER_S_MAX, _BURST_MAX = 1_000_000, 10_000_000


R = TypeVar("R")


class _RateLimitChange(ChangeOperation[R], Generic[R], frozen=True, kw_only=True):
    merchant_id: MerchantId
    kind: Annotated[RateLimitClass, argument("`create`: new payments; `read`: all other calls.")]

    async def check(self, context: OperationContext) -> None:
        await require_merchant(context.database, self.merchant_id)


class SetRateLimit(_RateLimitChange[RateLimitSetting], frozen=True, kw_only=True):
    """Set a merchant's rate limit; it applies within a second."""

    action: ClassVar[str] = "limit.set"
    per_s: Annotated[int, option("Requests per second.")]
    burst: Annotated[int | None, option("Requests in a burst. Default: twice `per_s`.")] = None

    async def check(self, context: OperationContext) -> None:
        await super().check(context)
        if not 1 <= self.per_s <= _PER_S_MAX:
            raise BadRequestError(f"per_s must be from 1 to {_PER_S_MAX}")
        if self.burst is not None and not 1 <= self.burst <= _BURST_MAX:
            raise BadRequestError(f"burst must be from 1 to {_BURST_MAX}")

    async def apply(self, context: OperationContext, tx: Tx) -> RateLimitSetting:
        limit = RateLimitSetting(
            merchant_id=self.merchant_id,
            kind=self.kind,
            per_s=self.per_s,
            burst=2 * self.per_s if self.burst is None else self.burst,
        )
        await rate_limit_store.set_limit(tx, limit)
        return limit


class ListRateLimits(ReadOperation[list[RateLimitSetting]], frozen=True, kw_only=True):
    """List merchants' own limits; all the rest have the default limit."""

    action: ClassVar[str] = "limit.list"
    columns = ("merchant_id", "kind", "per_s", "burst")
    merchant_id: MerchantFilter = None
    limit: int = LISTED_MAX

    async def read(self, context: OperationContext) -> list[RateLimitSetting]:
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        return await rate_limit_store.list_limits(context.database, self.merchant_id, self.limit)


class ClearRateLimit(_RateLimitChange[None], frozen=True, kw_only=True):
    """Remove a merchant's own limit, so that the default applies."""

    action: ClassVar[str] = "limit.clear"
    is_destructive: ClassVar[bool] = True

    async def apply(self, context: OperationContext, tx: Tx) -> None:
        if not await rate_limit_store.clear_limit(tx, self.merchant_id, self.kind):
            raise NotFoundError(f"merchant {self.merchant_id} has no {self.kind} limit")
