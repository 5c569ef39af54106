"""Signatures in the format of the service: Standard Webhooks v1."""

from __future__ import annotations

import base64
import hmac
import secrets

from payintent_sdk.credentials import read_webhook_secret

from payintent_cli.usage import UsageError

_PREFIX = "whsec_"
_KEY_BYTES = 32


def new_secret() -> str:
    """Generate a secret in the format that merchants receive."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


def read_secret(text: str) -> bytes:
    """Return the key of a secret. Raises `UsageError` if the secret is invalid."""
    try:
        return read_webhook_secret(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def signed_headers(key: bytes, webhook_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """Return the headers of a webhook with this body."""
    signed = f"{webhook_id}.{timestamp_s}.".encode() + body
    signature = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    return {
        "Content-Type": "application/json",
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": f"v1,{signature}",
    }
