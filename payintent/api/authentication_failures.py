"""Failed authentications: an address that causes many is slowed down, within this process."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from prometheus_client import Counter
from starlette.requests import Request

from payintent.api.rate_limits import AddressBuckets
from payintent.api.viewer import ViewerReader
from payintent.config import Settings
from payintent.domain import api_key
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.rate_limit import RateLimit
from payintent.encryption import Encryption
from payintent.log import get_logger

_log = get_logger("api")
#: In place of a prefix: the members of merchants, who have passkeys and links.
MEMBER = "member"
_HOLDERS = {api_key.MERCHANT: "merchant", api_key.OPERATOR: "operator", MEMBER: "member"}
_GOOD_S = 24 * 3600.0  # an accepted key is not slowed down for so long
_GOOD_MAX = 10_000
FAILURES = Counter(
    "payintent_authentication_failures_total",
    "Requests without a valid key or token",
    ["holder", "reason"],
)
REFUSED = Counter(
    "payintent_authentication_attempts_refused_total",
    "Requests refused unread, because of the failed authentications of their address",
    ["holder"],
)


class UnauthorizedError(RefusedError):
    """No valid key or token; `reason` is for the log and the metrics, never for the caller."""

    def __init__(self, prefix: str, reason: str) -> None:
        super().__init__(ErrorCode.UNAUTHORIZED, "a valid API key is needed")
        self.holder = _HOLDERS[prefix]
        self.reason = reason


class Attempts:
    """Counts failed authentications of each address; above its limit no key is looked up.

    Many callers may share an address, that of a proxy which is not declared: a key or token that
    was accepted within a day is looked up whatever others at its address do.
    """

    def __init__(
        self,
        settings: Settings,
        edge: ViewerReader,
        encryption: Encryption,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        limit = RateLimit(
            settings.failed_logins_per_address_per_s, settings.failed_logins_per_address_burst
        )
        self._buckets = AddressBuckets(limit, monotonic)
        self._edge = edge
        self._secrets = encryption
        self._monotonic = monotonic
        self._good_until: dict[bytes, float] = {}  # by digest of the header, oldest use first

    @contextmanager
    def attempt(self, request: Request, prefix: str, given: str | None = None) -> Generator[None]:
        """Allow an authentication, and record whether it failed.

        `given` is what identifies the caller where it is not in `Authorization`.
        Raises `RATE_LIMITED` where too many from its address failed.
        """
        if given is None:
            given = request.headers.get("authorization", "")
        mark = self._secrets.digest(given)
        address = self._edge.caller_address(request)
        if not self._was_good(mark):
            self._refuse_beyond_limit(address, prefix)
        try:
            yield
        except UnauthorizedError as failed:
            self._good_until.pop(mark, None)
            self._note_failure(address, failed)
            raise
        self._note_success(mark)

    def _was_good(self, mark: bytes) -> bool:
        return self._good_until.get(mark, 0.0) > self._monotonic()

    def _refuse_beyond_limit(self, address: str | None, prefix: str) -> None:
        wait_s = self._buckets.wait_s(address)
        if wait_s:
            REFUSED.labels(_HOLDERS[prefix]).inc()
            message = "too many failed authentications from this address"
            raise RefusedError(ErrorCode.RATE_LIMITED, message, retry_after_s=wait_s)

    def _note_failure(self, address: str | None, failed: UnauthorizedError) -> None:
        FAILURES.labels(failed.holder, failed.reason).inc()
        _log.warning(
            "authentication_failed", holder=failed.holder, reason=failed.reason, address=address
        )
        self._buckets.spend(address)
        if self._buckets.wait_s(address):
            _log.warning("authentication_slowed", holder=failed.holder, address=address)

    def _note_success(self, mark: bytes) -> None:
        self._good_until.pop(mark, None)
        if len(self._good_until) >= _GOOD_MAX:
            del self._good_until[next(iter(self._good_until))]
        self._good_until[mark] = self._monotonic() + _GOOD_S
