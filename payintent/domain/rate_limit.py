"""Rate limits: how many requests a merchant may send, and how many are left."""

from dataclasses import dataclass
from enum import StrEnum


class RateLimitClass(StrEnum):
    """What is counted apart: creating payments, and all other requests."""

    CREATE = "create"
    READ = "read"


@dataclass(frozen=True, slots=True)
class RateLimit:
    per_s: int
    burst: int


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """What is left of a limit now, and the seconds until it is full again."""

    remaining: int
    full_in_s: float
