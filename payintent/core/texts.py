"""Validate text from callers, format counts, and mask card data in gateway messages."""

import re

from payintent.core.errors import BadRequestError

_EMAIL_MAX = 320
_SPECIAL_CHARS = r"\x00-\x20\x7f-\xa0\u2028\u2029\"(),:;<>@\[\\\]"
#: An email address in any script (RFC 6531): a local part, quoted or not, and a domain or an
#: address literal.
_EMAIL = re.compile(
    rf"(?:[^{_SPECIAL_CHARS}]+|\"(?:[^\x00-\x1f\x7f\"\\]|\\[^\x00-\x1f\x7f])+\")"
    rf"@(?:[^{_SPECIAL_CHARS}.]+(?:\.[^{_SPECIAL_CHARS}.]+)*|\[[^{_SPECIAL_CHARS}]+(?::[^{_SPECIAL_CHARS}]*)*\])"
)


def check_text(name: str, value: str | None, length_max: int) -> None:
    """Raise `BAD_REQUEST` if a string is empty or too long, or cannot be stored."""
    if value is None:
        return
    if not 1 <= len(value) <= length_max:
        raise BadRequestError(f"{name} must have 1 to {length_max} characters")
    if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise BadRequestError(f"{name} contains characters that cannot be stored")


def check_email(value: str | None) -> None:
    """Raise `BAD_REQUEST` if a string is not an email address."""
    if value is not None and (len(value) > _EMAIL_MAX or not _EMAIL.fullmatch(value)):
        raise BadRequestError("payer_email must be an email address")


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Return `1 block` or `2 blocks`. The default plural ends in `s`."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


_VISIBLE_FIRST_DIGITS, _VISIBLE_LAST_DIGITS = 6, 4  # digits (PCI DSS 3.4.1)
_MASKED_VALUE = b'"***"'
# Repetitions are bounded, so that matching takes linear time.
_CARD_NUMBER = re.compile(rb"(?<![0-9])[2-6](?:[ -]?[0-9]){12,18}(?![0-9])")
_CARD_FIELDS = (
    rb"card_?token|customer_?token(?:_?expiry)?|card_?holder(?:_?name)?|cvv2?|cvc2?|security_?code"
    rb"|card_?expiry|expiry|exp_?(?:month|year)|fingerprint|client_?secret"
)
_JSON_FIELD = re.compile(
    rb'("(?:' + _CARD_FIELDS + rb')"\s{0,4}:\s{0,4})(?:"(?:[^"\\]|\\.){0,500}"|[0-9]{1,20})',
    re.IGNORECASE,
)
_FORM_FIELD = re.compile(rb"((?:^|&)(?:" + _CARD_FIELDS + rb")=)[^&]{1,500}", re.IGNORECASE)


def mask_card_data(text: bytes) -> bytes:
    """Mask the values of card fields, and all but the first and last digits of card numbers."""
    result = _JSON_FIELD.sub(rb"\1" + _MASKED_VALUE, text)
    if b"=" in result:
        result = _FORM_FIELD.sub(rb"\1***", result)
    return _CARD_NUMBER.sub(_mask_number, result)


def _mask_number(match: re.Match[bytes]) -> bytes:
    digits = bytes(byte for byte in match[0] if byte in b"0123456789")
    if not _is_valid_card_number(digits):
        return match[0]
    mask = b"*" * (len(digits) - _VISIBLE_FIRST_DIGITS - _VISIBLE_LAST_DIGITS)
    return digits[:_VISIBLE_FIRST_DIGITS] + mask + digits[-_VISIBLE_LAST_DIGITS:]


def _is_valid_card_number(digits: bytes) -> bool:
    """Return whether a card number's last digit is the correct check digit (ISO/IEC 7812)."""
    total = 0
    for index, byte in enumerate(reversed(digits)):
        digit = byte - ord("0")
        total += digit if index % 2 == 0 else digit * 2 - 9 * (digit > 4)  # noqa: PLR2004
    return total % 10 == 0
