"""The kinds of mail that the service sends, its retry schedule, and its addresses."""

import re
from enum import StrEnum

#: Unsent mail is deleted after this time, such as if no server is configured any more.
KEPT_DAYS = 3
# Seconds between attempts: nine attempts over two days.
_DELAYS_S = (0, 60, 300, 900, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600, 24 * 3_600)
_ADDRESS_MAX = 254  # RFC 5321, section 4.5.3.1.3, without the brackets
_NAME_MAX = 64
_HOST_MAX = 253
#: RFC 5322's dot-atom: the form without quotes, which every server accepts.
_NAME = re.compile(r"[\w!#$%&'*+/=?^`{|}~-]+(?:\.[\w!#$%&'*+/=?^`{|}~-]+)*", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")  # RFC 1123, section 2.1


class MailKind(StrEnum):
    INVITATION = "invitation"
    RECEIPT = "receipt"


def next_mail_wait_s(attempts_made: int) -> int | None:
    """Return the seconds until the next attempt, or None after the last attempt."""
    return _DELAYS_S[attempts_made] if attempts_made < len(_DELAYS_S) else None


def is_mail_address(text: str) -> bool:
    """Return whether a text is a plain ASCII address, which cannot inject a header."""
    name, _, host = text.rpartition("@")
    if len(text) > _ADDRESS_MAX or len(name) > _NAME_MAX or len(host) > _HOST_MAX:
        return False
    labels = host.split(".")
    is_host = len(labels) > 1 and all(_LABEL.fullmatch(label) for label in labels)
    return is_host and _NAME.fullmatch(name) is not None


def header_text(text: str, length_max: int = 200) -> str:
    """Return a text for a header: a single line without control characters, truncated."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(plain.split())[:length_max]


def body_text(text: str) -> str:
    """Return an encodable text: lone surrogates, which JSON allows, are replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
