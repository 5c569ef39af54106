"""The encrypted and signed messages of 2C2P's maintenance API: JWE in JWS, with two key pairs."""

import base64
from dataclasses import dataclass, field
from functools import lru_cache

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_der_public_key,
    load_pem_private_key,
    load_pem_public_key,
)
from cryptography.x509 import load_der_x509_certificate, load_pem_x509_certificate
from joserfc import jwe, jws
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from payintent.gateways.twoc2p.messages import InvalidTokenError

CACHED_KEYS_MAX = 128  # cached, because parsing and checking a private key takes 20 ms

_JWE_HEADER = {"alg": "RSA-OAEP", "enc": "A256GCM"}
_JWS_HEADER = {"alg": "PS256", "typ": "JWT"}
_CERTIFICATE = b"-----BEGIN CERTIFICATE"


@dataclass(frozen=True, slots=True)
class TwoC2pKeys:
    """Our private key and the gateway's public key, as PEM or base64-encoded DER."""

    private_key: str = field(repr=False)
    gateway_key: str


def encrypt_and_sign(content: bytes, keys: TwoC2pKeys) -> str:
    """Encrypt for the gateway, then sign. Raises `ValueError` if the keys are invalid."""
    gateway_key = _parse_public_key(keys.gateway_key)
    private_key = _parse_private_key(keys.private_key)
    encrypted = jwe.encrypt_compact(
        dict(_JWE_HEADER), content, gateway_key, algorithms=list(_JWE_HEADER.values())
    )
    return jws.serialize_compact(
        dict(_JWS_HEADER), encrypted, private_key, algorithms=[_JWS_HEADER["alg"]]
    )


def verify_and_decrypt(token: str, keys: TwoC2pKeys) -> bytes:
    """Verify the gateway's signature, then decrypt.

    Raises `InvalidTokenError`, or `ValueError` if the keys are invalid.
    """
    gateway_key = _parse_public_key(keys.gateway_key)
    private_key = _parse_private_key(keys.private_key)
    try:
        signed_token = jws.deserialize_compact(token, gateway_key, algorithms=[_JWS_HEADER["alg"]])
        content = jwe.decrypt_compact(
            signed_token.payload, private_key, algorithms=list(_JWE_HEADER.values())
        )
    except (JoseError, ValueError, TypeError):
        raise InvalidTokenError("the signature or the encryption is invalid") from None
    if content.plaintext is None:
        raise InvalidTokenError("the token is empty")
    return content.plaintext


@lru_cache(maxsize=CACHED_KEYS_MAX)
def _parse_public_key(text: str) -> RSAKey:
    """Parse a public key or a certificate. 2C2P issues both."""
    content, is_pem = _key_bytes(text)
    if is_pem:
        is_certificate = content.startswith(_CERTIFICATE)
        parse_key, parse_certificate = load_pem_public_key, load_pem_x509_certificate
    else:
        is_certificate = _is_certificate(content)
        parse_key, parse_certificate = load_der_public_key, load_der_x509_certificate
    try:
        key = parse_certificate(content).public_key() if is_certificate else parse_key(content)
    except UnsupportedAlgorithm:
        raise ValueError("the gateway's key has an unsupported algorithm") from None
    if not isinstance(key, RSAPublicKey):
        raise ValueError("the gateway's key is not an RSA key")  # noqa: TRY004
    return RSAKey.import_key(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


@lru_cache(maxsize=CACHED_KEYS_MAX)
def _parse_private_key(text: str) -> RSAKey:
    content, is_pem = _key_bytes(text)
    try:
        key = (load_pem_private_key if is_pem else load_der_private_key)(content, None)
    except (TypeError, UnsupportedAlgorithm):
        raise ValueError("the merchant's private key is encrypted or not supported") from None
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("the merchant's private key is not an RSA key")  # noqa: TRY004
    return RSAKey.import_key(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _key_bytes(text: str) -> tuple[bytes, bool]:
    """Return a key's bytes, and whether they are PEM rather than DER.

    DER is base64-encoded, with or without line breaks. Raises `ValueError` for any other text.
    """
    content = text.strip().encode()
    if content.startswith(b"-----BEGIN"):
        return content, True
    return base64.b64decode(b"".join(content.split()), validate=True), False


def _is_certificate(content: bytes) -> bool:
    try:
        load_der_x509_certificate(content)
    except ValueError:
        return False
    return True
