"""Validate text sent by callers: length, characters and e-mail addresses."""

import re

from payintent.core.errors import ErrorCode, RefusedError

_EMAIL_MAX = 320
_NO_ATOM = r"\x00-\x20\x7f-\xa0\u2028\u2029\"(),:;<>@\[\\\]"
#: An address in any script (RFC 6531): a local part, quoted or not, and a domain or an address
#: literal.
_EMAIL = re.compile(
    rf"(?:[^{_NO_ATOM}]+|\"(?:[^\x00-\x1f\x7f\"\\]|\\[^\x00-\x1f\x7f])+\")"
    rf"@(?:[^{_NO_ATOM}.]+(?:\.[^{_NO_ATOM}.]+)*|\[[^{_NO_ATOM}]+(?::[^{_NO_ATOM}]*)*\])"
)


def check_text(name: str, value: str | None, length_max: int) -> None:
    """Raise `BAD_REQUEST` if a text is empty, too long or cannot be stored."""
    if value is None:
        return
    if not 1 <= len(value) <= length_max:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"{name} must have 1 to {length_max} characters")
    if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise RefusedError(ErrorCode.BAD_REQUEST, f"{name} has characters that cannot be stored")


def check_email(value: str | None) -> None:
    """Raise `BAD_REQUEST` if a text is not an e-mail address."""
    if value is not None and (len(value) > _EMAIL_MAX or not _EMAIL.fullmatch(value)):
        raise RefusedError(ErrorCode.BAD_REQUEST, "payer_email must be an e-mail address")
