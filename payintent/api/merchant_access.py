"""Routes that need a merchant's API key."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.api.authentication import Authenticator
from payintent.api.middleware import add_headers
from payintent.api.rate_limits import MerchantRateLimiter, RateLimitExceededError
from payintent.domain.rate_limit import RateLimitClass
from payintent.storage.api_keys import AuthenticatedMerchant

MerchantHandler = Callable[[Request, AuthenticatedMerchant], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class MerchantApi:
    """Authenticates merchants by their API keys and limits their requests."""

    authenticator: Authenticator
    limiter: MerchantRateLimiter

    def route(self, method: str, path: str, handler: MerchantHandler) -> Route:
        """Return a route that authenticates the merchant and spends a request of its read limit."""

        @wraps(handler)
        async def handle(request: Request) -> Response:
            merchant = await self.authenticator.authenticate(request)
            await self.spend(request, merchant, RateLimitClass.READ)
            return await handler(request, merchant)

        return Route(path, handle, methods=[method])

    async def spend(
        self, request: Request, merchant: AuthenticatedMerchant, kind: RateLimitClass
    ) -> None:
        """Spend a request of a limit and add the limit's headers to the response.

        Raises `RateLimitExceededError` if the merchant is above the limit.
        """
        try:
            headers = await self.limiter.take(merchant, kind)
        except RateLimitExceededError as exceeded:
            add_headers(request.scope, exceeded.headers)
            raise
        add_headers(request.scope, headers)
