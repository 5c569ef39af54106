"""Authentication: keys and tokens, found by their public part and compared by digest."""

import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from starlette.requests import Request

from payintent.api.authentication_failures import Attempts, UnauthorizedError
from payintent.api.call_log import MERCHANT
from payintent.api.key_uses import KeyUses
from payintent.domain import api_key
from payintent.domain.payable import apply_capabilities, payable_decimals
from payintent.encryption import Encryption
from payintent.payments.gateway_accounts import GatewayAccounts
from payintent.storage import api_keys, operator_tokens
from payintent.storage.api_keys import AuthenticatedMerchant
from payintent.storage.database import Database
from payintent.storage.operator_tokens import AuthenticatedOperator
from payintent.ttl_cache import TtlMap

_KEPT_MAX = 10_000
_SCHEME = "bearer"


class Authenticator:
    """Identifies merchants by their keys. Its cache, revocations too, is a second old at most."""

    def __init__(
        self,
        database: Database,
        encryption: Encryption,
        accounts: GatewayAccounts,
        attempts: Attempts,
        kept_s: float,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        uses: KeyUses,
    ) -> None:
        self._database = database
        self._encryption = encryption
        self._accounts = accounts
        self._attempts = attempts
        self._uses = uses
        # By the digest of the whole header.
        self._merchants: TtlMap[bytes, AuthenticatedMerchant] = TtlMap(kept_s, _KEPT_MAX, monotonic)

    async def authenticate(self, request: Request) -> AuthenticatedMerchant:
        """Return the merchant whose key a request carries (`UNAUTHORIZED` where there is none).

        `RATE_LIMITED` instead if too many requests of its address had none.
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
            raise UnauthorizedError(api_key.MERCHANT, _reason(merchant and merchant.digest))
        methods = [
            apply_capabilities(method, self._accounts.capabilities(method.provider))
            for method in merchant.methods
        ]
        merchant = replace(merchant, payable=payable_decimals(merchant.market, methods))
        self._merchants.set(digest, merchant)
        return merchant


async def authenticate_operator(
    database: Database, encryption: Encryption, headers: Mapping[str, str]
) -> AuthenticatedOperator:
    """Return the operator whose token a request carries (`UNAUTHORIZED` where there is none)."""
    return await check_operator_token(
        database, encryption, read_bearer_key(headers, api_key.OPERATOR)
    )


async def check_operator_token(
    database: Database, encryption: Encryption, token: api_key.ApiKeyText
) -> AuthenticatedOperator:
    """Return the operator of a well-formed token (`UNAUTHORIZED` where it is no valid one)."""
    found = await operator_tokens.find_by_public_id(database, token.public_id)
    if found is None or not hmac.compare_digest(found.digest, encryption.digest(token.text)):
        raise UnauthorizedError(api_key.OPERATOR, _reason(found and found.digest))
    if not found.is_use_noted:
        await operator_tokens.note_use(database, token.public_id)
    return found


def read_bearer_key(headers: Mapping[str, str], prefix: str, *also: str) -> api_key.ApiKeyText:
    """Read a well-formed key of a prefix from `Authorization` (`UNAUTHORIZED` without one)."""
    value = headers.get("authorization", "")
    scheme, _, credentials = value.partition(" ")
    # Any number of spaces may follow the scheme (RFC 9110, 11.4).
    text = credentials.strip(" ") if scheme.lower() == _SCHEME else ""
    found = (api_key.parse_api_key(start, text) for start in (prefix, *also))
    key = next(filter(None, found), None)
    if key is None:
        raise UnauthorizedError(prefix, "malformed" if value else "missing")
    return key


def _reason(digest: bytes | None) -> str:
    return "unknown" if digest is None else "wrong_secret"  # revoked and expired ones are unknown
