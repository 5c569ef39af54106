"""Retry rules: a request is retried only if a second request is harmless."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from payintent_sdk.calls import Call
from payintent_sdk.credentials import hide_keys
from payintent_sdk.decoding import as_object
from payintent_sdk.errors import ApiError, UnreadableAnswerError, error_class

_RATE_LIMITED = 429
_BUSY = 409  # with Retry-After: a request with this key, or for this payment, is in progress
_AWAY = frozenset({502, 503})
_ERRORS_FROM = 300
_WORD_MAX = 200
_DOUBLINGS_MAX = 64  # 2**1024 is too large for a float


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Number of attempts, and delays between them in seconds."""

    tries: int = 4
    first_wait_s: float = 0.25  # doubled after each attempt; up to half is random
    wait_max_s: float = 8.0
    total_s: float = 60.0  # the last attempt starts at most this long after the first
    chance: Callable[[], float] = random.random

    def wait_s(self, tried: int, passed_s: float, retry_after_s: float | None) -> float | None:
        """Return the delay before the next attempt, or None if there is no next attempt."""
        if tried >= self.tries:
            return None
        doublings = min(tried - 1, _DOUBLINGS_MAX)
        backoff = min(self.wait_max_s, self.first_wait_s * 2**doublings)
        wait = max(backoff * (0.5 + self.chance() / 2), retry_after_s or 0.0)
        return wait if passed_s + wait <= self.total_s else None


def may_retry_answer(call: Call[Any], status: int, headers: Mapping[str, str]) -> bool:
    """Return whether the request may be sent again after this response."""
    if status == _RATE_LIMITED:
        return True  # the service did not process it
    if status == _BUSY:
        return call.can_repeat and "retry-after" in headers
    return status in _AWAY and call.can_repeat


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the value of Retry-After in seconds, or None if it is missing."""
    value = headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() else None


def read_answer(call: Call[Any], status: int, headers: Mapping[str, str], body: bytes) -> Any:
    """Decode a response. Raises an `ApiError` if it is an error."""
    try:
        decoded = json.loads(body)
    except ValueError:
        decoded = None
    if status < _ERRORS_FROM and decoded is not None:
        return call.read(decoded)
    refusal = as_object(decoded)
    code = refusal.get("code")
    if not isinstance(code, str):
        start = hide_keys(body.decode(errors="replace"))[:_WORD_MAX]
        raise UnreadableAnswerError(
            f"the response (HTTP {status}) is not from the service: {start!r}"
        )
    raise _error(status, code, hide_keys(str(refusal.get("message", ""))), headers)


def _error(status: int, code: str, message: str, headers: Mapping[str, str]) -> ApiError:
    kind = error_class(status, code)
    return kind(status, code, message, headers.get("x-request-id"), retry_after_s(headers))
