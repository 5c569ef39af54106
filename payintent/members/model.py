"""The roles and rights of merchant portal members."""

from enum import StrEnum

LINK_HOURS = 72  # how long a sign-in link is valid
SESSION_HOURS = 12
EMAIL_CHARS_MAX = 150  # so that member names fit into the audit log


class MemberRole(StrEnum):
    """A member's role. Neither role includes all rights of the other role."""

    DEVELOPER = "developer"
    FINANCE = "finance"


class MemberRight(StrEnum):
    """A right that depends on the role. All members may view payments and events."""

    REFUND = "refund"
    REPLAY = "replay"
    SEE_KEYS = "see_keys"
    REVOKE_KEYS = "revoke_keys"
    SEE_CALLS = "see_calls"
    MANAGE_TEST = "manage_test"  # the settings and keys of the test side
    SEE_STATEMENTS = "see_statements"
    MANAGE_PAYMENT_LINKS = "manage_payment_links"


_RIGHTS = {
    MemberRole.DEVELOPER: frozenset(
        {
            MemberRight.REPLAY,
            MemberRight.SEE_KEYS,
            MemberRight.REVOKE_KEYS,
            MemberRight.SEE_CALLS,
            MemberRight.MANAGE_TEST,
            MemberRight.MANAGE_PAYMENT_LINKS,
        }
    ),
    MemberRole.FINANCE: frozenset(
        {
            MemberRight.REFUND,
            MemberRight.REPLAY,
            MemberRight.SEE_STATEMENTS,
            MemberRight.MANAGE_PAYMENT_LINKS,
        }
    ),
}


def has_right(role: MemberRole, right: MemberRight) -> bool:
    return right in _RIGHTS[role]


def member_name(merchant_id: int, email: str) -> str:
    """Return a member's name for the audit log and refunds. Operator names have other prefixes."""
    return f"merchant:{merchant_id}:{email}"


def is_email(text: str) -> bool:
    local_part, separator, host = text.rpartition("@")
    is_short = len(text) <= EMAIL_CHARS_MAX
    has_plain_chars = text.isprintable() and not set(text) & set(' ,;<>"()[]\\')
    is_host_dotted = "." in host and not host.startswith(".") and not host.endswith(".")
    return bool(
        local_part
        and separator
        and is_host_dotted
        and "@" not in local_part
        and is_short
        and has_plain_chars
    )
