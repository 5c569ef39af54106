"""Rate limits for merchants (across all processes) and for client addresses (per process).

Each merchant has token buckets in the database. A process takes tokens in batches that last a
fiftieth of a second. With a limit of 500/s, one request in ten requires a query. Below 100/s, a
process takes single tokens, and the limit is exact.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from payintent.core.access import RateLimit, RateLimitClass, RateLimitStatus
from payintent.core.errors import ErrorCode, LockTimeoutError, RefusedError, StorageUnavailableError
from payintent.db.database import Database
from payintent.http.address_limits import AddressBuckets, round_up_s
from payintent.merchants import access_store
from payintent.merchants.access_store import AuthenticatedMerchant
from payintent.runtime.settings import Settings

_BATCHES_PER_S = 50
_LOCAL_TTL_S = 1.0  # unused local tokens expire after this time
_BUCKETS_MAX = 20_000
_UNAVAILABLE_MESSAGE = "the rate limits are unavailable"
_LOOKUP_KIND = "lookup"  # for idempotency key lookups after the create limit is exceeded
_LINK_KIND = "link"  # for payments that buyers create with payment links
_SMALL_DIVISOR = 10  # the limits for lookups and links are a tenth of the create limit
_SMALL_BURST_MIN = 10
_CHANGE_KIND = "portal"  # for changes that members make to the test side
_CHANGE_LIMIT = RateLimit(per_s=1, burst=30)
_LINK_ADDRESS_LIMIT = RateLimit(per_s=1, burst=30)
_LINK_MAIL_KIND = "link_mail"  # for payment links that members mail to buyers
_LINK_MAIL_LIMIT = RateLimit(per_s=1 / 60, burst=20)
_ROUNDING_TOLERANCE = 1e-6  # tolerance for floating-point sums


class RateLimitExceededError(RefusedError):
    """The rate limit is exceeded. `headers` must be added to the response."""

    def __init__(self, kind: str, limit: RateLimit, wait_s: float) -> None:
        wait = max(1, round_up_s(wait_s))
        super().__init__(ErrorCode.RATE_LIMITED, f"too many {kind} requests", retry_after_s=wait)
        self.headers = make_limit_headers(kind, limit, RateLimitStatus(0, wait_s))


@dataclass(slots=True)
class _Bucket:
    """Tokens that this process has taken from a merchant's bucket in the database."""

    tokens: int = 0
    expires_at: float = 0.0
    empty_until: float = 0.0
    remaining: int = 0  # tokens left in the database after the last query
    full_at: float = 0.0
    failures: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class MerchantRateLimiter:
    def __init__(
        self,
        database: Database,
        settings: Settings,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._monotonic = monotonic
        self._default_limits = {} if settings.sandbox else _default_limits(settings)
        self._buckets: dict[tuple[int, str, RateLimit], _Bucket] = {}

    def get_limit(self, merchant: AuthenticatedMerchant, kind: RateLimitClass) -> RateLimit | None:
        """Return the merchant's own limit or the default limit. None means unlimited."""
        return merchant.limits.get(kind, self._default_limits.get(kind))

    async def take_token(
        self, merchant: AuthenticatedMerchant, kind: RateLimitClass
    ) -> Mapping[str, str]:
        """Take a token and return the response headers. Raises `RateLimitExceededError`."""
        limit = self.get_limit(merchant, kind)
        return {} if limit is None else await self._spend_token(merchant.merchant_id, kind, limit)

    async def take_lookup_token(self, merchant: AuthenticatedMerchant) -> None:
        """Take a token to look up an idempotency key after the create limit is exceeded.

        Lookups have a separate, smaller bucket. Raises `RateLimitExceededError`.
        """
        await self._take_small_token(merchant, _LOOKUP_KIND)

    async def take_link_token(self, merchant: AuthenticatedMerchant) -> None:
        """Take a token for a payment that a buyer creates with one of the merchant's links.

        The links' bucket is as small as the bucket for lookups, so that visitors to a link cannot
        use up the merchant's create limit. Raises `RateLimitExceededError`.
        """
        await self._take_small_token(merchant, _LINK_KIND)

    async def _take_small_token(self, merchant: AuthenticatedMerchant, kind: str) -> None:
        limit = self.get_limit(merchant, RateLimitClass.CREATE)
        if limit is not None:
            burst = max(limit.burst // _SMALL_DIVISOR, _SMALL_BURST_MIN)
            small_limit = RateLimit(max(limit.per_s // _SMALL_DIVISOR, 1), burst)
            await self._spend_token(merchant.merchant_id, kind, small_limit)

    async def take_change_token(self, merchant_id: int) -> None:
        """Take a token for a change in the portal. Raises `RateLimitExceededError`."""
        await self._spend_token(merchant_id, _CHANGE_KIND, _CHANGE_LIMIT)

    async def take_link_mail_token(self, merchant_id: int) -> None:
        """Take a token for an email with a payment link. Raises `RateLimitExceededError`."""
        await self._spend_token(merchant_id, _LINK_MAIL_KIND, _LINK_MAIL_LIMIT)

    async def _spend_token(
        self, merchant_id: int, kind: str, limit: RateLimit
    ) -> Mapping[str, str]:
        bucket = self._get_bucket(merchant_id, kind, limit)
        if not self._has_tokens(bucket):
            await self._refill(bucket, merchant_id, kind, limit)
        bucket.tokens -= 1
        remaining = bucket.remaining + bucket.tokens
        status = RateLimitStatus(remaining, bucket.full_at - self._monotonic())
        return make_limit_headers(kind, limit, status)

    async def _refill(self, bucket: _Bucket, merchant_id: int, kind: str, limit: RateLimit) -> None:
        failures = bucket.failures
        async with bucket.lock:
            if bucket.failures != failures:  # a query failed while this caller was waiting
                raise StorageUnavailableError(_UNAVAILABLE_MESSAGE)
            if not self._has_tokens(bucket):
                await self._take_batch(bucket, merchant_id, kind, limit)

    def return_token(self, merchant: AuthenticatedMerchant, kind: RateLimitClass) -> None:
        """Return the token of a request that counts against a different limit."""
        limit = self.get_limit(merchant, kind)
        if limit is not None:
            self._get_bucket(merchant.merchant_id, kind, limit).tokens += 1

    def _get_bucket(self, merchant_id: int, kind: str, limit: RateLimit) -> _Bucket:
        key = (merchant_id, kind, limit)  # a changed limit gets a new bucket
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= _BUCKETS_MAX:
                self._buckets.clear()
            bucket = self._buckets[key] = _Bucket()
        return bucket

    def _has_tokens(self, bucket: _Bucket) -> bool:
        return bucket.tokens > 0 and bucket.expires_at > self._monotonic()

    async def _take_batch(
        self, bucket: _Bucket, merchant_id: int, kind: str, limit: RateLimit
    ) -> None:
        now = self._monotonic()
        if bucket.empty_until > now + _ROUNDING_TOLERANCE:
            raise RateLimitExceededError(kind, limit, bucket.empty_until - now)
        # At most half a burst, so that the bucket can refill while the batch is being used.
        size = max(1, min(int(limit.per_s) // _BATCHES_PER_S, limit.burst // 2))
        try:
            grant = await access_store.take_tokens(self._database, merchant_id, kind, limit, size)
        except (StorageUnavailableError, LockTimeoutError) as error:
            bucket.failures += 1
            raise StorageUnavailableError(_UNAVAILABLE_MESSAGE) from error
        bucket.full_at = now + grant.full_in_s
        missing_tokens = (grant.full_in_s - _ROUNDING_TOLERANCE) * limit.per_s
        bucket.remaining = math.floor(limit.burst - missing_tokens)
        if grant.token_count == 0:
            # Wait until a whole batch is available, so that a rejection rarely requires a query.
            wait_s = grant.full_in_s - (limit.burst - size) / limit.per_s
            bucket.empty_until = now + wait_s
            raise RateLimitExceededError(kind, limit, wait_s)
        bucket.tokens = grant.token_count
        bucket.expires_at = now + _LOCAL_TTL_S


class AddressRateLimiter:
    """Limits requests per client address in this process. Unknown addresses are not limited."""

    def __init__(self, settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> None:
        limit = RateLimit(settings.checkout_per_address_per_s, settings.checkout_per_address_burst)
        link_limit = _LINK_ADDRESS_LIMIT if limit.per_s else limit
        self._buckets = AddressBuckets(limit, monotonic)
        self._link_buckets = AddressBuckets(link_limit, monotonic)

    def take_token(self, address: str | None) -> None:
        """Take a token for an address. Raises `RATE_LIMITED` if its bucket is empty."""
        _take_address_token(self._buckets, address)

    def take_link_token(self, address: str | None) -> None:
        """Take a token for a payment that a client at this address creates with a payment link.

        The bucket is small, because each payment is stored and reserves a use of the link. Raises
        `RATE_LIMITED`.
        """
        _take_address_token(self._link_buckets, address)


def _take_address_token(buckets: AddressBuckets, address: str | None) -> None:
    wait_s = buckets.get_wait_s(address)
    if wait_s:
        raise RefusedError(ErrorCode.RATE_LIMITED, "too many requests", retry_after_s=wait_s)
    buckets.spend_token(address)


def make_limit_headers(kind: str, limit: RateLimit, status: RateLimitStatus) -> Mapping[str, str]:
    """Build the response headers that draft-ietf-httpapi-ratelimit-headers defines."""
    full_in = round_up_s(status.full_in_s)
    window_s = max(1, round(1 / limit.per_s))
    return {
        "RateLimit-Policy": f'"{kind}";q={round(limit.per_s * window_s)};w={window_s}',
        "RateLimit": f'"{kind}";r={max(0, status.remaining)};t={full_in}',
    }


def _default_limits(settings: Settings) -> dict[RateLimitClass, RateLimit]:
    return {
        RateLimitClass.CREATE: RateLimit(settings.rate_create_per_s, settings.rate_create_burst),
        RateLimitClass.READ: RateLimit(settings.rate_read_per_s, settings.rate_read_burst),
    }
