"""Verify the signatures and claims of ID tokens."""

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

from payintent.console.oidc.provider import IdentityProvider, sign_in_error
from payintent.http.address_limits import UnauthorizedError

LEEWAY_S = 60  # tolerated clock difference
_ALGORITHMS = {"RS256": "RSA", "ES256": "EC"}
_RSA_BITS_MIN = 2_048
_SUBJECT_MAX = 255
_TOKEN_CHARS_MAX = 64 * 1024
_PARSE_ERRORS = (JoseError, ValueError, TypeError, KeyError, AttributeError)
#: Ignores unknown headers unless they are listed in `crit`.
_REGISTRY = jws.JWSRegistry(algorithms=list(_ALGORITHMS), strict_check_header=False)


@dataclass(frozen=True, slots=True)
class IdToken:
    """The verified claims about a person, who is identified by issuer and subject."""

    issuer: str
    subject: str
    claims: Mapping[str, Any]


async def check_id_token(
    provider: IdentityProvider, text: str, nonce: str, now: datetime
) -> IdToken:
    """Verify an ID token (OpenID Connect Core 1.0, section 3.1.3.7).

    It must be signed with RS256 or ES256 by one of the provider's published keys, be issued to us
    by exactly this issuer, contain the nonce, and not be expired. Raises `UNAUTHORIZED` otherwise.
    """
    claims = await _verify_signature(provider, text)
    _check_audience(claims, provider.client_id)
    _check_times(claims, now.timestamp())
    subject = claims.get("sub")
    if claims.get("iss") != provider.issuer:
        raise sign_in_error("issuer")
    claim = claims.get("nonce")
    if not isinstance(claim, str) or not hmac.compare_digest(claim.encode(), nonce.encode()):
        raise sign_in_error("nonce")
    if not isinstance(subject, str) or not _is_subject(subject):
        raise sign_in_error("subject")
    return IdToken(provider.issuer, subject, claims)


async def _verify_signature(provider: IdentityProvider, text: str) -> dict[str, Any]:
    """Verify the signature and return the claims. A provider may have rotated its keys."""
    try:
        return _verify_with(await provider.get_keys(), text)
    except UnauthorizedError:
        provider.expire_keys()
        return _verify_with(await provider.get_keys(), text)


def _verify_with(keys: list[dict[str, Any]], text: str) -> dict[str, Any]:
    algorithm, kid = _read_header(text)
    key = _find_key(keys, kid, algorithm)
    try:
        message = jws.deserialize_compact(text, key, algorithms=[algorithm], registry=_REGISTRY)
        claims = msgspec.json.decode(message.payload or b"")
    except _PARSE_ERRORS:
        raise sign_in_error("signature") from None
    if not isinstance(claims, dict):
        raise sign_in_error("signature")
    return cast("dict[str, Any]", claims)


def _read_header(text: str) -> tuple[str, str | None]:
    """Return the algorithm, and the key's id if the token has one."""
    if len(text) > _TOKEN_CHARS_MAX:
        raise sign_in_error("signature")
    try:
        header = jws.extract_compact(text.encode(), registry=_REGISTRY).protected
    except _PARSE_ERRORS:
        raise sign_in_error("signature") from None
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
        raise sign_in_error("algorithm")
    if kid is not None and not isinstance(kid, str):
        raise sign_in_error("signature")
    return algorithm, kid


def _find_key(keys: list[dict[str, Any]], kid: str | None, algorithm: str) -> RSAKey | ECKey:
    """Return the key for verifying the signature.

    Its key type must match the algorithm, so that a token cannot choose how a key is used.
    """
    candidates = [
        key
        for key in keys
        if key.get("kty") == _ALGORITHMS[algorithm]
        and key.get("crv", "P-256") == "P-256"
        and _is_for_signatures(key)
        and key.get("alg", algorithm) == algorithm
        and (kid is None or key.get("kid") == kid)
    ]
    if len(candidates) != 1:  # without a key id, exactly one key must match
        raise sign_in_error("key")
    parameters = {name: candidates[0].get(name) for name in ("kty", "n", "e", "crv", "x", "y")}
    jwk: Any = {name: value for name, value in parameters.items() if value is not None}
    try:
        if algorithm == "ES256":
            return ECKey.import_key(jwk)
        return _import_rsa(jwk)
    except _PARSE_ERRORS:
        raise sign_in_error("key") from None


def _import_rsa(jwk: Any) -> RSAKey:
    """Import an RSA key of at least 2048 bits, not counting leading zeros of the modulus."""
    modulus = base64.urlsafe_b64decode(jwk["n"] + "==")
    if int.from_bytes(modulus).bit_length() < _RSA_BITS_MIN:
        raise ValueError("an RSA key must have at least 2048 bits")
    return RSAKey.import_key(jwk)


def _is_for_signatures(key: Mapping[str, Any]) -> bool:
    """Return whether `use` and `key_ops` (RFC 7517) permit signature verification."""
    operations = key.get("key_ops", ["verify"])
    values = cast("list[object]", operations) if isinstance(operations, list) else []
    return key.get("use", "sig") == "sig" and "verify" in values


def _check_audience(claims: Mapping[str, Any], client_id: str) -> None:
    """Reject a token for another client, or for several clients unless `azp` is our id."""
    audience = claims.get("aud")
    clients = cast("list[object]", audience) if isinstance(audience, list) else [audience]
    party = claims.get("azp")
    if client_id not in clients or (party is None and len(clients) > 1):
        raise sign_in_error("audience")
    if party is not None and party != client_id:
        raise sign_in_error("audience")


def _check_times(claims: Mapping[str, Any], now_s: float) -> None:
    issued_at = _read_time(claims.get("iat"))
    if _read_time(claims.get("exp")) <= now_s - LEEWAY_S:
        raise sign_in_error("expired")
    if max(issued_at, _read_time(claims.get("nbf", issued_at))) > now_s + LEEWAY_S:
        raise sign_in_error("time")


def _read_time(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise sign_in_error("time")
    return value


def _is_subject(subject: str) -> bool:
    return 0 < len(subject) <= _SUBJECT_MAX and subject.isascii() and subject.isprintable()
