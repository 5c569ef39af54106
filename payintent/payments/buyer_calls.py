"""Gateway calls that buyers cause: a token bucket for each account, and bounds on who waits.

A gateway counts our calls by account, and every buyer has the address of a checkout. The bucket is
shared by all processes, and fairly by merchants and checkouts: the more a merchant or checkout has
lately used, the fuller the bucket must be for its next call. So a crowd leaves room for others, and
a merchant without competition has nearly all of it. Calls of workers are not counted: they pace
themselves.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from prometheus_client import Counter

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.rate_limit import RateLimit
from payintent.slot import Waiters
from payintent.storage import buyer_calls
from payintent.storage.database import Database

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

RETRY_AFTER_S = 1
#: Buyers that may wait for the gateway of one account in this process, and those of one merchant.
#: They hold no slot: without these bounds nothing would limit how many a slow gateway piles up.
WAITING_PER_ACCOUNT_MAX = 128
WAITING_PER_MERCHANT_MAX = 64
_USERS_MAX = 20_000  # whose recent use is remembered

REFUSED = Counter(
    "payintent_buyer_calls_refused_total",
    "Calls of gateways that buyers wanted, and that their account had no room for",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyerCall:
    account_id: int
    provider: str
    merchant_id: int
    payment_id: UUID


class RecentUse:
    """How much each user has used lately: use fades by a factor of e in `fades_s`."""

    def __init__(self, fades_s: float, monotonic: Callable[[], float]) -> None:
        self._fades_s = fades_s
        self._monotonic = monotonic
        self._used: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # how much, when

    def of(self, user: Hashable) -> float:
        used, at = self._used.get(user, (0.0, 0.0))
        return used * math.exp((at - self._monotonic()) / self._fades_s) if used else 0.0

    def add(self, user: Hashable, count: int) -> None:
        """Add to a user's use, or subtract; too many users drop the least recently active one."""
        used = max(0.0, self.of(user) + count)
        self._used[user] = used, self._monotonic()
        self._used.move_to_end(user)
        if len(self._used) > _USERS_MAX:
            self._used.popitem(last=False)


class BuyerCalls:
    """Spends gateway calls from the accounts' buckets, and bounds the buyers who wait.

    `limit` None means an unlimited bucket; accounts at `local` providers need no network calls.
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
        fades_s = limit.burst / limit.per_s if limit else 1.0
        self._used = RecentUse(fades_s, monotonic)

    async def allow(self, call: BuyerCall) -> bool:
        """Spend one call; False if its account has none left for this merchant and checkout."""
        if self._limit is None or call.provider in self._local:
            return True
        users = (call.account_id, call.merchant_id), (call.account_id, call.payment_id)
        # With this rule all users that want more than their share get the same: each is admitted
        # until its use reaches the bucket's level. One merchant's crowd leaves a third of a burst.
        needed = max(1.0, sum(self._used.of(user) for user in users) / len(users))
        for user in users:
            self._used.add(user, 1)
        if await buyer_calls.take(self._database, call.account_id, self._limit, needed):
            return True
        for user in users:
            self._used.add(user, -1)
        REFUSED.inc()
        return False

    @asynccontextmanager
    async def enter(self, call: BuyerCall) -> "AsyncGenerator[None]":
        """Spend one call, and wait for its answer inside the block.

        Raises `RATE_LIMITED` if the account has no call left, or too many buyers of it or of the
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
            raise _too_many()
        with self._waiters.count(account, merchant):
            if not await self.allow(call):
                raise _too_many()
            yield


def _too_many() -> RefusedError:
    return RefusedError(
        ErrorCode.RATE_LIMITED,
        "too many buyers are at this payment method",
        retry_after_s=RETRY_AFTER_S,
    )
