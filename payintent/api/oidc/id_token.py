"""ID tokens: the signature by a key of the provider, and every claim that must be ours."""

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from payintent.api.authentication_failures import UnauthorizedError
from payintent.api.oidc.provider import IdentityProvider
from payintent.domain import api_key

LEEWAY_S = 60  # that the provider's clock may differ from ours
_ALGORITHMS = {"RS256": "RSA", "ES256": "EC"}
_RSA_BITS_MIN = 2_048
_SUBJECT_MAX = 255
_TOKEN_CHARS_MAX = 64 * 1024
_MALFORMED = (JoseError, ValueError, TypeError, KeyError, AttributeError)
#: Headers that are not known to us are ignored, unless `crit` names them.
_REGISTRY = jws.JWSRegistry(algorithms=list(_ALGORITHMS), strict_check_header=False)


@dataclass(frozen=True, slots=True)
class IdToken:
    """Who signed in, by issuer and subject, with all claims that the provider made."""

    issuer: str
    subject: str
    claims: Mapping[str, Any]


async def check_id_token(
    provider: IdentityProvider, text: str, nonce: str, now: datetime
) -> IdToken:
    """Return what an ID token says; `UNAUTHORIZED` unless the provider made it for this sign-in.

    Signed by RS256 or ES256 with a key that the provider publishes, for us, by its issuer to the
    letter, for this nonce, and not expired (OpenID Connect Core 1.0, section 3.1.3.7).
    """
    claims = await _verified(provider, text)
    _check_audience(claims, provider.client_id)
    _check_times(claims, now.timestamp())
    subject = claims.get("sub")
    if claims.get("iss") != provider.issuer:
        raise _refused("issuer")
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
        raise _refused("nonce")
    if not isinstance(subject, str) or not _is_subject(subject):
        raise _refused("subject")
    return IdToken(provider.issuer, subject, claims)


async def _verified(provider: IdentityProvider, text: str) -> dict[str, Any]:
    """Verify a token's signature by the key that it names; returns its claims."""
    if len(text) > _TOKEN_CHARS_MAX:
        raise _refused("signature")
    try:
        header = jws.extract_compact(text.encode(), registry=_REGISTRY).protected
    except _MALFORMED:
        raise _refused("signature") from None
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
        raise _refused("algorithm")
    if kid is not None and not isinstance(kid, str):
        raise _refused("signature")
    key = _find_key(await provider.keys(kid), kid, algorithm)
    try:
        signed = jws.deserialize_compact(text, key, algorithms=[algorithm], registry=_REGISTRY)
        claims = msgspec.json.decode(signed.payload or b"")
    except _MALFORMED:
        raise _refused("signature") from None
    if not isinstance(claims, dict):
        raise _refused("signature")
    return cast("dict[str, Any]", claims)


def _find_key(keys: list[dict[str, Any]], kid: str | None, algorithm: str) -> RSAKey | ECKey:
    """Return the one key that may have signed; which type it is the key says, never the token."""
    fitting = [
        key
        for key in keys
        if key.get("kty") == _ALGORITHMS[algorithm]
        and key.get("crv", "P-256") == "P-256"
        and _verifies(key)
        and key.get("alg", algorithm) == algorithm
        and (kid is None or key.get("kid") == kid)
    ]
    if len(fitting) != 1:  # without an id it must be clear which one is meant
        raise _refused("key")
    public = {name: fitting[0].get(name) for name in ("kty", "n", "e", "crv", "x", "y")}
    given: Any = {name: value for name, value in public.items() if value is not None}
    try:
        if algorithm == "ES256":
            return ECKey.import_key(given)
        return _long_enough(given)
    except _MALFORMED:
        raise _refused("key") from None


def _long_enough(given: Any) -> RSAKey:
    """Import an RSA key by its length: zeros before its modulus make it no longer."""
    modulus = base64.urlsafe_b64decode(given["n"] + "==")
    if int.from_bytes(modulus).bit_length() < _RSA_BITS_MIN:
        raise ValueError("an RSA key below 2048 bits")
    return RSAKey.import_key(given)


def _verifies(key: Mapping[str, Any]) -> bool:
    """Tell whether a key is published for signatures: by `use`, and by `key_ops` (RFC 7517)."""
    operations = key.get("key_ops", ["verify"])
    listed = cast("list[object]", operations) if isinstance(operations, list) else []
    return key.get("use", "sig") == "sig" and "verify" in listed


def _check_audience(claims: Mapping[str, Any], client_id: str) -> None:
    """Refuse a token for others, and one for several that was not issued to us."""
    audience = claims.get("aud")
    listed = cast("list[object]", audience) if isinstance(audience, list) else [audience]
    party = claims.get("azp")
    if client_id not in listed or (party is None and len(listed) > 1):
        raise _refused("audience")
    if party is not None and party != client_id:
        raise _refused("audience")


def _check_times(claims: Mapping[str, Any], now_s: float) -> None:
    issued = _moment(claims.get("iat"))
    if _moment(claims.get("exp")) <= now_s - LEEWAY_S:
        raise _refused("expired")
    if max(issued, _moment(claims.get("nbf", issued))) > now_s + LEEWAY_S:
        raise _refused("time")


def _moment(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refused("time")
    return value


def _is_subject(subject: str) -> bool:
    return 0 < len(subject) <= _SUBJECT_MAX and subject.isascii() and subject.isprintable()


def _refused(reason: str) -> UnauthorizedError:
    return UnauthorizedError(api_key.OPERATOR, f"oidc_{reason}")
