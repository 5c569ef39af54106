"""Validation of API keys, webhook secrets, idempotency keys and URLs.

Values from files and environment variables often end in a line feed or start with a byte order
mark. No error message contains a key or a secret, because messages end up in logs.
"""

from __future__ import annotations

import base64
import re
import uuid

import httpx

_SURROUNDING = " \t\r\n\v\f\u00a0\ufeff"
_API_KEY = re.compile(r"sk_[A-Za-z0-9._~+/=-]+", re.ASCII)
#: A key within a string, but not a bare `sk_test_` prefix, which error messages contain.
_KEY_IN_TEXT = re.compile(r"(?<!\w)sk_(?!(?:test|live)_(?!\w))[A-Za-z0-9._~+/=-]+", re.ASCII)
#: A URL without a user name, which would replace the API key, and without a query or a fragment.
_BASE_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?", re.IGNORECASE)
_PORT_MAX = 65_535
_SECRET = re.compile(r"(?:whsec_)?([A-Za-z0-9+/]+={0,2})", re.ASCII)
_IDEMPOTENCY_KEY = re.compile(r"[!-~]+")  # the service checks that it is a UUID
_GROUP = 4  # characters per base64 group


def read_api_key(text: str) -> str:
    """Return an API key without surrounding whitespace. Raises `ValueError` if it is invalid."""
    key = _strip(text, "an API key")
    if not key.startswith("sk_"):
        raise ValueError("an API key must begin with sk_")
    if not _API_KEY.fullmatch(key):
        raise ValueError("the API key is empty after sk_, or contains an invalid character")
    return key


def read_base_url(text: str) -> str:
    """Return a base URL without surrounding whitespace. Raises `ValueError` if it is invalid."""
    url = _strip(text, "a base URL")
    if not url.lower().startswith(("https://", "http://")):
        raise ValueError("a base URL must begin with https:// or http://")
    if not _BASE_URL.fullmatch(url) or not _has_valid_host(url):
        raise ValueError("a base URL must be a URL such as https://pay.example.com")
    return url


def _has_valid_host(url: str) -> bool:
    try:
        port = httpx.URL(url).port
    except httpx.InvalidURL:
        return False
    return port is None or port <= _PORT_MAX


def read_webhook_secret(text: str) -> bytes:
    """Return the key of a webhook secret. Raises `ValueError` if the secret is invalid."""
    match = _SECRET.fullmatch(_strip(text, "a webhook secret"))
    if match is None or len(match[1]) % _GROUP:  # anyone could sign with an empty key
        raise ValueError("a webhook secret must be whsec_ followed by base64")
    return base64.b64decode(match[1])


def read_idempotency_key(key: str | None) -> str:
    """Return the key, or a new key if it is None. Raises `ValueError` if it cannot be sent."""
    if key is None:
        return str(uuid.uuid4())
    if not _IDEMPOTENCY_KEY.fullmatch(key):
        raise ValueError("an idempotency key must be a UUID")
    return key


def hide_keys(text: str) -> str:
    """Replace API keys in a response, because some error pages repeat the request's headers."""
    return _KEY_IN_TEXT.sub("sk_…", text)


def _strip(text: object, name: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str, not {type(text).__name__}")
    return text.strip(_SURROUNDING)
