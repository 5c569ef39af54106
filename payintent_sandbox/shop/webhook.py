"""Verification of webhooks (Standard Webhooks v1), with the standard library only."""

import base64
import hmac
from collections.abc import Mapping

TOLERANCE_S = 300
_EPOCH_DIGITS_MAX = 12


def read_secret(text: str) -> bytes:
    """Decode the key of a `whsec_…` text; ValueError if it is none."""
    prefix, _, encoded = text.partition("_")
    if prefix != "whsec" or not encoded:
        raise ValueError("a callback secret starts with whsec_")
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        # Without its cause, which would put the secret into a log.
        raise ValueError("a callback secret is base64 behind its prefix") from None


def verify(key: bytes, headers: Mapping[str, str], body: bytes, now_s: float) -> bool:
    """Return whether a webhook was signed with our key, over exactly these bytes, just now."""
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
