"""Rate limits of merchants' requests."""

from dataclasses import dataclass
from enum import StrEnum


class RateLimitClass(StrEnum):
    CREATE = "create"
    READ = "read"


@dataclass(frozen=True, slots=True)
class RateLimit:
    per_s: int
    burst: int


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    remaining: int
    full_in_s: float
