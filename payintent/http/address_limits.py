"""Failed authentications: each address has a limit, counted in this process."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext

from prometheus_client import Counter
from starlette.requests import Request

from payintent.core import access as api_key
from payintent.core.access import RateLimit
from payintent.core.addresses import client_address_key
from payintent.core.errors import ErrorCode, RefusedError
from payintent.http.viewer import ViewerReader
from payintent.runtime.log import get_logger
from payintent.runtime.settings import Settings

_log = get_logger("api")
_SCHEME = "bearer"
#: Instead of a key prefix: members of merchants sign in with passkeys and links.
MEMBER = "member"
#: Instead of a key prefix: operators may sign in at an identity provider, which may be slow.
PROVIDER_SIGN_IN = "provider sign-in"
_HOLDERS = {
    api_key.MERCHANT: "merchant",
    api_key.OPERATOR: "operator",
    PROVIDER_SIGN_IN: "operator",
    MEMBER: "member",
}
_CHECKS_MAX = 4  # concurrent checks per kind of holder, for addresses above their limit
_ADDRESSES_MAX = 20_000
_ROUNDING_S = 1e-6  # tolerance for sums of floats, before they are rounded up to seconds
FAILURES = Counter(
    "payintent_authentication_failures_total",
    "Requests without a valid key or token",
    ["holder", "reason"],
)
REFUSED = Counter(
    "payintent_authentication_attempts_refused_total",
    "Failed authentications of addresses above their limit, answered with 429",
    ["holder"],
)


class UnauthorizedError(RefusedError):
    """No valid key or token; `reason` is for the log and the metrics, never for the caller."""

    def __init__(self, prefix: str, reason: str) -> None:
        super().__init__(ErrorCode.UNAUTHORIZED, "a valid API key is needed")
        self.holder = _HOLDERS[prefix]
        self.reason = reason


def read_bearer_key(headers: Mapping[str, str], *prefixes: str) -> api_key.ApiKeyText:
    """Read a well-formed key with one of the prefixes from `Authorization`.

    Raises `UnauthorizedError` for the holder of the first prefix.
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


def mismatch_reason(digest: bytes | None) -> str:
    """Return why a key does not match the stored digest; revoked and expired keys have none."""
    return "unknown" if digest is None else "wrong_secret"


def round_up_s(seconds: float) -> int:
    return max(0, math.ceil(seconds - _ROUNDING_S))


class AddressBuckets:
    """A token bucket per client address; a rate of 0/s means unlimited.

    The number of addresses is bounded: if there are too many, all buckets start anew.
    """

    def __init__(self, limit: RateLimit, monotonic: Callable[[], float]) -> None:
        self._limit = limit
        self._monotonic = monotonic
        self._full_at: dict[str, float] = {}

    def wait_s(self, address: str | None) -> int:
        """Return the whole seconds until an address may spend a token; 0 if it may now."""
        if address is None or self._limit.per_s == 0:
            return 0
        now = self._monotonic()
        return round_up_s(self._full_after(client_address_key(address), now) - self._latest(now))

    def spend(self, address: str | None) -> None:
        """Spend a token; an empty bucket stays empty and never becomes negative."""
        if address is None or self._limit.per_s == 0:
            return
        key, now = client_address_key(address), self._monotonic()
        full_at = min(self._full_after(key, now), self._latest(now))
        if len(self._full_at) >= _ADDRESSES_MAX:
            self._full_at = {name: at for name, at in self._full_at.items() if at > now}
            if len(self._full_at) > _ADDRESSES_MAX // 2:  # scans must stay rare
                self._full_at.clear()
        self._full_at[key] = full_at

    def _full_after(self, key: str, now: float) -> float:
        """Return when the bucket is full again if a token is spent now."""
        return max(now, self._full_at.get(key, now)) + 1 / self._limit.per_s

    def _latest(self, now: float) -> float:
        return now + self._limit.burst / self._limit.per_s


class Attempts:
    """Counts failed authentications per address; above the limit a failure gets a 429.

    A valid key is accepted from any address: many callers may share an address, such as that of an
    undeclared proxy, and a key may be new to this process. Requests of an address above its limit
    are checked a few at a time, so that guessing does not monopolize the database.
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
        self._checks = {holder: asyncio.Semaphore(_CHECKS_MAX) for holder in _HOLDERS}

    @asynccontextmanager
    async def attempt(self, request: Request, holder: str) -> AsyncGenerator[None]:
        """Count an `UnauthorizedError` raised in the block against the address of the request.

        The error becomes `RATE_LIMITED` if the address has failed too often.
        """
        address = self._viewers.caller_address(request)
        is_slowed = bool(self._buckets.wait_s(address))
        async with self._checks[holder] if is_slowed else nullcontext():
            try:
                yield
            except UnauthorizedError as error:
                self._refuse_beyond_limit(address, error)
                self._note_failure(address, error)
                raise

    def _refuse_beyond_limit(self, address: str | None, error: UnauthorizedError) -> None:
        wait_s = self._buckets.wait_s(address)
        if wait_s:
            REFUSED.labels(error.holder).inc()
            message = "too many failed authentications from this address"
            raise RefusedError(ErrorCode.RATE_LIMITED, message, retry_after_s=wait_s) from error

    def _note_failure(self, address: str | None, error: UnauthorizedError) -> None:
        FAILURES.labels(error.holder, error.reason).inc()
        _log.warning(
            "authentication_failed", holder=error.holder, reason=error.reason, address=address
        )
        self._buckets.spend(address)
        if self._buckets.wait_s(address):
            _log.warning("authentication_slowed", holder=error.holder, address=address)
