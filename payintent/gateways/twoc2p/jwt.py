"""2C2P's JWTs, signed with a shared secret; `sealed.py` has the other message format."""

import base64
import binascii
import hashlib
import hmac
import re

import msgspec
from msgspec import Struct

_BASE64URL = re.compile(r"[0-9A-Za-z_-]*")
_HEADER = b'{"alg":"HS256","typ":"JWT"}'


class InvalidTokenError(Exception):
    """A token that is not signed by the other side, or cannot be read."""


class _Header(Struct, frozen=True):
    alg: str
    crit: object = None


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
