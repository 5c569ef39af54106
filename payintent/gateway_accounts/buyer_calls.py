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
#: Waiting buyers hold no request slot, so without a limit a slow gateway could accumulate any
#: number.
WAITING_PER_ACCOUNT_MAX = 128
WAITING_PER_MERCHANT_MAX = 64
_USERS_MAX = 20_000  # tracked in memory

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
    """Recent use per user, decaying by a factor of e every `decay_s` seconds."""

    def __init__(self, decay_s: float, monotonic: Callable[[], float]) -> None:
        self._decay_s = decay_s
        self._monotonic = monotonic
        self._use: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # amount, time

    def of(self, user: Hashable) -> float:
        amount, at = self._use.get(user, (0.0, 0.0))
        return amount * math.exp((at - self._monotonic()) / self._decay_s) if amount else 0.0

    def add(self, user: Hashable, count: int) -> None:
        """Change the use of a user. The least recently active users are dropped."""
        amount = max(0.0, self.of(user) + count)
        self._use[user] = amount, self._monotonic()
        self._use.move_to_end(user)
        if len(self._use) > _USERS_MAX:
            self._use.popitem(last=False)


class BuyerCalls:
    """Limits gateway calls per account, and the number of waiting buyers.

    A `limit` of None means unlimited calls. Providers in `local` need no network, so they are not
    limited.
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
        """Spend a call; return False if the bucket is too empty for this merchant and checkout."""
        if self._limit is None or call.provider in self._local:
            return True
        users = (call.account_id, call.merchant_id), (call.account_id, call.payment_id)
        # A call is admitted while the average use of merchant and checkout is at most the bucket
        # level, so heavy users get equal shares. A single merchant's crowd leaves a third of the
        # burst.
        needed = max(1.0, sum(self._recent_use.of(user) for user in users) / len(users))
        for user in users:
            self._recent_use.add(user, 1)
        if await _take_call(self._database, call.account_id, self._limit, needed):
            return True
        for user in users:
            self._recent_use.add(user, -1)
        REFUSED.inc()
        return False

    @asynccontextmanager
    async def enter(self, call: BuyerCall) -> AsyncGenerator[None]:
        """Spend a call, and count the caller as waiting inside the block.

        Raises `RATE_LIMITED` if the bucket is too empty, or if too many buyers of the account or
        merchant are waiting.
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
    database: Executor, account_id: int, limit: RateLimit, needed: float = 1.0
) -> bool:
    """Take a call from an account's bucket; return False if fewer than `needed` are left.

    The stored value is the time when the bucket will be full, as in `merchants/access_store.py`.
    """
    row = await database.row(
        """
        INSERT INTO buyer_call_state AS s (account_id, full_at)
        VALUES ($1, extract(epoch FROM clock()) + 1::numeric / $2)
        ON CONFLICT (account_id) DO UPDATE
        -- `excluded.full_at` is one call after now. The bound keeps the bucket at empty at worst if
        -- the clock was set back or the limit was changed.
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
        needed,
    )
    return row is not None


def _rate_limited() -> RefusedError:
    return RefusedError(
        ErrorCode.RATE_LIMITED,
        "too many buyers are using this payment method",
        retry_after_s=RETRY_AFTER_S,
    )
