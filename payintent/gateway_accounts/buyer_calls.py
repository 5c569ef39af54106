"""Share each gateway account's call limit fairly among buyers."""

import math
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Collection, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from prometheus_client import Counter

from payintent.core.access import RateLimit
from payintent.core.errors import ErrorCode, RefusedError
from payintent.db.database import Database, Executor
from payintent.runtime.waiting import Waiters

RETRY_AFTER_S = 1
#: Maximum number of buyers in this process that wait for a gateway, per account and per merchant.
#: Waiting buyers do not occupy a request slot, so their number must be limited separately.
WAITING_PER_ACCOUNT_MAX = 128
WAITING_PER_MERCHANT_MAX = 64
_USERS_MAX = 20_000  # maximum number of users whose use is tracked

REFUSED = Counter(
    "payintent_buyer_calls_refused_total",
    "Gateway calls for buyers that were refused because the account had no capacity left",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyerCall:
    account_id: int
    provider: str
    merchant_id: int
    payment_id: UUID


class RecentUse:
    """Tracks recent use per user. It decays by a factor of e every `decay_s` seconds."""

    def __init__(self, decay_s: float, monotonic: Callable[[], float]) -> None:
        self._decay_s = decay_s
        self._monotonic = monotonic
        self._use: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # amount, time

    def get(self, user: Hashable) -> float:
        amount, at = self._use.get(user, (0.0, 0.0))
        return amount * math.exp((at - self._monotonic()) / self._decay_s) if amount else 0.0

    def add(self, user: Hashable, count: int) -> None:
        """Add calls of a user. Above `_USERS_MAX`, the least recently active user is dropped."""
        amount = max(0.0, self.get(user) + count)
        self._use[user] = amount, self._monotonic()
        self._use.move_to_end(user)
        if len(self._use) > _USERS_MAX:
            self._use.popitem(last=False)


class BuyerCalls:
    """Limits gateway calls per account, and the number of waiting buyers.

    If `limit` is None, calls are unlimited. Providers in `local` do not use the network and are
    never limited.
    """

    def __init__(
        self,
        database: Database,
        limit: RateLimit | None,
        local: Collection[str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._limit = limit
        self._local = local
        self._waiters = Waiters()
        decay_s = limit.burst / limit.per_s if limit else 1.0
        self._recent_use = RecentUse(decay_s, monotonic)

    async def allow(self, call: BuyerCall) -> bool:
        """Take a call from the account's bucket.

        Returns False if the bucket has too few calls left for this merchant and checkout.
        """
        if self._limit is None or call.provider in self._local:
            return True
        users = (call.account_id, call.merchant_id), (call.account_id, call.payment_id)
        # A call is admitted if the bucket contains at least the average use of its merchant and
        # its checkout. Heavy users therefore get equal shares, and a merchant with many buyers
        # leaves a third of the burst to others.
        calls_min = max(1.0, sum(self._recent_use.get(user) for user in users) / len(users))
        for user in users:
            self._recent_use.add(user, 1)
        if await _take_call(self._database, call.account_id, self._limit, calls_min):
            return True
        for user in users:
            self._recent_use.add(user, -1)
        REFUSED.inc()
        return False

    @asynccontextmanager
    async def enter(self, call: BuyerCall) -> AsyncGenerator[None]:
        """Take a call as `allow` does, and count the buyer as waiting inside the block.

        Raises `RATE_LIMITED` if the call is not allowed, or if too many buyers are waiting for the
        account or the merchant.
        """
        if call.provider in self._local:
            yield
            return
        account, merchant = ("account", call.account_id), ("merchant", call.merchant_id)
        is_full = (
            self._waiters[account] >= WAITING_PER_ACCOUNT_MAX
            or self._waiters[merchant] >= WAITING_PER_MERCHANT_MAX
        )
        if is_full:
            REFUSED.inc()
            raise _rate_limited()
        with self._waiters.count(account, merchant):
            if not await self.allow(call):
                raise _rate_limited()
            yield


async def _take_call(
    database: Executor, account_id: int, limit: RateLimit, calls_min: float
) -> bool:
    """Take a call from an account's bucket; return False if fewer than `calls_min` are left.

    The stored value is the time when the bucket will be full, as in `merchants/access_store.py`.
    """
    row = await database.row(
        """
        INSERT INTO buyer_call_state AS s (account_id, full_at)
        VALUES ($1, extract(epoch FROM clock()) + 1::numeric / $2)
        ON CONFLICT (account_id) DO UPDATE
        -- `excluded.full_at` is one call after now. The upper bound is the value of an empty
        -- bucket. It applies if the clock was set back or the limit was changed.
        SET full_at = least(
            greatest(s.full_at + 1::numeric / $2, excluded.full_at),
            excluded.full_at + $3::numeric / $2
        )
        WHERE s.full_at + ($4::float8::numeric + 1) / $2
            <= excluded.full_at + ($3::numeric + 0.0005) / $2
        RETURNING account_id
        """,
        account_id,
        limit.per_s,
        limit.burst,
        calls_min,
    )
    return row is not None


def _rate_limited() -> RefusedError:
    return RefusedError(
        ErrorCode.RATE_LIMITED,
        "too many buyers are using this payment method",
        retry_after_s=RETRY_AFTER_S,
    )
