"""Rate limits: of merchants across all processes, of addresses in this one.

A merchant's bucket is in the database. A process takes a little more than it needs at a time, a
fiftieth of a second's worth, so that a limit of 500/s costs a statement for every tenth request.
Below 100/s it takes one at a time, and is exact.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from payintent.api.authentication_failures import AddressBuckets, round_up_s
from payintent.config import Settings
from payintent.domain.errors import (
    ErrorCode,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.domain.rate_limit import RateLimit, RateLimitClass, RateLimitStatus
from payintent.storage import rate_limits
from payintent.storage.api_keys import AuthenticatedMerchant
from payintent.storage.database import Database

_SHARE = 50  # part of a second's requests that is taken at a time
_KEPT_S = 1.0  # seconds after which unused taken requests lapse
_KEPT_MAX = 20_000
_UNREADABLE = "the rate limits cannot be read"
_LOOKUP = "lookup"  # the bucket of key look-ups for creates above their limit
_LOOKUP_SHARE = 10  # of the create limit: a tenth
_LOOKUP_BURST_MIN = 10
_HAIR = 1e-6  # sums of floats are inexact, and must not round up to another second


class RateLimitExceededError(RefusedError):
    """Too many requests; carries the values of the answer's headers."""

    def __init__(self, kind: str, limit: RateLimit, wait_s: float) -> None:
        wait = max(1, round_up_s(wait_s))
        super().__init__(ErrorCode.RATE_LIMITED, f"too many {kind} requests", retry_after_s=wait)
        self.headers = limit_headers(kind, limit, RateLimitStatus(0, wait_s))


@dataclass(slots=True)
class _Bucket:
    """What this process has taken out of one merchant's bucket."""

    taken: int = 0
    lapses_at: float = 0.0
    empty_until: float = 0.0
    left: int = 0  # in the database, as of the last statement
    full_at: float = 0.0
    failures: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class MerchantRateLimiter:
    """Spends merchants' requests out of buckets in the database, a few at a time."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._monotonic = monotonic
        self._default = {} if settings.sandbox else _defaults(settings)
        self._buckets: dict[tuple[int, str, RateLimit], _Bucket] = {}

    def get_limit(self, merchant: AuthenticatedMerchant, kind: RateLimitClass) -> RateLimit | None:
        """Return a merchant's limit: its own, else the default; None in the sandbox."""
        return merchant.limits.get(kind, self._default.get(kind))

    async def take(
        self, merchant: AuthenticatedMerchant, kind: RateLimitClass
    ) -> Mapping[str, str]:
        """Spend one request and return the answer's headers (`RATE_LIMITED` without one)."""
        limit = self.get_limit(merchant, kind)
        return {} if limit is None else await self._spend(merchant.merchant_id, kind, limit)

    async def take_lookup(self, merchant: AuthenticatedMerchant) -> None:
        """Spend one look-up of a key, for a create above its limit (`RateLimitExceededError`).

        The bucket is small, and no other request spends from it.
        """
        limit = self.get_limit(merchant, RateLimitClass.CREATE)
        if limit is not None:
            burst = max(limit.burst // _LOOKUP_SHARE, _LOOKUP_BURST_MIN)
            share = RateLimit(max(limit.per_s // _LOOKUP_SHARE, 1), burst)
            await self._spend(merchant.merchant_id, _LOOKUP, share)

    async def _spend(self, merchant_id: int, kind: str, limit: RateLimit) -> Mapping[str, str]:
        bucket = self._bucket(merchant_id, kind, limit)
        if not self._has(bucket):
            await self._fill(bucket, merchant_id, kind, limit)
        bucket.taken -= 1
        standing = RateLimitStatus(bucket.left + bucket.taken, bucket.full_at - self._monotonic())
        return limit_headers(kind, limit, standing)

    async def _fill(self, bucket: _Bucket, merchant_id: int, kind: str, limit: RateLimit) -> None:
        failures = bucket.failures
        async with bucket.lock:
            if bucket.failures != failures:  # callers that waited do not ask again
                raise StorageUnavailableError(_UNREADABLE)
            if not self._has(bucket):
                await self._take(bucket, merchant_id, kind, limit)

    def put_back(self, merchant: AuthenticatedMerchant, kind: RateLimitClass) -> None:
        """Return a request that turned out to belong to the other limit."""
        limit = self.get_limit(merchant, kind)
        if limit is not None:
            self._bucket(merchant.merchant_id, kind, limit).taken += 1

    def _bucket(self, merchant_id: int, kind: str, limit: RateLimit) -> _Bucket:
        name = (merchant_id, kind, limit)  # another limit has another bucket
        bucket = self._buckets.get(name)
        if bucket is not None:
            return bucket
        if len(self._buckets) >= _KEPT_MAX:
            self._buckets.clear()
        self._buckets[name] = new = _Bucket()
        return new

    def _has(self, bucket: _Bucket) -> bool:
        return bucket.taken > 0 and bucket.lapses_at > self._monotonic()

    async def _take(self, bucket: _Bucket, merchant_id: int, kind: str, limit: RateLimit) -> None:
        now = self._monotonic()
        if bucket.empty_until > now + _HAIR:
            raise RateLimitExceededError(kind, limit, bucket.empty_until - now)
        # Half a burst at most: while one half is spent, the other half must be able to refill.
        wanted = max(1, min(limit.per_s // _SHARE, limit.burst // 2))
        try:
            grant = await rate_limits.take_tokens(self._database, merchant_id, kind, limit, wanted)
        except (StorageUnavailableError, LockTimeoutError) as error:
            bucket.failures += 1
            raise StorageUnavailableError(_UNREADABLE) from error
        bucket.full_at = now + grant.full_in_s
        bucket.left = math.floor(limit.burst - grant.full_in_s * limit.per_s + _HAIR * limit.per_s)
        if grant.granted == 0:
            # Until a whole batch fits, so that refusals cost no statement each.
            wait_s = grant.full_in_s - (limit.burst - wanted) / limit.per_s
            bucket.empty_until = now + wait_s
            raise RateLimitExceededError(kind, limit, wait_s)
        bucket.taken = grant.granted
        bucket.lapses_at = now + _KEPT_S


class AddressRateLimiter:
    """Spends addresses' requests, in this process alone; without an address there is no limit."""

    def __init__(self, settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> None:
        limit = RateLimit(settings.checkout_per_address_per_s, settings.checkout_per_address_burst)
        self._buckets = AddressBuckets(limit, monotonic)

    def take(self, address: str | None) -> None:
        """Spend one request of an address (`RATE_LIMITED` where it has none left)."""
        wait_s = self._buckets.wait_s(address)
        if wait_s:
            raise RefusedError(ErrorCode.RATE_LIMITED, "too many requests", retry_after_s=wait_s)
        self._buckets.spend(address)


def limit_headers(kind: str, limit: RateLimit, standing: RateLimitStatus) -> Mapping[str, str]:
    """Write `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers)."""
    full_in = round_up_s(standing.full_in_s)
    return {
        "RateLimit-Policy": f'"{kind}";q={limit.per_s};w=1',
        "RateLimit": f'"{kind}";r={max(0, standing.remaining)};t={full_in}',
    }


def _defaults(settings: Settings) -> dict[RateLimitClass, RateLimit]:
    return {
        RateLimitClass.CREATE: RateLimit(settings.rate_create_per_s, settings.rate_create_burst),
        RateLimitClass.READ: RateLimit(settings.rate_read_per_s, settings.rate_read_burst),
    }
