"""Failed authentications: an address that causes many is slowed down, within this process."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext

from prometheus_client import Counter
from starlette.requests import Request

from payintent.api.rate_limits import AddressBuckets
from payintent.api.viewer import ViewerReader
from payintent.config import Settings
from payintent.domain import api_key
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.rate_limit import RateLimit
from payintent.log import get_logger

_log = get_logger("api")
#: In place of a prefix: the members of merchants, who have passkeys and links.
MEMBER = "member"
#: In place of a prefix: operators who sign in by an identity provider, which may answer slowly.
PROVIDER_SIGN_IN = "provider sign-in"
_HOLDERS = {
    api_key.MERCHANT: "merchant",
    api_key.OPERATOR: "operator",
    PROVIDER_SIGN_IN: "operator",
    MEMBER: "member",
}
_CHECKS_MAX = 4  # at once, of each kind of holder, for addresses above their limit
FAILURES = Counter(
    "payintent_authentication_failures_total",
    "Requests without a valid key or token",
    ["holder", "reason"],
)
REFUSED = Counter(
    "payintent_authentication_attempts_refused_total",
    "Failed authentications of addresses above their limit, answered 429",
    ["holder"],
)


class UnauthorizedError(RefusedError):
    """No valid key or token; `reason` is for the log and the metrics, never for the caller."""

    def __init__(self, prefix: str, reason: str) -> None:
        super().__init__(ErrorCode.UNAUTHORIZED, "a valid API key is needed")
        self.holder = _HOLDERS[prefix]
        self.reason = reason


class Attempts:
    """Counts failed authentications of each address; above its limit a failure is answered 429.

    A valid key is accepted whatever its address did: many callers may share an address, such as
    that of a proxy which is not declared, and a key may be new to this process. What an address
    above its limit sends is checked a few at a time, so that guesses do not take the database from
    others.
    """

    def __init__(
        self,
        settings: Settings,
        edge: ViewerReader,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        limit = RateLimit(
            settings.failed_logins_per_address_per_s, settings.failed_logins_per_address_burst
        )
        self._buckets = AddressBuckets(limit, monotonic)
        self._edge = edge
        self._checks = {holder: asyncio.Semaphore(_CHECKS_MAX) for holder in _HOLDERS}

    @asynccontextmanager
    async def attempt(self, request: Request, holder: str) -> AsyncGenerator[None]:
        """Record whether the authentication inside of the block fails.

        `UnauthorizedError` becomes `RATE_LIMITED` if too many of the request's address failed.
        """
        address = self._edge.caller_address(request)
        is_slowed = bool(self._buckets.wait_s(address))
        async with self._checks[holder] if is_slowed else nullcontext():
            try:
                yield
            except UnauthorizedError as failed:
                self._refuse_beyond_limit(address, failed)
                self._note_failure(address, failed)
                raise

    def _refuse_beyond_limit(self, address: str | None, failed: UnauthorizedError) -> None:
        wait_s = self._buckets.wait_s(address)
        if wait_s:
            REFUSED.labels(failed.holder).inc()
            message = "too many failed authentications from this address"
            raise RefusedError(ErrorCode.RATE_LIMITED, message, retry_after_s=wait_s) from failed

    def _note_failure(self, address: str | None, failed: UnauthorizedError) -> None:
        FAILURES.labels(failed.holder, failed.reason).inc()
        _log.warning(
            "authentication_failed", holder=failed.holder, reason=failed.reason, address=address
        )
        self._buckets.spend(address)
        if self._buckets.wait_s(address):
            _log.warning("authentication_slowed", holder=failed.holder, address=address)
