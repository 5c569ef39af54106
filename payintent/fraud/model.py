"""Evaluate the operator's fraud rules (spec section 7.4)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from payintent.core.addresses import (
    UNREADABLE_ADDRESS,
    Network,
    get_ip_network,
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


VELOCITY_KINDS = frozenset({FraudRuleKind.PAYER_VELOCITY, FraudRuleKind.ADDRESS_VELOCITY})


class RiskLevel(StrEnum):
    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"
    CRITICAL = "CRITICAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class FraudRule:
    """Blocks a value, or allows up to `count_max` events within `window_s` seconds."""

    id: int
    kind: FraudRuleKind
    merchant_id: int | None  # None means all merchants
    value: str | None
    count_max: int | None
    window_s: int | None
    code: str
    level: RiskLevel
    score: int  # 0 to 100; the matching rule with the highest score wins


@dataclass(frozen=True, slots=True, kw_only=True)
class FraudSubject:
    """The buyer to screen.

    A value of None does not match any rule. An unreadable address matches every network.
    """

    merchant_id: int
    payer_uid: str
    email: str | None = None  # with the domain in ASCII
    country: str | None = None
    address: str | None = None
    counts: Mapping[int, int] = field(default_factory=dict[int, int])  # by velocity rule id


@dataclass(frozen=True, slots=True, kw_only=True)
class FraudDenial:
    """The response that a denied buyer receives instead of a payment, checkout view or quote."""

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
    """Rules indexed by value, so that evaluation time does not depend on their number."""

    def __init__(self, rules: Iterable[FraudRule] = (), version: str = "") -> None:
        self.version = version
        self._by_value: dict[tuple[FraudRuleKind, str | None], list[FraudRule]] = {}
        self._networks: dict[Network, list[FraudRule]] = {}
        self._velocities: dict[tuple[FraudRuleKind, int | None], list[FraudRule]] = {}
        for rule in rules:
            self._index(rule)
        self._prefixes = {(network.version, network.prefixlen) for network in self._networks}

    def __bool__(self) -> bool:
        return bool(self._by_value or self._networks or self._velocities)

    def list_velocity_rules(self, kind: FraudRuleKind, merchant_id: int) -> list[FraudRule]:
        """Return the velocity rules of a kind that apply to a merchant."""
        return self._velocities.get((kind, None), []) + self._velocities.get(
            (kind, merchant_id), []
        )

    def evaluate(self, subject: FraudSubject) -> FraudDenial | None:
        """Return the denial of the matching rule with the highest score, or None if none match.

        If scores are equal, the oldest rule wins.
        """
        matches = [
            rule
            for rule in self._find_matching_rules(subject)
            if rule.merchant_id in (None, subject.merchant_id)
        ]
        if not matches:
            return None
        winner = max(matches, key=lambda rule: (rule.score, -rule.id))
        return FraudDenial(
            rule_id=winner.id,
            code=winner.code,
            level=winner.level,
            score=winner.score,
            rule=f"{winner.kind.lower()}:{winner.id}",
        )

    def _index(self, rule: FraudRule) -> None:
        if rule.kind in VELOCITY_KINDS:
            self._velocities.setdefault((rule.kind, rule.merchant_id), []).append(rule)
        elif rule.kind is FraudRuleKind.ADDRESS:
            self._networks.setdefault(parse_ip_network(rule.value or ""), []).append(rule)
        else:
            self._by_value.setdefault((rule.kind, rule.value), []).append(rule)

    def _find_matching_rules(self, subject: FraudSubject) -> Iterator[FraudRule]:
        for key in _list_lookup_keys(subject):
            yield from self._by_value.get(key, ())
        if subject.address == UNREADABLE_ADDRESS:
            for rules in self._networks.values():
                yield from rules
        address = parse_ip_address(subject.address) if subject.address else None
        if address is not None:
            for version, length in self._prefixes:
                if version == address.version:
                    yield from self._networks.get(get_ip_network(address, length), ())
        for kind in VELOCITY_KINDS:
            for rule in self.list_velocity_rules(kind, subject.merchant_id):
                if subject.counts.get(rule.id, 0) >= (rule.count_max or 1):
                    yield rule


def _list_lookup_keys(subject: FraudSubject) -> Iterator[tuple[FraudRuleKind, str | None]]:
    if subject.country is not None:
        yield FraudRuleKind.COUNTRY, subject.country
    yield FraudRuleKind.PAYER, subject.payer_uid
    if subject.email is not None:
        email = subject.email.lower()
        yield FraudRuleKind.EMAIL, email
        yield FraudRuleKind.EMAIL, email[email.rfind("@") :]  # matches rules for whole domains
