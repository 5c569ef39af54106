"""Per-process limits on failed authentications by client address."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext

from prometheus_client import Counter
from starlette.requests import Request

from payintent.core import access as api_key
from payintent.core.access import RateLimit
from payintent.core.addresses import make_client_address_key
from payintent.core.errors import ErrorCode, RefusedError
from payintent.http.viewer import ViewerReader
from payintent.runtime.log import get_logger
from payintent.runtime.settings import Settings

_log = get_logger("api")
_SCHEME = "bearer"
#: Used in place of a key prefix, because merchant members sign in with passkeys and links.
MEMBER = "member"
#: Used in place of a key prefix for sign-ins with an identity provider, which may be slow.
PROVIDER_SIGN_IN = "provider sign-in"
_HOLDERS = {
    api_key.MERCHANT: "merchant",
    api_key.OPERATOR: "operator",
    PROVIDER_SIGN_IN: "operator",
    MEMBER: "member",
}
_CHECKS_MAX = 4  # concurrent checks for addresses above their limit, per type of holder
_ADDRESSES_MAX = 20_000  # buckets in memory
_ROUNDING_TOLERANCE_S = 1e-6  # tolerance for float errors before rounding up to whole seconds
AUTHENTICATION_FAILURES = Counter(
    "payintent_authentication_failures_total",
    "Requests without a valid key or token",
    ["holder", "reason"],
)
REFUSED_ATTEMPTS = Counter(
    "payintent_authentication_attempts_refused_total",
    "Failed authentications that received status 429 because the address exceeded its limit",
    ["holder"],
)


class UnauthorizedError(RefusedError):
    """The request has no valid key or token; `reason` is only for logs and metrics."""

    def __init__(self, prefix: str, reason: str) -> None:
        super().__init__(ErrorCode.UNAUTHORIZED, "a valid API key is required")
        self.holder = _HOLDERS[prefix]
        self.reason = reason


def read_bearer_key(headers: Mapping[str, str], *prefixes: str) -> api_key.ApiKeyText:
    """Read an API key with one of the prefixes from the `Authorization` header.

    Raises `UnauthorizedError`, with the holder of the first prefix, if there is no such key.
    """
    value = headers.get("authorization", "")
    scheme, _, credentials = value.partition(" ")
    # Any number of spaces may follow the scheme (RFC 9110, 11.4).
    text = credentials.strip(" ") if scheme.lower() == _SCHEME else ""
    keys = (api_key.parse_api_key(prefix, text) for prefix in prefixes)
    key = next(filter(None, keys), None)
    if key is None:
        raise UnauthorizedError(prefixes[0], "malformed" if value else "missing")
    return key


def find_mismatch_reason(digest: bytes | None) -> str:
    """Return why a key does not match; `digest` is None for unknown, revoked and expired keys."""
    return "unknown" if digest is None else "wrong_secret"


def round_up_s(seconds: float) -> int:
    return max(0, math.ceil(seconds - _ROUNDING_TOLERANCE_S))


class AddressBuckets:
    """A token bucket per client address; a rate of 0/s means unlimited.

    The number of buckets is bounded: if there are too many, all of them are reset.
    """

    def __init__(self, limit: RateLimit, monotonic: Callable[[], float]) -> None:
        self._limit = limit
        self._monotonic = monotonic
        self._full_at: dict[str, float] = {}

    def get_wait_s(self, address: str | None) -> int:
        """Return the seconds, rounded up, until an address has a token; 0 means now."""
        if address is None or self._limit.per_s == 0:
            return 0
        now = self._monotonic()
        full_at = self._full_at_after_spending(make_client_address_key(address), now)
        return round_up_s(full_at - self._full_at_if_empty(now))

    def spend_token(self, address: str | None) -> None:
        """Spend a token. An empty bucket stays empty and does not go into debt."""
        if address is None or self._limit.per_s == 0:
            return
        key, now = make_client_address_key(address), self._monotonic()
        full_at = min(self._full_at_after_spending(key, now), self._full_at_if_empty(now))
        if len(self._full_at) >= _ADDRESSES_MAX:
            self._full_at = {name: time for name, time in self._full_at.items() if time > now}
            if len(self._full_at) > _ADDRESSES_MAX // 2:  # so that these scans are rare
                self._full_at.clear()
        self._full_at[key] = full_at

    def _full_at_after_spending(self, key: str, now: float) -> float:
        return max(now, self._full_at.get(key, now)) + 1 / self._limit.per_s

    def _full_at_if_empty(self, now: float) -> float:
        return now + self._limit.burst / self._limit.per_s


class AuthenticationAttempts:
    """Counts failed authentications per address. Above the limit, failures receive status 429.

    A valid key is accepted even above the limit, because many callers may share an address, for
    example behind an undeclared proxy. Above the limit, only a few requests are checked at a time,
    so that guessing does not monopolize the database.
    """

    def __init__(
        self,
        settings: Settings,
        viewers: ViewerReader,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        limit = RateLimit(
            settings.failed_logins_per_address_per_s, settings.failed_logins_per_address_burst
        )
        self._buckets = AddressBuckets(limit, monotonic)
        self._viewers = viewers
        self._checks = {prefix: asyncio.Semaphore(_CHECKS_MAX) for prefix in _HOLDERS}

    @asynccontextmanager
    async def attempt(self, request: Request, prefix: str) -> AsyncGenerator[None]:
        """Count an `UnauthorizedError` raised in the block against the request's address.

        Raises `RATE_LIMITED` instead if there have been too many failures from the address.
        """
        address = self._viewers.get_caller_address(request)
        is_limited = bool(self._buckets.get_wait_s(address))
        async with self._checks[prefix] if is_limited else nullcontext():
            try:
                yield
            except UnauthorizedError as error:
                self._raise_if_limited(address, error)
                self._record_failure(address, error)
                raise

    def _raise_if_limited(self, address: str | None, error: UnauthorizedError) -> None:
        wait_s = self._buckets.get_wait_s(address)
        if wait_s:
            REFUSED_ATTEMPTS.labels(error.holder).inc()
            message = "too many failed authentications from this address"
            raise RefusedError(ErrorCode.RATE_LIMITED, message, retry_after_s=wait_s) from error

    def _record_failure(self, address: str | None, error: UnauthorizedError) -> None:
        AUTHENTICATION_FAILURES.labels(error.holder, error.reason).inc()
        _log.warning(
            "authentication_failed", holder=error.holder, reason=error.reason, address=address
        )
        self._buckets.spend_token(address)
        if self._buckets.get_wait_s(address):
            _log.warning("authentication_slowed", holder=error.holder, address=address)
