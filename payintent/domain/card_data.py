"""Card data in texts from gateways, masked before anything is stored."""

import re

_KEPT_FIRST, _KEPT_LAST = 6, 4  # digits of a card number that may be shown (PCI DSS 3.4.1)
_MASKED = b'"***"'
# Bounded repetitions, so that the time is linear in the text.
_NUMBER = re.compile(rb"(?<![0-9])[2-6](?:[ -]?[0-9]){12,18}(?![0-9])")
_NAMES = (
    rb"card_?token|customer_?token(?:_?expiry)?|card_?holder(?:_?name)?|cvv2?|cvc2?|security_?code"
    rb"|card_?expiry|expiry|exp_?(?:month|year)|fingerprint|client_?secret"
)
_JSON = re.compile(
    rb'("(?:' + _NAMES + rb')"\s{0,4}:\s{0,4})(?:"(?:[^"\\]|\\.){0,500}"|[0-9]{1,20})',
    re.IGNORECASE,
)
_FORM = re.compile(rb"((?:^|&)(?:" + _NAMES + rb")=)[^&]{1,500}", re.IGNORECASE)


def mask_card_data(text: bytes) -> bytes:
    """Mask card numbers except their ends, and the values of other card fields by name."""
    masked = _JSON.sub(rb"\1" + _MASKED, text)
    if b"=" in masked:
        masked = _FORM.sub(rb"\1***", masked)
    return _NUMBER.sub(_mask_number, masked)


def _mask_number(found: re.Match[bytes]) -> bytes:
    digits = bytes(byte for byte in found[0] if byte in b"0123456789")
    if not _has_check_digit(digits):
        return found[0]
    hidden = b"*" * (len(digits) - _KEPT_FIRST - _KEPT_LAST)
    return digits[:_KEPT_FIRST] + hidden + digits[-_KEPT_LAST:]


def _has_check_digit(digits: bytes) -> bool:
    """Tell whether the last digit is the check digit of ISO/IEC 7812 that every card number has."""
    total = 0
    for place, byte in enumerate(reversed(digits)):
        digit = byte - ord("0")
        total += digit if place % 2 == 0 else digit * 2 - 9 * (digit > 4)  # noqa: PLR2004
    return total % 10 == 0
