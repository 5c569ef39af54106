"""A provider of identities: what it says of itself, its keys, and codes exchanged for tokens."""

import base64
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote_plus, urlencode

import msgspec
from msgspec import Struct
from prometheus_client import Counter

from payintent.api.authentication_failures import UnauthorizedError
from payintent.config import Settings
from payintent.domain import api_key
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.web_origin import is_confidential
from payintent.gateways.http_client import GatewayHttpClient, HttpAnswer
from payintent.log import get_logger
from payintent.slot import Waiters, release_slot
from payintent.ttl_cache import TtlCache

T = TypeVar("T")
_log = get_logger("operator")
_TIMEOUT_S = 5.0
_ANSWER_BYTES_MAX = 256 * 1024
_KEPT_S = 3600.0  # what the provider says of itself, and its keys
_KEYS_AGAIN_S = 10.0  # between two readings because of keys that are not known
_ASKED_AGAIN_S = 2.0  # after a reading that failed
_KEYS_MAX = 100
_WAITING_MAX = 64  # sign-ins that wait for the provider
_OK = 200
_REFUSALS = frozenset({400, 401, 403})
_BASIC, _POST = "client_secret_basic", "client_secret_post"
_CODE_CHARS_MAX = 4_096
FAILURES = Counter(
    "payintent_oidc_provider_failures_total",
    "Sign-ins that the provider of identities could not be asked about",
    ["reason"],
)


class ProviderUnusableError(RefusedError):
    """The provider does not answer, or not as it must; `reason` is for the log and metrics."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(
            ErrorCode.SERVICE_UNAVAILABLE, "the provider of identities cannot be used: " + detail
        )
        self.reason = reason
        self.detail = detail


class ProviderMetadata(Struct, frozen=True):
    """What a provider says of itself (OpenID Connect Discovery 1.0, section 3)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = (_BASIC,)
    authorization_response_iss_parameter_supported: bool = False


class _Keys(Struct, frozen=True):
    keys: list[dict[str, Any]]


class _TokenAnswer(Struct, frozen=True):
    id_token: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is exchanged for a token: the code, with the address and verifier it was asked by."""

    code: str
    redirect_uri: str
    verifier: str


class IdentityProvider:
    def __init__(self, settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.issuer = settings.oidc_issuer
        self.client_id = settings.oidc_client_id
        self._secret = settings.oidc_client_secret.get_secret_value()
        self._http = GatewayHttpClient(_TIMEOUT_S, _ANSWER_BYTES_MAX, settings.client_tls)
        self._monotonic = monotonic
        self._waiters = Waiters()
        self._metadata: TtlCache[ProviderMetadata | None] = TtlCache(
            self._read_metadata, None, _KEPT_S, monotonic, self._wait
        )
        self._keys: TtlCache[_Keys] = TtlCache(
            self._read_keys, _Keys([]), _KEPT_S, monotonic, self._wait
        )
        self._keys_again_at = 0.0
        self._failed: tuple[float, ProviderUnusableError] | None = None

    async def metadata(self) -> ProviderMetadata:
        """Return what the provider says of itself, an hour old at most."""
        if self._failed is not None and self._monotonic() < self._failed[0]:
            raise self._failed[1]
        try:
            found = await self._metadata.get()
        except ProviderUnusableError as error:
            self._failed = self._monotonic() + _ASKED_AGAIN_S, error
            raise
        assert found is not None  # noqa: S101 - it was read
        return found

    async def keys(self, kid: str | None) -> list[dict[str, Any]]:
        """Return the provider's public keys as JWKs, read again where none has this id."""
        kept = (await self._keys.get()).keys
        now = self._monotonic()
        if kid is None or any(key.get("kid") == kid for key in kept) or now < self._keys_again_at:
            return kept
        self._keys_again_at = now + _KEYS_AGAIN_S
        self._keys.invalidate()
        return (await self._keys.get()).keys

    async def exchange(self, exchange: Exchange) -> str:
        """Return the ID token of a code (`UNAUTHORIZED` where the provider refuses it)."""
        if not 0 < len(exchange.code) <= _CODE_CHARS_MAX:
            raise UnauthorizedError(api_key.OPERATOR, "oidc_code")
        metadata = await self.metadata()
        fields = {
            "grant_type": "authorization_code",
            "code": exchange.code,
            "redirect_uri": exchange.redirect_uri,
            "code_verifier": exchange.verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if _BASIC in metadata.token_endpoint_auth_methods_supported:
            headers["Authorization"] = self._basic()
        else:
            fields |= {"client_id": self.client_id, "client_secret": self._secret}
        with self._wait():
            answer = await self._ask("token", "POST", metadata.token_endpoint, headers, fields)
        if answer.status in _REFUSALS:
            raise UnauthorizedError(api_key.OPERATOR, "oidc_code")
        return _read("token", answer, _TokenAnswer).id_token

    async def close(self) -> None:
        await self._http.close()

    @contextmanager
    def _wait(self) -> Generator[None]:
        """Wait for the provider inside the block, without a slot, beside so many others."""
        if self._waiters[self.issuer] >= _WAITING_MAX:
            raise RefusedError(
                ErrorCode.SERVICE_UNAVAILABLE, "too many people are signing in", retry_after_s=1
            )
        release_slot()
        with self._waiters.count(self.issuer):
            yield

    def _basic(self) -> str:
        """Authenticate as the client; both parts are form-encoded first (RFC 6749, 2.3.1)."""
        pair = f"{quote_plus(self.client_id)}:{quote_plus(self._secret)}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"

    async def _read_metadata(self, _: ProviderMetadata | None) -> ProviderMetadata:
        url = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
        answer = await self._ask("discovery", "GET", url, {})
        metadata = _read("discovery", answer, ProviderMetadata)
        if metadata.issuer != self.issuer:
            raise _unusable("discovery", "it names another issuer than PAYINTENT_OIDC_ISSUER")
        ends = metadata.authorization_endpoint, metadata.token_endpoint, metadata.jwks_uri
        if not all(is_confidential(url) and "#" not in url for url in ends):
            raise _unusable("discovery", "an endpoint of it is not https")
        if not {_BASIC, _POST} & set(metadata.token_endpoint_auth_methods_supported):
            raise _unusable("discovery", "it takes no client secret")
        return metadata

    async def _read_keys(self, _: _Keys) -> _Keys:
        metadata = await self.metadata()
        answer = await self._ask("keys", "GET", metadata.jwks_uri, {})
        found = _read("keys", answer, _Keys)
        return _Keys(found.keys[:_KEYS_MAX])

    async def _ask(
        self,
        what: str,
        method: str,
        url: str,
        headers: Mapping[str, str],
        fields: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        answer = await self._http.request(
            method,
            url,
            headers={"Accept": "application/json", **headers},
            body=urlencode(fields).encode() if fields else None,
        )
        if not isinstance(answer, HttpAnswer):
            raise _unusable(what, answer.detail)
        return answer


def _read(what: str, answer: HttpAnswer, kind: type[T]) -> T:
    if answer.status != _OK:
        raise _unusable(what, f"HTTP {answer.status} for its {what}")
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _unusable(what, f"its {what} cannot be read") from None


def _unusable(what: str, detail: str) -> ProviderUnusableError:
    FAILURES.labels(what).inc()
    _log.warning("identity_provider_failed", what=what, why=detail)
    return ProviderUnusableError(what, detail)
