"""Members of a merchant in the merchant portal, and their rights."""

from enum import StrEnum

LINK_HOURS = 72  # until a sign-in link expires
SESSION_HOURS = 12
EMAIL_MAX = 150  # so that a member's name in the audit log stays within its limit


class MemberRole(StrEnum):
    """The role of a member; neither role includes all rights."""

    DEVELOPER = "developer"
    FINANCE = "finance"


class MemberRight(StrEnum):
    """A right that depends on the role. Every member may view payments and events."""

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
    """Return the member's name for the audit log and refunds; no operator name has this prefix."""
    return f"merchant:{merchant_id}:{email}"


def is_email(text: str) -> bool:
    local_part, at, host = text.rpartition("@")
    is_short = len(text) <= EMAIL_MAX
    is_plain = text.isprintable() and not set(text) & set(' ,;<>"()[]\\')
    is_dotted = "." in host and not host.startswith(".") and not host.endswith(".")
    return bool(local_part and at and is_dotted and "@" not in local_part and is_short and is_plain)
