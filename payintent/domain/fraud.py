"""Fraud screening: the operator's rules, and what one of them denies (spec section 7.4)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from payintent.domain.ip_address import (
    UNREADABLE_ADDRESS,
    Network,
    ip_network_of,
    parse_ip_address,
    parse_ip_network,
)


class FraudRuleKind(StrEnum):
    COUNTRY = "COUNTRY"
    PAYER = "PAYER"
    EMAIL = "EMAIL"
    ADDRESS = "ADDRESS"
    PAYER_VELOCITY = "PAYER_VELOCITY"
    ADDRESS_VELOCITY = "ADDRESS_VELOCITY"


VELOCITIES = frozenset({FraudRuleKind.PAYER_VELOCITY, FraudRuleKind.ADDRESS_VELOCITY})


class RiskLevel(StrEnum):
    """How serious the operator considers a match of a rule."""

    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"
    CRITICAL = "CRITICAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class FraudRule:
    """One rule: a listed value, or at most `count_max` within `window_s` seconds."""

    id: int
    kind: FraudRuleKind
    merchant_id: int | None  # None: all merchants
    value: str | None
    count_max: int | None
    window_s: int | None
    code: str
    level: RiskLevel
    score: int  # 0 to 100; the highest one decides


@dataclass(frozen=True, slots=True, kw_only=True)
class FraudSubject:
    """The facts of a buyer at one moment; `None` matches no list, an unreadable address each."""

    merchant_id: int
    payer_uid: str
    email: str | None = None  # with its domain in ASCII
    country: str | None = None
    address: str | None = None
    counts: Mapping[int, int] = field(default_factory=dict[int, int])  # by id of a velocity rule


@dataclass(frozen=True, slots=True, kw_only=True)
class FraudDenial:
    """The response to a denied buyer, in place of a payment, a view or a quote."""

    rule_id: int
    code: str
    level: RiskLevel
    score: int
    rule: str


class FraudDeniedError(Exception):
    def __init__(self, denial: FraudDenial, *, replayed: bool = False) -> None:
        super().__init__(denial.code)
        self.denial = denial
        self.replayed = replayed


class FraudRuleSet:
    """Rules indexed by what they look at, so that a long list is as fast as a short one."""

    def __init__(self, rules: Iterable[FraudRule] = (), mark: str = "") -> None:
        self.mark = mark  # identifies this set of rules
        self._listed: dict[tuple[FraudRuleKind, str | None], list[FraudRule]] = {}
        self._networks: dict[Network, list[FraudRule]] = {}
        self._velocities: dict[tuple[FraudRuleKind, int | None], list[FraudRule]] = {}
        for rule in rules:
            self._add(rule)
        self._lengths = {(network.version, network.prefixlen) for network in self._networks}

    def __bool__(self) -> bool:
        return bool(self._listed or self._networks or self._velocities)

    def velocities(self, kind: FraudRuleKind, merchant_id: int) -> list[FraudRule]:
        return [
            rule
            for whose in (None, merchant_id)
            for rule in self._velocities.get((kind, whose), ())
        ]

    def evaluate(self, subject: FraudSubject) -> FraudDenial | None:
        """Return the denial of the matching rule with the highest score, the oldest of equals.

        None where no rule matches.
        """
        met = [rule for rule in self._matching(subject) if _concerns(rule, subject.merchant_id)]
        if not met:
            return None
        worst = max(met, key=lambda rule: (rule.score, -rule.id))
        return FraudDenial(
            rule_id=worst.id,
            code=worst.code,
            level=worst.level,
            score=worst.score,
            rule=f"{worst.kind.lower()}:{worst.id}",
        )

    def _add(self, rule: FraudRule) -> None:
        if rule.kind in VELOCITIES:
            self._velocities.setdefault((rule.kind, rule.merchant_id), []).append(rule)
        elif rule.kind is FraudRuleKind.ADDRESS:
            self._networks.setdefault(parse_ip_network(rule.value or ""), []).append(rule)
        else:
            self._listed.setdefault((rule.kind, rule.value), []).append(rule)

    def _matching(self, subject: FraudSubject) -> Iterator[FraudRule]:
        for looked_up in _lookups(subject):
            yield from self._listed.get(looked_up, ())
        if subject.address == UNREADABLE_ADDRESS:
            for rules in self._networks.values():
                yield from rules
        address = parse_ip_address(subject.address) if subject.address else None
        if address is not None:
            for version, length in self._lengths:
                if version == address.version:
                    yield from self._networks.get(ip_network_of(address, length), ())
        for kind in VELOCITIES:
            for rule in self.velocities(kind, subject.merchant_id):
                if subject.counts.get(rule.id, 0) >= (rule.count_max or 1):
                    yield rule


def _lookups(subject: FraudSubject) -> Iterator[tuple[FraudRuleKind, str | None]]:
    if subject.country is not None:
        yield FraudRuleKind.COUNTRY, subject.country
    yield FraudRuleKind.PAYER, subject.payer_uid
    if subject.email is not None:
        email = subject.email.lower()
        yield FraudRuleKind.EMAIL, email
        yield FraudRuleKind.EMAIL, email[email.rfind("@") :]  # matches a whole domain


def _concerns(rule: FraudRule, merchant_id: int) -> bool:
    return rule.merchant_id is None or rule.merchant_id == merchant_id
