"""E-mail that the service sends: its kinds, when it is tried again, and its addresses."""

from enum import StrEnum

#: How long mail waits that nothing sends, such as where no server is set any more.
KEPT_DAYS = 3
# Seconds before each attempt, from the attempt before: nine over two days.
_WAITS_S = (0, 60, 300, 900, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600, 24 * 3_600)
_ADDRESS_MAX = 254  # RFC 5321, section 4.5.3.1.3, without the brackets
_NAME_MAX = 64
#: What would end an address in a header or a command, or begin another one.
_FORBIDDEN = frozenset(' ,;:<>"()[]\\')


class MailKind(StrEnum):
    """What a mail is about."""

    INVITATION = "invitation"
    RECEIPT = "receipt"


def next_mail_wait_s(attempts_made: int) -> int | None:
    """Return the seconds until the next attempt; None after the last one."""
    return _WAITS_S[attempts_made] if attempts_made < len(_WAITS_S) else None


def is_mail_address(text: str) -> bool:
    """Tell whether a text is one plain address in ASCII, which no header can be smuggled into."""
    name, at, host = text.rpartition("@")
    is_plain = text.isascii() and text.isprintable() and not _FORBIDDEN.intersection(text)
    is_named = bool(at) and 0 < len(name) <= _NAME_MAX and "@" not in name
    labels = host.split(".")
    return is_plain and is_named and len(text) <= _ADDRESS_MAX and all(labels) and len(labels) > 1


def header_text(text: str, longest: int = 200) -> str:
    """Return a text for a header: on one line, without control characters, and cut."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(plain.split())[:longest]
