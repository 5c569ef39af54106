"""Messages to 2C2P's payment API: JWTs that are signed with a shared secret.

The maintenance API uses the format in `sealed.py`.
"""

import base64
import binascii
import hashlib
import hmac
import re

import msgspec
from msgspec import Struct

from payintent.gateways.http_client import GatewayHttpClient, HttpResult, decode_json
from payintent.gateways.port import GatewayAccount
from payintent.gateways.twoc2p.messages import TwoC2pEnvelope

_BASE64URL = re.compile(r"[0-9A-Za-z_-]*")
_HEADER = b'{"alg":"HS256","typ":"JWT"}'
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


class InvalidTokenError(Exception):
    """A token is not signed by 2C2P or is malformed."""


class _Header(Struct, frozen=True):
    alg: str
    crit: object = None


async def post_jwt(
    http: GatewayHttpClient, account: GatewayAccount, name: str, content: bytes
) -> HttpResult:
    """Send a request of the payment API, signed with the account's secret key."""
    token = sign_jwt(content, account.credentials.get("secret_key", ""))
    url = f"{account.base_url.rstrip('/')}/payment/4.3/{name}"
    body = msgspec.json.encode({"payload": token})
    return await http.request("POST", url, headers=_HEADERS, body=body)


def open_envelope(body: bytes, secret: str) -> bytes | None:
    """Return the verified JSON of a message; None if the body is not signed at all.

    Raises `InvalidTokenError` if the signature is wrong.
    """
    envelope = decode_json(body, TwoC2pEnvelope)
    return None if envelope is None else verify_jwt(envelope.payload, secret)


def sign_jwt(content: bytes, secret: str) -> str:
    """Sign JSON as a JWT with HS256; the secret is used as text, even if it looks hexadecimal."""
    signed = f"{_encode(_HEADER)}.{_encode(content)}"
    return f"{signed}.{_mac(signed, secret)}"


def verify_jwt(token: str, secret: str) -> bytes:
    """Return the JSON of a JWT; raises `InvalidTokenError` unless it is HS256 with this secret."""
    if not secret:  # with an empty secret anyone could sign
        raise InvalidTokenError("the account has no secret key")
    signed, _, mac = token.rpartition(".")
    # Compared as text, because different base64 texts can encode the same bytes.
    if not hmac.compare_digest(_mac(signed, secret).encode(), mac.encode(errors="replace")):
        raise InvalidTokenError("the signature is not this account's")
    head, _, content = signed.partition(".")
    try:
        header = msgspec.json.decode(_decode(head), type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidTokenError("the header cannot be parsed") from None
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
