"""Verify webhooks (Standard Webhooks v1) with only the standard library."""

import base64
import hmac
from collections.abc import Mapping

TOLERANCE_S = 300
_EPOCH_DIGITS_MAX = 12


def read_secret(text: str) -> bytes:
    """Decode the key in a `whsec_…` secret. Raises ValueError if the secret is malformed."""
    prefix, _, encoded = text.partition("_")
    if prefix != "whsec" or not encoded:
        raise ValueError("a callback secret must start with whsec_")
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        # The cause is omitted, because it can contain the secret, which must not be logged.
        raise ValueError("a callback secret must be base64 after its prefix") from None


def verify(key: bytes, headers: Mapping[str, str], body: bytes, now_s: float) -> bool:
    """Return whether a webhook was signed recently with our key, over exactly these bytes."""
    webhook_id = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    if not (timestamp.isdecimal() and len(timestamp) <= _EPOCH_DIGITS_MAX):
        return False
    if not webhook_id or abs(now_s - int(timestamp)) > TOLERANCE_S:
        return False
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    expected = b"v1," + base64.b64encode(hmac.digest(key, signed, "sha256"))
    # During a secret rotation there are several signatures; a single valid signature is enough.
    signatures = headers.get("webhook-signature", "").encode().split(b" ")
    return any(hmac.compare_digest(expected, signature) for signature in signatures)
