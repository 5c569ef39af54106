"""A client for an identity provider's metadata, signing keys and token endpoint."""

import base64
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote_plus, urlencode

import msgspec
from msgspec import Struct
from prometheus_client import Counter

from payintent.core.access import OPERATOR
from payintent.core.addresses import is_confidential
from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateways.http_client import GatewayHttpClient, HttpResponse
from payintent.http.address_limits import UnauthorizedError
from payintent.runtime.caches import TtlCache
from payintent.runtime.log import get_logger
from payintent.runtime.settings import Settings
from payintent.runtime.waiting import Waiters, release_slot

T = TypeVar("T")
_log = get_logger("operator")
_TIMEOUT_S = 5.0
_RESPONSE_BYTES_MAX = 256 * 1024
_CACHE_TTL_S = 3600.0  # for metadata and keys
_KEY_REFRESH_INTERVAL_S = 10.0  # minimum interval between refreshes for unverified tokens
_RETRY_S = 2.0  # delay before metadata is requested again after a failure
_KEYS_MAX = 100
_SIGN_INS_MAX = 64  # concurrent sign-ins per process
_OK = 200
_REJECTION_STATUSES = frozenset({400, 401, 403})
_BASIC, _POST = "client_secret_basic", "client_secret_post"
_CODE_CHARS_MAX = 4_096
FAILURES = Counter(
    "payintent_oidc_provider_failures_total",
    "Requests to the identity provider during sign-in that failed or returned invalid responses",
    ["request"],
)


class IdentityProviderError(RefusedError):
    """The provider is unreachable, or its response is invalid."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            ErrorCode.SERVICE_UNAVAILABLE, f"the identity provider cannot be used: {detail}"
        )
        self.detail = detail


def sign_in_error(reason: str) -> UnauthorizedError:
    return UnauthorizedError(OPERATOR, f"oidc_{reason}")


class ProviderMetadata(Struct, frozen=True):
    """Provider metadata (OpenID Connect Discovery 1.0, section 3)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = (_BASIC,)
    authorization_response_iss_parameter_supported: bool = False


class _Keys(Struct, frozen=True):
    keys: list[dict[str, Any]]


class _TokenResponse(Struct, frozen=True):
    id_token: str


class IdentityProvider:
    def __init__(self, settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.issuer = settings.oidc_issuer
        self.client_id = settings.oidc_client_id
        self._secret = settings.oidc_client_secret.get_secret_value()
        self._http = GatewayHttpClient(_TIMEOUT_S, _RESPONSE_BYTES_MAX, settings.client_tls)
        self._monotonic = monotonic
        self._waiters = Waiters()
        self._metadata: TtlCache[ProviderMetadata | None] = TtlCache(
            self._read_metadata, None, _CACHE_TTL_S, monotonic, self._wait_without_slot
        )
        self._keys: TtlCache[_Keys] = TtlCache(
            self._read_keys, _Keys([]), _CACHE_TTL_S, monotonic, self._wait_without_slot
        )
        self._next_key_refresh_at = 0.0
        self._failure: tuple[float, IdentityProviderError] | None = None

    async def get_metadata(self) -> ProviderMetadata:
        """Return the provider's metadata, cached for up to an hour."""
        if self._failure is not None and self._monotonic() < self._failure[0]:
            raise self._failure[1]
        try:
            metadata = await self._metadata.get()
        except IdentityProviderError as error:
            self._failure = self._monotonic() + _RETRY_S, error
            raise
        assert metadata is not None  # noqa: S101 - it was read
        return metadata

    async def get_keys(self) -> list[dict[str, Any]]:
        """Return the provider's public keys as JWKs, cached for up to an hour."""
        return (await self._keys.get()).keys

    def expire_keys(self) -> None:
        """Read the keys again when they are next needed, unless they were expired just before."""
        now = self._monotonic()
        if now >= self._next_key_refresh_at:
            self._next_key_refresh_at = now + _KEY_REFRESH_INTERVAL_S
            self._keys.invalidate()

    async def exchange_code(self, code: str, redirect_uri: str, verifier: str) -> str:
        """Exchange an authorization code for an ID token.

        Raises `UNAUTHORIZED` if the provider rejects the code, the redirect URI, the verifier or
        the client's credentials.
        """
        if not 0 < len(code) <= _CODE_CHARS_MAX:
            raise sign_in_error("code")
        metadata = await self.get_metadata()
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if _BASIC in metadata.token_endpoint_auth_methods_supported:
            headers["Authorization"] = self._make_basic_credentials()
        else:
            fields |= {"client_id": self.client_id, "client_secret": self._secret}
        with self._wait_without_slot():
            response = await self._request(
                "token", "POST", metadata.token_endpoint, headers, fields
            )
        if response.status in _REJECTION_STATUSES:
            raise sign_in_error("code")
        return _decode("token", response, _TokenResponse).id_token

    async def close(self) -> None:
        await self._http.close()

    @contextmanager
    def _wait_without_slot(self) -> Generator[None]:
        """Release the admission slot while waiting for the provider.

        Raises `SERVICE_UNAVAILABLE` if too many sign-ins are already waiting.
        """
        if self._waiters[self.issuer] >= _SIGN_INS_MAX:
            raise RefusedError(
                ErrorCode.SERVICE_UNAVAILABLE, "too many concurrent sign-ins", retry_after_s=1
            )
        release_slot()
        with self._waiters.count(self.issuer):
            yield

    def _make_basic_credentials(self) -> str:
        """Return the Authorization header, with form-encoded credentials (RFC 6749, 2.3.1)."""
        pair = f"{quote_plus(self.client_id)}:{quote_plus(self._secret)}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"

    async def _read_metadata(self, _: ProviderMetadata | None) -> ProviderMetadata:
        url = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
        response = await self._request("discovery", "GET", url, {})
        metadata = _decode("discovery", response, ProviderMetadata)
        if metadata.issuer != self.issuer:
            raise _log_provider_error("discovery", "its issuer differs from PAYINTENT_OIDC_ISSUER")
        endpoints = metadata.authorization_endpoint, metadata.token_endpoint, metadata.jwks_uri
        if not all(is_confidential(url) and "#" not in url for url in endpoints):
            detail = "an endpoint is not an https URL (or http on loopback), or contains a #"
            raise _log_provider_error("discovery", detail)
        if not {_BASIC, _POST} & set(metadata.token_endpoint_auth_methods_supported):
            raise _log_provider_error("discovery", "it does not support client secrets")
        return metadata

    async def _read_keys(self, _: _Keys) -> _Keys:
        metadata = await self.get_metadata()
        response = await self._request("keys", "GET", metadata.jwks_uri, {})
        return _Keys(_decode("keys", response, _Keys).keys[:_KEYS_MAX])

    async def _request(
        self,
        purpose: str,
        method: str,
        url: str,
        headers: Mapping[str, str],
        fields: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        response = await self._http.request(
            method,
            url,
            headers={"Accept": "application/json", **headers},
            body=urlencode(fields).encode() if fields else None,
        )
        if not isinstance(response, HttpResponse):
            raise _log_provider_error(purpose, response.detail)
        return response


def _decode(purpose: str, response: HttpResponse, kind: type[T]) -> T:
    if response.status != _OK:
        raise _log_provider_error(purpose, f"the {purpose} request returned HTTP {response.status}")
    try:
        return msgspec.json.decode(response.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _log_provider_error(purpose, f"the {purpose} response could not be decoded") from None


def _log_provider_error(purpose: str, detail: str) -> IdentityProviderError:
    FAILURES.labels(purpose).inc()
    _log.warning("identity_provider_failed", what=purpose, why=detail)
    return IdentityProviderError(detail)
