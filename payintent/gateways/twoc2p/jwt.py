"""2C2P's message formats: JWTs with a shared secret, and JWE in JWS with two key pairs."""

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import load_pem_x509_certificate
from joserfc import jwe, jws
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey
from msgspec import Struct

KEYS_MAX = 128  # parsed keys in memory: parsing and checking a private key takes 20 ms

_BASE64URL = re.compile(r"[0-9A-Za-z_-]*")
_HEADER = b'{"alg":"HS256","typ":"JWT"}'
_SEALING = {"alg": "RSA-OAEP", "enc": "A256GCM"}
_SIGNING = {"alg": "PS256", "typ": "JWT"}
_CERTIFICATE = "-----BEGIN CERTIFICATE"


class InvalidTokenError(Exception):
    """A token that is not signed by the other side, or cannot be read."""


class _Header(Struct, frozen=True):
    alg: str
    crit: object = None


@dataclass(frozen=True, slots=True)
class TwoC2pKeys:
    """Our private key and the gateway's public one, each PEM."""

    private_key: str = field(repr=False)
    gateway_key: str


def sign_jwt(content: bytes, secret: str) -> str:
    """Sign JSON as a JWT, HS256; the secret is text, also where it looks like hexadecimal."""
    signed = f"{_encode(_HEADER)}.{_encode(content)}"
    return f"{signed}.{_mac(signed, secret)}"


def verify_jwt(token: str, secret: str) -> bytes:
    """Return the JSON of a JWT; raises `InvalidTokenError` unless it is HS256 with this secret."""
    if not secret:  # with an empty secret anyone could sign
        raise InvalidTokenError("the account has no secret key")
    signed, _, mac = token.rpartition(".")
    # As text, not as bytes: base64 has several spellings of the same bytes.
    if not hmac.compare_digest(_mac(signed, secret).encode(), mac.encode(errors="replace")):
        raise InvalidTokenError("the signature is not this account's")
    head, _, content = signed.partition(".")
    try:
        header = msgspec.json.decode(_decode(head), type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidTokenError("the header cannot be read") from None
    if header.alg != "HS256" or header.crit is not None:
        raise InvalidTokenError("the algorithm is not HS256")
    return _decode(content)


def encrypt_and_sign(content: bytes, keys: TwoC2pKeys) -> str:
    """Encrypt for the gateway, then sign; ValueError where the keys cannot be read."""
    sealed = jwe.encrypt_compact(
        dict(_SEALING), content, _public(keys.gateway_key), algorithms=list(_SEALING.values())
    )
    return jws.serialize_compact(
        dict(_SIGNING), sealed, _private(keys.private_key), algorithms=[_SIGNING["alg"]]
    )


def verify_and_decrypt(token: str, keys: TwoC2pKeys) -> bytes:
    """Verify the gateway's signature, then decrypt; raises `InvalidTokenError` for anything else.

    ValueError where the keys cannot be read.
    """
    gateway_key, private_key = _public(keys.gateway_key), _private(keys.private_key)
    try:
        signed = jws.deserialize_compact(token, gateway_key, algorithms=[_SIGNING["alg"]])
        content = jwe.decrypt_compact(
            signed.payload, private_key, algorithms=list(_SEALING.values())
        )
    except (JoseError, ValueError, TypeError):
        raise InvalidTokenError("the token is not the gateway's, or not for us") from None
    if content.plaintext is None:
        raise InvalidTokenError("the token is empty")
    return content.plaintext


@lru_cache(maxsize=KEYS_MAX)
def _public(pem: str) -> RSAKey:
    """Parse a public key, or the certificate that holds one: the portal issues either."""
    if pem.lstrip().startswith(_CERTIFICATE):
        key = load_pem_x509_certificate(pem.encode()).public_key()
        pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    return RSAKey.import_key(pem)


@lru_cache(maxsize=KEYS_MAX)
def _private(pem: str) -> RSAKey:
    key = RSAKey.import_key(pem)
    if not key.is_private:
        raise ValueError("the merchant's key is not a private one")
    return key


def _mac(signed: str, secret: str) -> str:
    content = signed.encode(errors="replace")
    return _encode(hmac.new(secret.encode(), content, hashlib.sha256).digest())


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    if not _BASE64URL.fullmatch(text):
        raise InvalidTokenError("the token is not base64url")
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise InvalidTokenError("the token is not base64url") from None
