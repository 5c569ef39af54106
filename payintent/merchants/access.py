"""Authenticate merchants by their API keys."""

import hmac
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.core import access as api_key
from payintent.core.access import RateLimitClass
from payintent.db.database import Database
from payintent.gateway_accounts.accounts import GatewayAccounts
from payintent.http.address_limits import (
    AuthenticationAttempts,
    UnauthorizedError,
    find_mismatch_reason,
    read_bearer_key,
)
from payintent.http.middleware import add_headers
from payintent.http.responses import MERCHANT_ID
from payintent.merchants import access_store
from payintent.merchants.access_store import AuthenticatedMerchant
from payintent.merchants.call_log import KeyUses
from payintent.merchants.limits import MerchantRateLimiter, RateLimitExceededError
from payintent.merchants.payable import apply_capabilities, payable_decimals
from payintent.runtime.caches import TtlMap
from payintent.runtime.encryption import Encryption

_CACHE_SIZE = 10_000


class Authenticator:
    """Authenticates API keys, which are looked up by public part and compared by digest.

    Merchants are cached for `cache_s` seconds, so a revocation may take that long to take effect.
    """

    def __init__(
        self,
        database: Database,
        encryption: Encryption,
        accounts: GatewayAccounts,
        attempts: AuthenticationAttempts,
        cache_s: float,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        key_uses: KeyUses,
    ) -> None:
        self._database = database
        self._encryption = encryption
        self._accounts = accounts
        self._attempts = attempts
        self._key_uses = key_uses
        # Keyed by the digest of the `Authorization` header.
        self._merchants: TtlMap[bytes, AuthenticatedMerchant] = TtlMap(
            cache_s, _CACHE_SIZE, monotonic
        )

    async def authenticate(self, request: Request) -> AuthenticatedMerchant:
        """Return the merchant that owns the request's API key.

        Raises `UNAUTHORIZED` if the key is missing or invalid, and `RATE_LIMITED` after too many
        failures from the client's address.
        """
        digest = self._encryption.digest(request.headers.get("authorization", ""))
        merchant = self._merchants.get(digest)
        if merchant is None:
            async with self._attempts.attempt(request, api_key.MERCHANT):
                merchant = await self._find_merchant(digest, request.headers)
        self._key_uses.record(merchant.public_id)
        request.scope[MERCHANT_ID] = merchant.merchant_id
        return merchant

    async def _find_merchant(
        self, digest: bytes, headers: Mapping[str, str]
    ) -> AuthenticatedMerchant:
        key = read_bearer_key(headers, api_key.MERCHANT, api_key.MERCHANT_TEST)
        merchant = await access_store.find_by_public_id(self._database, key.public_id)
        key_digest = self._encryption.digest(key.text)
        if merchant is None or not hmac.compare_digest(merchant.digest, key_digest):
            self._merchants.remove(digest)
            raise UnauthorizedError(
                api_key.MERCHANT, find_mismatch_reason(merchant and merchant.digest)
            )
        merchant = _with_payable_currencies(merchant, self._accounts)
        self._merchants.set(digest, merchant)
        return merchant


@dataclass(frozen=True, slots=True)
class MerchantDirectory:
    """Finds merchants for requests from buyers and members, which do not contain an API key."""

    database: Database
    accounts: GatewayAccounts

    async def get(self, merchant_id: int) -> AuthenticatedMerchant:
        merchant = await access_store.find_by_id(self.database, merchant_id)
        assert merchant is not None  # noqa: S101 - merchants are never deleted
        return _with_payable_currencies(merchant, self.accounts)


def _with_payable_currencies(
    merchant: AuthenticatedMerchant, accounts: GatewayAccounts
) -> AuthenticatedMerchant:
    methods = [
        apply_capabilities(method, accounts.capabilities(method.provider))
        for method in merchant.methods
    ]
    return replace(merchant, payable_currencies=payable_decimals(merchant.market, methods))


MerchantHandler = Callable[[Request, AuthenticatedMerchant], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class MerchantApi:
    """Authenticates merchants by their API keys and limits their requests."""

    authenticator: Authenticator
    limiter: MerchantRateLimiter

    def route(self, method: str, path: str, handler: MerchantHandler) -> Route:
        """Return a route that authenticates the merchant and applies the read limit."""

        @wraps(handler)
        async def handle(request: Request) -> Response:
            merchant = await self.authenticator.authenticate(request)
            await self.apply_limit(request, merchant, RateLimitClass.READ)
            return await handler(request, merchant)

        return Route(path, handle, methods=[method])

    async def apply_limit(
        self, request: Request, merchant: AuthenticatedMerchant, kind: RateLimitClass
    ) -> None:
        """Count a request against a rate limit and add the limit's headers to the response.

        Raises `RateLimitExceededError` if the limit is exceeded.
        """
        try:
            headers = await self.limiter.take_token(merchant, kind)
        except RateLimitExceededError as error:
            add_headers(request.scope, error.headers)
            raise
        add_headers(request.scope, headers)
