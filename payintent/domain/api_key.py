"""API keys: a prefix, 8 public characters, `_`, 43 secret characters, 6 checksum characters.

The first two public characters of a merchant's key are the mark of its installation, which a proxy
in front of several installations uses for routing. Older keys have two arbitrary characters.
"""

import re
import zlib
from dataclasses import dataclass

from payintent.domain.ids import to_base62

MERCHANT = "sk_live"
MERCHANT_TEST = "sk_test"  # a merchant's test side
OPERATOR = "op"
PUBLIC_CHARS = 8
MARK_CHARS = 2
SECRET_CHARS = 43  # 256 bits
_CHECKSUM_CHARS = 6
_KEY = re.compile(r"(([a-z_]+)_([0-9A-Za-z]{8})_[0-9A-Za-z]{43})([0-9A-Za-z]{6})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ApiKeyText:
    public_id: str  # identifies the stored key
    text: str  # must match the stored digest


def merchant_prefix(livemode: bool) -> str:
    return MERCHANT if livemode else MERCHANT_TEST


def make_api_key(prefix: str, public_id: str, secret: str) -> ApiKeyText:
    body = f"{prefix}_{public_id}_{secret}"
    return ApiKeyText(public_id, body + _checksum(body))


def parse_api_key(prefix: str, text: str) -> ApiKeyText | None:
    """Parse a key; returns None if it is malformed, so that a typo does not need a query."""
    match = _KEY.fullmatch(text)
    if match is None or match[2] != prefix or _checksum(match[1]) != match[4]:
        return None
    return ApiKeyText(match[3], text)


def _checksum(body: str) -> str:
    return to_base62(zlib.crc32(body.encode()), _CHECKSUM_CHARS)
