"""Gateway calls that buyers cause: a token bucket for each account, shared by all processes.

A gateway counts our calls by account, and every buyer has the address of a checkout. Calls of
workers are not counted: they pace themselves.
"""

from collections.abc import Collection

from prometheus_client import Counter

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.rate_limit import RateLimit
from payintent.storage import buyer_calls
from payintent.storage.database import Database

RETRY_AFTER_S = 1

REFUSED = Counter(
    "payintent_buyer_calls_refused_total",
    "Calls of gateways that buyers wanted, and that their account had no room for",
)


class BuyerCalls:
    """Spends gateway calls from the accounts' buckets.

    `limit` None means no limit; accounts at `local` providers need no network calls.
    """

    def __init__(self, database: Database, limit: RateLimit | None, local: Collection[str]) -> None:
        self._database = database
        self._limit = limit
        self._local = local

    async def allow(self, account_id: int, provider: str) -> bool:
        """Spend one call; False where the account has none left now."""
        if self._limit is None or provider in self._local:
            return True
        if await buyer_calls.take(self._database, account_id, self._limit):
            return True
        REFUSED.inc()
        return False

    async def spend(self, account_id: int, provider: str) -> None:
        """Spend one call; raise `RATE_LIMITED` where the account has none left now."""
        if not await self.allow(account_id, provider):
            raise RefusedError(
                ErrorCode.RATE_LIMITED,
                "too many buyers are at this payment method",
                retry_after_s=RETRY_AFTER_S,
            )
