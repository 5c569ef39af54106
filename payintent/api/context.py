"""The context that every handler gets: the service, and the answers they have in common."""

from dataclasses import dataclass
from typing import cast
from uuid import UUID

from starlette.requests import Request

from payintent.api.authentication import Authenticator
from payintent.api.authentication_failures import Attempts
from payintent.api.concurrent_creates import ConcurrentCreates
from payintent.api.rate_limits import AddressRateLimiter, MerchantRateLimiter
from payintent.api.readiness import Readiness
from payintent.api.viewer import ViewerReader
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.payments.change_feed import ChangeFeed
from payintent.service import Service


@dataclass(frozen=True, slots=True)
class AppContext:
    service: Service
    authenticator: Authenticator
    attempts: Attempts
    viewers: ViewerReader
    limiter: MerchantRateLimiter
    addresses: AddressRateLimiter
    concurrent_creates: ConcurrentCreates
    change_feed: ChangeFeed[UUID]  # of payments, for open checkouts
    event_feed: ChangeFeed[int]  # of merchants' events, for those who wait for the next one
    readiness: Readiness


def get_context(request: Request) -> AppContext:
    """Return the context that the application was started with.

    Raises `SERVICE_UNAVAILABLE` while the service is being opened.
    """
    opened = cast("AppContext | None", getattr(request.app.state, "context", None))
    if opened is None:
        raise RefusedError(
            ErrorCode.SERVICE_UNAVAILABLE, "the service is being opened", retry_after_s=1
        )
    return opened
