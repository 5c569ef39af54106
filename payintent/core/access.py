"""Operator roles, the API key format, and the lifetimes of proposals and tokens."""

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from payintent.core.ids import to_base62

PROPOSAL_HOURS = 24  # lifetime of a proposal
TOKEN_DAYS = 90  # default validity of a token
TOKEN_DAYS_MAX = 365
#: Validity of a role from an identity provider: the lifetime of a session, plus the lifetime of a
#: proposal that is made just before the session expires.
IDENTITY_HOURS = 12 + PROPOSAL_HOURS
#: Number of tokens that a new installation can issue without authentication.
FIRST_OPERATORS = 2


class Role(StrEnum):
    """Operator roles in ascending order; each role includes the rights of all lower roles."""

    VIEWER = "viewer"
    SUPPORT = "support"
    FINANCE = "finance"
    ADMIN = "admin"

    def includes(self, role: "Role") -> bool:
        return _RANK[self] >= _RANK[role]


_RANK = {role: rank for rank, role in enumerate(Role)}


_VALUES_MAX = 1_000  # values considered per claim


def parse_claim_roles(text: str) -> dict[str, Role]:
    """Parse `value=role,value=role`; raise `ValueError` if the text is invalid."""
    roles: dict[str, Role] = {}
    entries = [item.strip() for item in text.split(",") if item.strip()]
    for number, item in enumerate(entries, start=1):
        value, _, role = (part.strip() for part in item.rpartition("="))
        if not value or role not in list(Role):
            raise ValueError(
                f"contains an invalid entry (number {number}); write it like "
                f"payments-admins=admin, with one of the roles {', '.join(Role)}"
            )
        if value in roles:
            raise ValueError(f"contains a value with two roles (number {number})")
        roles[value] = Role(role)
    return roles


def find_highest_role(roles: Mapping[str, Role], claim: object) -> Role | None:
    """Return the highest role in a claim (a string or a list); None if there is no role."""
    values = cast("list[object]", claim)[:_VALUES_MAX] if isinstance(claim, list) else [claim]
    claimed_roles = {roles[value] for value in values if isinstance(value, str) and value in roles}
    return next((role for role in reversed(Role) if role in claimed_roles), None)


#: Prefixes of API keys and operator tokens.
MERCHANT = "sk_live"
MERCHANT_TEST = "sk_test"  # test mode
OPERATOR = "op"
PUBLIC_CHARS = 8
MARK_CHARS = 2  # at the start of the public part; see the setting `key_mark`
SECRET_CHARS = 43  # 256 bits
_CHECKSUM_CHARS = 6
_KEY = re.compile(r"(([a-z_]+)_([0-9A-Za-z]{8})_[0-9A-Za-z]{43})([0-9A-Za-z]{6})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ApiKeyText:
    public_id: str  # identifies the stored key
    text: str  # must match the stored digest


def get_merchant_prefix(livemode: bool) -> str:
    return MERCHANT if livemode else MERCHANT_TEST


def make_api_key(prefix: str, public_id: str, secret: str) -> ApiKeyText:
    body = f"{prefix}_{public_id}_{secret}"
    return ApiKeyText(public_id, body + _compute_checksum(body))


def parse_api_key(prefix: str, text: str) -> ApiKeyText | None:
    """Parse a key; return None if it is malformed.

    The checksum detects typos without a database query.
    """
    match = _KEY.fullmatch(text)
    if match is None or match[2] != prefix or _compute_checksum(match[1]) != match[4]:
        return None
    return ApiKeyText(match[3], text)


def _compute_checksum(body: str) -> str:
    return to_base62(zlib.crc32(body.encode()), _CHECKSUM_CHARS)


class RateLimitClass(StrEnum):
    CREATE = "create"
    READ = "read"


@dataclass(frozen=True, slots=True)
class RateLimit:
    per_s: float
    burst: int


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    remaining: int  # requests
    full_in_s: float  # until `remaining` equals the burst again
