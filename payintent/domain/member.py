"""Members: the people of a merchant, what they may do in the merchant portal, and for how long."""

from enum import StrEnum

#: How long a link that signs a member in works, and a session.
LINK_HOURS = 72
SESSION_HOURS = 12
EMAIL_MAX = 150  # so that a member's name in the audit log stays within its limit


class MemberRole(StrEnum):
    """What a member works on; neither role includes the other."""

    DEVELOPER = "developer"
    FINANCE = "finance"


class MemberRight(StrEnum):
    """What only some members may do. To look at payments and events is every member's."""

    REFUND = "refund"
    REPLAY = "replay"
    SEE_KEYS = "see_keys"
    REVOKE_KEYS = "revoke_keys"
    SEE_CALLS = "see_calls"
    SEE_STATEMENTS = "see_statements"


_RIGHTS = {
    MemberRole.DEVELOPER: frozenset(
        {
            MemberRight.REPLAY,
            MemberRight.SEE_KEYS,
            MemberRight.REVOKE_KEYS,
            MemberRight.SEE_CALLS,
        }
    ),
    MemberRole.FINANCE: frozenset(
        {MemberRight.REFUND, MemberRight.REPLAY, MemberRight.SEE_STATEMENTS}
    ),
}


def has_right(role: MemberRole, right: MemberRight) -> bool:
    return right in _RIGHTS[role]


def member_name(merchant_id: int, email: str) -> str:
    """Name a member in the audit log and in refunds; no operator's name begins so."""
    return f"merchant:{merchant_id}:{email}"


def is_email(text: str) -> bool:
    name, at, host = text.rpartition("@")
    is_short = len(text) <= EMAIL_MAX
    is_plain = text.isprintable() and not set(text) & set(' ,;<>"()[]\\')
    is_dotted = "." in host and not host.startswith(".") and not host.endswith(".")
    return bool(name and at and is_dotted and "@" not in name and is_short and is_plain)
