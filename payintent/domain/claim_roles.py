"""Map claims of an identity provider to roles: `payments-admins=admin`."""

from collections.abc import Mapping
from typing import cast

from payintent.domain.operator import Role

_VALUES_MAX = 1_000  # considered per claim


def parse_claim_roles(text: str) -> dict[str, Role]:
    """Parse `value=role,value=role`; raises `ValueError`."""
    roles: dict[str, Role] = {}
    entries = [item.strip() for item in text.split(",") if item.strip()]
    for number, item in enumerate(entries, start=1):
        value, _, role = (part.strip() for part in item.rpartition("="))
        if not value or role not in list(Role):
            raise ValueError(
                f"has an entry, number {number}, that is not like payments-admins=admin; "
                f"the roles are {', '.join(Role)}"
            )
        if value in roles:
            raise ValueError(f"has two roles for entry number {number}")
        roles[value] = Role(role)
    return roles


def role_of_claim(roles: Mapping[str, Role], claim: object) -> Role | None:
    """Return the highest role of a claim, which is a text or a list; None if it has no role."""
    values = cast("list[object]", claim)[:_VALUES_MAX] if isinstance(claim, list) else [claim]
    claimed_roles = {roles[value] for value in values if isinstance(value, str) and value in roles}
    return next((role for role in reversed(Role) if role in claimed_roles), None)
