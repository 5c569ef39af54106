"""Validation of API keys, webhook secrets and URLs.

Values from files and environment variables often end in a line feed or start with a byte order
mark. No error message contains a key or a secret, because messages end up in logs.
"""

from __future__ import annotations

import base64
import re

_SURROUNDING = " \t\r\n\v\f\u00a0\ufeff"
_API_KEY = re.compile(r"sk_[A-Za-z0-9._~+/=-]+", re.ASCII)
#: A key within a string, but not a bare `sk_test_` prefix, which error messages contain.
_KEY_IN_TEXT = re.compile(r"(?<!\w)sk_(?!(?:test|live)_(?!\w))[A-Za-z0-9._~+/=-]+", re.ASCII)
_SECRET = re.compile(r"(?:whsec_)?([A-Za-z0-9+/]+={0,2})", re.ASCII)
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
    return url


def read_webhook_secret(text: str) -> bytes:
    """Return the key of a webhook secret. Raises `ValueError` if the secret is invalid."""
    match = _SECRET.fullmatch(_strip(text, "a webhook secret"))
    if match is None or len(match[1]) % _GROUP:  # anyone could sign with an empty key
        raise ValueError("a webhook secret must be whsec_ followed by base64")
    return base64.b64decode(match[1])


def hide_keys(text: str) -> str:
    """Replace API keys in a response, because some error pages repeat the request's headers."""
    return _KEY_IN_TEXT.sub("sk_…", text)


def _strip(text: object, name: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str, not {type(text).__name__}")
    return text.strip(_SURROUNDING)
