"""Roles of operators, and limits of proposals and tokens."""

from enum import StrEnum

PROPOSAL_HOURS = 24  # until a proposal expires
TOKEN_DAYS = 90  # default validity
TOKEN_DAYS_MAX = 365
#: Validity of a role from an identity provider: a session, and a proposal made at its end.
IDENTITY_HOURS = 12 + PROPOSAL_HOURS
#: Tokens that a terminal without a token may issue on an empty installation.
FIRST_OPERATORS = 2


class Role(StrEnum):
    """Roles in ascending order; each includes the rights of the previous roles."""

    VIEWER = "viewer"
    SUPPORT = "support"
    FINANCE = "finance"
    ADMIN = "admin"

    def includes(self, role: "Role") -> bool:
        return _RANK[self] >= _RANK[role]


_RANK = {role: rank for rank, role in enumerate(Role)}
