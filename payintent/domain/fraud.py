"""Fraud screening: the operator's rules, and what one of them denies (spec section 7.4)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address, ip_network


class RuleKind(StrEnum):
    """What a rule looks at: four lists, and two counts within a time."""

    COUNTRY = "COUNTRY"
    PAYER = "PAYER"
    EMAIL = "EMAIL"
    ADDRESS = "ADDRESS"
    PAYER_VELOCITY = "PAYER_VELOCITY"
    ADDRESS_VELOCITY = "ADDRESS_VELOCITY"


VELOCITIES = frozenset({RuleKind.PAYER_VELOCITY, RuleKind.ADDRESS_VELOCITY})


class RiskLevel(StrEnum):
    """How grave the operator holds a rule to be."""

    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"
    CRITICAL = "CRITICAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class FraudRule:
    """One rule: a listed value, or at most `count_max` within `window_s` seconds."""

    id: int
    kind: RuleKind
    merchant_id: int | None  # None: every merchant
    value: str | None
    count_max: int | None
    window_s: int | None
    code: str
    level: RiskLevel
    score: int  # 0 to 100; the highest one decides


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is known of a buyer at one moment; `None` matches no list."""

    merchant_id: int
    payer_uid: str
    email: str | None = None
    country: str | None = None
    address: str | None = None
    counts: Mapping[int, int] = field(default_factory=dict[int, int])  # by id of a velocity rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """What the caller is told instead of a payment, a view or a quote."""

    rule_id: int
    code: str
    level: RiskLevel
    score: int
    rule: str


class Denied(Exception):  # noqa: N818 - no error: the answer is a 200 with `fds` alone
    """Fraud screening denies this request."""

    def __init__(self, denial: Denial, *, replayed: bool = False) -> None:
        super().__init__(denial.code)
        self.denial = denial
        self.replayed = replayed


def concerning(rules: Iterable[FraudRule], merchant_id: int) -> list[FraudRule]:
    """Pick the rules that hold for a merchant."""
    return [rule for rule in rules if rule.merchant_id in {None, merchant_id}]


def judge(rules: Iterable[FraudRule], subject: Subject) -> Denial | None:
    """Deny by the matching rule with the highest score, the oldest of equals; None lets pass."""
    met = [rule for rule in concerning(rules, subject.merchant_id) if _meets(rule, subject)]
    if not met:
        return None
    worst = max(met, key=lambda rule: (rule.score, -rule.id))
    return Denial(
        rule_id=worst.id,
        code=worst.code,
        level=worst.level,
        score=worst.score,
        rule=f"{worst.kind.lower()}:{worst.id}",
    )


def _meets(rule: FraudRule, subject: Subject) -> bool:
    match rule.kind:
        case RuleKind.COUNTRY:
            return subject.country == rule.value
        case RuleKind.PAYER:
            return subject.payer_uid == rule.value
        case RuleKind.EMAIL:
            return _meets_email(rule.value or "", subject.email)
        case RuleKind.ADDRESS:
            return _meets_address(rule.value or "", subject.address)
        case RuleKind.PAYER_VELOCITY | RuleKind.ADDRESS_VELOCITY:
            return subject.counts.get(rule.id, 0) >= (rule.count_max or 1)


def _meets_email(listed: str, email: str | None) -> bool:
    """Match a whole address, or with `@example.com` everybody there; capitals do not matter."""
    if email is None:
        return False
    return email.lower().endswith(listed) if listed.startswith("@") else email.lower() == listed


def _meets_address(listed: str, address: str | None) -> bool:
    return address is not None and ip_address(address) in ip_network(listed)
