"""Roles by what a provider of identities says of a person: `payments-admins=admin`."""

from collections.abc import Mapping
from typing import cast

from payintent.domain.operator import Role

_VALUES_MAX = 1_000  # of one claim that are looked at


def parse_claim_roles(text: str) -> dict[str, Role]:
    """Parse `value=role,value=role`; raises `ValueError`. Without an entry nobody gets a role."""
    roles: dict[str, Role] = {}
    entries = [item.strip() for item in text.split(",") if item.strip()]
    for number, item in enumerate(entries, start=1):
        given, _, role_given = item.rpartition("=")
        value, role = given.strip(), role_given.strip()
        if not value or role not in list(Role):
            raise ValueError(
                f"has an entry, number {number}, that is not as payments-admins=admin; roles are "
                f"{', '.join(Role)}"
            )
        if value in roles:
            raise ValueError(f"has two roles for the entry number {number}")
        roles[value] = Role(role)
    return roles


def role_of_claim(roles: Mapping[str, Role], claim: object) -> Role | None:
    """Return the highest role that a claim gives, a text or a list; None where it gives none."""
    given = cast("list[object]", claim)[:_VALUES_MAX] if isinstance(claim, list) else [claim]
    found = {roles[value] for value in given if isinstance(value, str) and value in roles}
    return next((role for role in reversed(Role) if role in found), None)
