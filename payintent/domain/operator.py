"""Operators: roles, and the limits of proposals and tokens."""

from enum import StrEnum

#: How long a proposal waits for a second operator.
PROPOSAL_HOURS = 24
#: How many days a token is valid by default, and at most.
TOKEN_DAYS = 90
TOKEN_DAYS_MAX = 365
#: How long a role that a provider of identities gave counts: a session, and a proposal made in it.
IDENTITY_HOURS = 12 + PROPOSAL_HOURS
#: How many tokens a terminal without a token may issue on an empty installation.
FIRST_OPERATORS = 2


class Role(StrEnum):
    """Roles in rising order; each may do what those before it may."""

    VIEWER = "viewer"
    SUPPORT = "support"
    FINANCE = "finance"
    ADMIN = "admin"

    def includes(self, role: "Role") -> bool:
        return _RANK[self] >= _RANK[role]


_RANK = {role: rank for rank, role in enumerate(Role)}
