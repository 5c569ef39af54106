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
#: Maximum number of buyers who wait for a gateway in this process, per account and per merchant.
#: Waiting buyers do not occupy a request slot, so their number must be limited separately.
WAITING_PER_ACCOUNT_MAX = 128
WAITING_PER_MERCHANT_MAX = 64
_USERS_MAX = 20_000  # maximum number of tracked users

REFUSED_CALLS = Counter(
    "payintent_buyer_calls_refused_total",
    "Buyers' gateway calls that were refused because the account had no capacity left",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyerCall:
    account_id: int
    provider: str
    merchant_id: int
    payment_id: UUID


class RecentUsage:
    """Tracks each user's number of recent calls, which decays by a factor of e every `decay_s`."""

    def __init__(self, decay_s: float, monotonic: Callable[[], float]) -> None:
        self._decay_s = decay_s
        self._monotonic = monotonic
        self._usage: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # calls, time

    def get(self, user: Hashable) -> float:
        calls, updated_at = self._usage.get(user, (0.0, 0.0))
        return calls * math.exp((updated_at - self._monotonic()) / self._decay_s) if calls else 0.0

    def add(self, user: Hashable, count: int) -> None:
        """Add a user's calls. Beyond `_USERS_MAX` users, the least recently active is dropped."""
        self._usage[user] = max(0.0, self.get(user) + count), self._monotonic()
        self._usage.move_to_end(user)
        if len(self._usage) > _USERS_MAX:
            self._usage.popitem(last=False)


class BuyerCalls:
    """Limits gateway calls per account, and the number of waiting buyers.

    If `limit` is None, calls are unlimited. `local_providers` do not use the network and are never
    limited.
    """

    def __init__(
        self,
        database: Database,
        limit: RateLimit | None,
        local_providers: Collection[str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._limit = limit
        self._local_providers = local_providers
        self._waiters = Waiters()
        decay_s = limit.burst / limit.per_s if limit else 1.0
        self._recent_usage = RecentUsage(decay_s, monotonic)

    async def allow(self, call: BuyerCall) -> bool:
        """Take a token from the account's bucket.

        Returns False if too few tokens are left for this merchant and checkout.
        """
        if self._limit is None or call.provider in self._local_providers:
            return True
        users = (call.account_id, call.merchant_id), (call.account_id, call.payment_id)
        # A call is allowed if the number of tokens left is at least the average of its merchant's
        # and its checkout's recent usage. Heavy users therefore get equal shares, and a merchant
        # with many buyers leaves a third of the burst to other merchants.
        tokens_min = max(1.0, sum(self._recent_usage.get(user) for user in users) / len(users))
        for user in users:
            self._recent_usage.add(user, 1)
        if await _take_token(self._database, call.account_id, self._limit, tokens_min):
            return True
        for user in users:
            self._recent_usage.add(user, -1)
        REFUSED_CALLS.inc()
        return False

    @asynccontextmanager
    async def enter(self, call: BuyerCall) -> AsyncGenerator[None]:
        """Take a token as `allow` does, and count the buyer as waiting until the block exits.

        Raises `RATE_LIMITED` if the call is not allowed, or if too many buyers are waiting for the
        account or the merchant.
        """
        if call.provider in self._local_providers:
            yield
            return
        account_key, merchant_key = ("account", call.account_id), ("merchant", call.merchant_id)
        if (
            self._waiters[account_key] >= WAITING_PER_ACCOUNT_MAX
            or self._waiters[merchant_key] >= WAITING_PER_MERCHANT_MAX
        ):
            REFUSED_CALLS.inc()
            raise _rate_limit_error()
        with self._waiters.count(account_key, merchant_key):
            if not await self.allow(call):
                raise _rate_limit_error()
            yield


async def _take_token(
    database: Executor, account_id: int, limit: RateLimit, tokens_min: float
) -> bool:
    """Take a token from an account's bucket; return False if fewer than `tokens_min` are left.

    A bucket is stored as the time when it will be full, as in `merchants/access_store.py`.
    """
    row = await database.row(
        """
        INSERT INTO buyer_call_state AS s (account_id, full_at)
        VALUES ($1, extract(epoch FROM clock()) + 1::numeric / $2)
        ON CONFLICT (account_id) DO UPDATE
        -- `excluded.full_at` is the value of a bucket that lacks one token. The upper bound is the
        -- value of an empty bucket. It applies if the clock was set back or the limit was changed.
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
        tokens_min,
    )
    return row is not None


def _rate_limit_error() -> RefusedError:
    return RefusedError(
        ErrorCode.RATE_LIMITED,
        "too many buyers are using this payment method",
        retry_after_s=RETRY_AFTER_S,
    )
