"""Compute CheckMacValue from ECPay's encoding table, independently of the adapter."""

import hashlib
from collections.abc import Iterable

Pairs = Iterable[tuple[str, str]]

NAME = "CheckMacValue"
_PLAIN = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyz-_.!*()")


def compute(pairs: Pairs, hash_key: str, hash_iv: str) -> str:
    """Compute the value of a form's fields, in any order."""
    hashed = [pair for pair in pairs if pair[0] != NAME]
    hashed.sort(key=lambda pair: pair[0].casefold())
    parts = [("HashKey", hash_key), *hashed, ("HashIV", hash_iv)]
    text = "&".join("=".join(pair) for pair in parts)
    return hashlib.sha256(_table(text.encode()).encode("ascii")).hexdigest().upper()


def attach(fields: dict[str, str], hash_key: str, hash_iv: str) -> dict[str, str]:
    """Sign the fields of a response. The value is the last field, as in ECPay's responses."""
    return fields | {NAME: compute(fields.items(), hash_key, hash_iv)}


def fits(fields: dict[str, str], hash_key: str, hash_iv: str) -> bool:
    """Return whether a received form has the correct value."""
    return fields.get(NAME, "") == compute(fields.items(), hash_key, hash_iv)


def _table(raw: bytes) -> str:
    return "".join(_escaped(byte) for byte in raw)


def _escaped(byte: int) -> str:
    lower = byte + 32 if 65 <= byte <= 90 else byte  # noqa: PLR2004 - A to Z
    if lower in _PLAIN:
        return chr(lower)
    return "+" if byte == 32 else f"%{byte:02x}"  # noqa: PLR2004 - a space
