"""2C2P's sealed messages, JWE in JWS with two key pairs; `refunds.py` alone sends them."""

from dataclasses import dataclass, field
from functools import lru_cache

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import load_pem_x509_certificate
from joserfc import jwe, jws
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from payintent.gateways.twoc2p.jwt import InvalidTokenError

KEYS_MAX = 128  # parsed keys in memory: parsing and checking a private key takes 20 ms

_SEALING = {"alg": "RSA-OAEP", "enc": "A256GCM"}
_SIGNING = {"alg": "PS256", "typ": "JWT"}
_CERTIFICATE = "-----BEGIN CERTIFICATE"


@dataclass(frozen=True, slots=True)
class TwoC2pKeys:
    """Our private key and the gateway's public one, each PEM."""

    private_key: str = field(repr=False)
    gateway_key: str


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
