"""Verify webhooks: only signed (Standard Webhooks 1.0) and recent webhooks are valid."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from payintent_sdk.credentials import read_webhook_secret
from payintent_sdk.decoding import decode_event
from payintent_sdk.errors import (
    UnreadableAnswerError,
    WebhookBodyError,
    WebhookHeaderError,
    WebhookSignatureError,
    WebhookTimeError,
)
from payintent_sdk.events import Event

TOLERANCE_S = 300
_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secrets: str | Iterable[str],
    *,
    tolerance_s: float = TOLERANCE_S,
    now_s: float | None = None,
) -> Event:
    """Verify a webhook and return its event. Raises a `WebhookError` if it is invalid.

    `body` must be the raw bytes, not parsed and re-encoded JSON. `secrets` is the callback secret,
    or several secrets during a rotation. An event may be delivered more than once, with the same
    `id`; handle it only once.
    """
    if isinstance(body, str):
        raise TypeError("the body must be the raw bytes of the request")
    keys = [
        read_webhook_secret(secret)
        for secret in ([secrets] if isinstance(secrets, str) else secrets)
    ]
    lower = {name.lower(): value for name, value in headers.items()}
    message_id, sent, signatures = (
        _header(lower, name) for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
    )
    if not _SECONDS.fullmatch(sent):
        raise WebhookHeaderError("webhook-timestamp is not a number of seconds")
    signed = b".".join([message_id.encode(errors="surrogatepass"), sent.encode(), body])
    if not _is_signed(signed, signatures, keys):
        raise WebhookSignatureError("no signature matches any of the secrets")
    if abs((time.time() if now_s is None else now_s) - int(sent)) > tolerance_s:
        raise WebhookTimeError("webhook-timestamp differs too much from the current time")
    try:
        return replace(decode_event(json.loads(body)), id=message_id)
    except (ValueError, UnreadableAnswerError) as error:
        raise WebhookBodyError(str(error)) from error


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name)
    if not value:
        raise WebhookHeaderError(f"{name} is missing")
    return value


def _is_signed(signed: bytes, signatures: str, keys: Iterable[bytes]) -> bool:
    expected = [base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()) for key in keys]
    offered = [
        signature.encode(errors="surrogatepass")  # some frameworks decode any bytes
        for version, _, signature in (item.partition(",") for item in signatures.split(" "))
        if version == "v1"
    ]
    # Compare every pair, so that the duration does not reveal the matching pair.
    matches = [hmac.compare_digest(item, other) for item in expected for other in offered]
    return any(matches)
