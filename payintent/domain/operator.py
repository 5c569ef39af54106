"""Operators: what each role may do."""

from enum import StrEnum

#: How long a proposal waits for another person.
PROPOSAL_HOURS = 24
#: How many days a token works unless said otherwise, and at most.
TOKEN_DAYS = 90
TOKEN_DAYS_MAX = 365
#: A terminal without a token may issue so many tokens on an empty installation.
FIRST_OPERATORS = 2


class Role(StrEnum):
    """Roles from the least to the most; each one may do what those before it may."""

    VIEWER = "viewer"
    SUPPORT = "support"
    FINANCE = "finance"
    ADMIN = "admin"

    def includes(self, role: "Role") -> bool:
        """Tell whether whoever has this role may do what needs `role`."""
        return _RANK[self] >= _RANK[role]


_RANK = {role: rank for rank, role in enumerate(Role)}
