"""The two message envelopes: JWTs signed with a merchant's secret, and JWE in JWS."""

import base64
import binascii
import json
import os

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

KEY_BITS = 256
IV_BYTES, TAG_BYTES = 12, 16
_SHA256 = hashes.SHA256()
_OAEP = OAEP(mgf=MGF1(hashes.SHA1()), algorithm=hashes.SHA1(), label=None)  # noqa: S303 - RFC 7518
_PSS = PSS(mgf=MGF1(_SHA256), salt_length=_SHA256.digest_size)


class InvalidEnvelopeError(Exception):
    """An envelope is not signed by the merchant, or is malformed."""


def sign(content: bytes, secret: str) -> str:
    """Sign JSON as a JWT with a merchant's secret."""
    key = OctKey.import_key(secret.encode())
    return jws.serialize_compact({"alg": "HS256", "typ": "JWT"}, content, key, ["HS256"])


def verify(token: str, secret: str) -> bytes:
    """Verify a JWT signed by a merchant, and return its JSON."""
    try:
        return jws.deserialize_compact(token, OctKey.import_key(secret.encode()), ["HS256"]).payload
    except (JoseError, ValueError):
        raise InvalidEnvelopeError("the hash value does not match") from None


def peek(token: str) -> bytes:
    """Return the JSON of an unverified JWT, for example to identify the merchant."""
    parts = token.split(".")
    return _decode(parts[1]) if len(parts) > 1 else b""


def seal(content: bytes, merchant_key: RSAPublicKey, own_key: RSAPrivateKey) -> str:
    """Encrypt for the merchant (RSA-OAEP, A256GCM), then sign (PS256)."""
    head = _json({"alg": "RSA-OAEP", "enc": "A256GCM"})
    content_key, iv = AESGCM.generate_key(KEY_BITS), os.urandom(IV_BYTES)
    sealed = AESGCM(content_key).encrypt(iv, content, head.encode())
    wrapped = merchant_key.encrypt(content_key, _OAEP)
    text, tag = sealed[:-TAG_BYTES], sealed[-TAG_BYTES:]
    inner = ".".join([head, *(_encode(part) for part in (wrapped, iv, text, tag))])
    signed = f"{_json({'alg': 'PS256', 'typ': 'JWT'})}.{_encode(inner.encode())}"
    return f"{signed}.{_encode(own_key.sign(signed.encode(), _PSS, _SHA256))}"


def unseal(token: str, merchant_key: RSAPublicKey, own_key: RSAPrivateKey) -> bytes:
    """Verify a merchant's signature, then decrypt."""
    try:
        head, payload, signature = token.split(".")
        merchant_key.verify(_decode(signature), f"{head}.{payload}".encode(), _PSS, _SHA256)
        _expect(head, alg="PS256")
        inner, wrapped, iv, text, tag = _decode(payload).decode().split(".")
        _expect(inner, alg="RSA-OAEP", enc="A256GCM")
        content_key = own_key.decrypt(_decode(wrapped), _OAEP)
        sealed = _decode(text) + _decode(tag)
        return AESGCM(content_key).decrypt(_decode(iv), sealed, inner.encode())
    except (ValueError, InvalidSignature, InvalidTag):
        raise InvalidEnvelopeError("unable to decrypt") from None


def _expect(head: str, **expected: str) -> None:
    header = json.loads(_decode(head))
    if any(header.get(name) != value for name, value in expected.items()):
        raise ValueError("unexpected algorithm")


def _json(header: dict[str, str]) -> str:
    return _encode(json.dumps(header, separators=(",", ":")).encode())


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (binascii.Error, UnicodeEncodeError):
        raise InvalidEnvelopeError("the text is not base64url") from None
