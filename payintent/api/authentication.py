"""Authentication of merchants by their API keys."""

import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from starlette.requests import Request

from payintent.api.authentication_failures import (
    Attempts,
    UnauthorizedError,
    mismatch_reason,
    read_bearer_key,
)
from payintent.api.call_log import MERCHANT
from payintent.api.key_uses import KeyUses
from payintent.domain import api_key
from payintent.domain.payable import apply_capabilities, payable_decimals
from payintent.encryption import Encryption
from payintent.payments.gateway_accounts import GatewayAccounts
from payintent.storage import api_keys
from payintent.storage.api_keys import AuthenticatedMerchant
from payintent.storage.database import Database
from payintent.ttl_cache import TtlMap

_CACHE_MAX = 10_000


class Authenticator:
    """Authenticates merchants by key: looked up by its public part, compared by its digest.

    Merchants are cached for `cache_s`, so a revocation takes effect after that time at the latest.
    """

    def __init__(
        self,
        database: Database,
        encryption: Encryption,
        accounts: GatewayAccounts,
        attempts: Attempts,
        cache_s: float,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        uses: KeyUses,
    ) -> None:
        self._database = database
        self._encryption = encryption
        self._accounts = accounts
        self._attempts = attempts
        self._uses = uses
        # By the digest of the whole `Authorization` header.
        self._merchants: TtlMap[bytes, AuthenticatedMerchant] = TtlMap(
            cache_s, _CACHE_MAX, monotonic
        )

    async def authenticate(self, request: Request) -> AuthenticatedMerchant:
        """Return the merchant of the request's key.

        Raises `UNAUTHORIZED` without a valid key, or `RATE_LIMITED` if the address of the request
        has failed too often.
        """
        digest = self._encryption.digest(request.headers.get("authorization", ""))
        merchant = self._merchants.get(digest)
        if merchant is None:
            async with self._attempts.attempt(request, api_key.MERCHANT):
                merchant = await self._look_up(digest, request.headers)
        self._uses.note(merchant.public_id)
        request.scope[MERCHANT] = merchant.merchant_id
        return merchant

    async def _look_up(self, digest: bytes, headers: Mapping[str, str]) -> AuthenticatedMerchant:
        key = read_bearer_key(headers, api_key.MERCHANT, api_key.MERCHANT_TEST)
        merchant = await api_keys.find_by_public_id(self._database, key.public_id)
        expected = self._encryption.digest(key.text)
        if merchant is None or not hmac.compare_digest(merchant.digest, expected):
            self._merchants.remove(digest)
            raise UnauthorizedError(api_key.MERCHANT, mismatch_reason(merchant and merchant.digest))
        methods = [
            apply_capabilities(method, self._accounts.capabilities(method.provider))
            for method in merchant.methods
        ]
        merchant = replace(merchant, payable=payable_decimals(merchant.market, methods))
        self._merchants.set(digest, merchant)
        return merchant
