"""Routes that need a merchant's API key."""

from collections.abc import Awaitable, Callable
from functools import wraps

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.application import Handler
from payintent.api.context import AppContext, get_context
from payintent.api.middleware import add_headers
from payintent.api.rate_limits import RateLimitExceededError
from payintent.domain.rate_limit import RateLimitClass
from payintent.storage.api_keys import AuthenticatedMerchant

MerchantHandler = Callable[[Request, AppContext, AuthenticatedMerchant], Awaitable[Response]]


def merchant_route(handler: MerchantHandler) -> Handler:
    """Authenticate the merchant and spend one request of its limit; adds the limit's headers."""

    @wraps(handler)
    async def answered(request: Request) -> Response:
        app = get_context(request)
        merchant = await app.authenticator.authenticate(request)
        await spend_request(request, app, merchant, RateLimitClass.READ)
        return await handler(request, app, merchant)

    return answered


async def spend_request(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant, kind: RateLimitClass
) -> None:
    """Spend one of a merchant's requests, and add the limit's headers to the answer."""
    try:
        headers = await app.limiter.take(merchant, kind)
    except RateLimitExceededError as exceeded:
        add_headers(request.scope, exceeded.headers)
        raise
    add_headers(request.scope, headers)
