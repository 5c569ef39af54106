"""Standard Webhooks v1 signatures: HMAC-SHA256 over `id.timestamp.body`."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence

SECRET_PREFIX = "whsec_"  # noqa: S105 - the public prefix of every secret
SECRET_BYTES = 32  # of a new secret
SECRET_BYTES_MIN = 24
SECRET_BYTES_MAX = 64
SIGNATURES_MAX = 3  # per delivery, while secrets rotate


def sign(keys: Sequence[bytes], webhook_id: str, timestamp_s: int, body: bytes) -> str:
    """Return the `webhook-signature` header: `v1,<base64>` for the three newest keys.

    `keys` are sorted from new to old. The id must not contain a dot, which would make the signed
    text ambiguous.
    """
    if not keys or not webhook_id or "." in webhook_id:
        raise ValueError("a signature needs a key, and a webhook id without a dot")
    text = b"%s.%d.%s" % (webhook_id.encode(), timestamp_s, body)
    digests = (hmac.digest(key, text, hashlib.sha256) for key in keys[:SIGNATURES_MAX])
    return " ".join("v1," + base64.b64encode(digest).decode() for digest in digests)


def new_key() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def encode_secret(key: bytes) -> str:
    """Encode a key in the form that merchants get, `whsec_…`."""
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise ValueError(f"a webhook secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes")
    return SECRET_PREFIX + base64.b64encode(key).decode()
