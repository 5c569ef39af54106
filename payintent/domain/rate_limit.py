"""Rate limits: how many requests a merchant may send, and where it stands."""

from dataclasses import dataclass
from enum import StrEnum


class RateLimitClass(StrEnum):
    """What is counted apart: creating payments, and everything else."""

    CREATE = "create"
    READ = "read"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """So many requests a second, and so many at once after a pause."""

    per_s: int
    burst: int


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """Where a merchant stands: what is left now, and the seconds until everything is."""

    remaining: int
    full_in_s: float
