"""E-mail that the service sends: its kinds, when it is tried again, and its addresses."""

import re
from enum import StrEnum

#: How long mail waits that nothing sends, such as where no server is set any more.
KEPT_DAYS = 3
# Seconds before each attempt, from the attempt before: nine over two days.
_WAITS_S = (0, 60, 300, 900, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600, 24 * 3_600)
_ADDRESS_MAX = 254  # RFC 5321, section 4.5.3.1.3, without the brackets
_NAME_MAX = 64
_HOST_MAX = 253
#: RFC 5322's dot-atom: the form that needs no quotes, and that every server takes.
_NAME = re.compile(r"[\w!#$%&'*+/=?^`{|}~-]+(?:\.[\w!#$%&'*+/=?^`{|}~-]+)*", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")  # RFC 1123, section 2.1


class MailKind(StrEnum):
    INVITATION = "invitation"
    RECEIPT = "receipt"


def next_mail_wait_s(attempts_made: int) -> int | None:
    """Return the seconds until the next attempt; None after the last one."""
    return _WAITS_S[attempts_made] if attempts_made < len(_WAITS_S) else None


def is_mail_address(text: str) -> bool:
    """Tell whether a text is one plain address in ASCII, which no header can be smuggled into."""
    name, _, host = text.rpartition("@")
    if len(text) > _ADDRESS_MAX or len(name) > _NAME_MAX or len(host) > _HOST_MAX:
        return False
    labels = host.split(".")
    is_host = len(labels) > 1 and all(_LABEL.fullmatch(label) for label in labels)
    return is_host and _NAME.fullmatch(name) is not None


def header_text(text: str, longest: int = 200) -> str:
    """Return a text for a header: on one line, without control characters, and cut."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(plain.split())[:longest]


def body_text(text: str) -> str:
    """Return a text that can be encoded: halves of surrogate pairs, from JSON, are replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
