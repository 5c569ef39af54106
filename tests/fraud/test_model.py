"""Fraud rules: each kind separately, and all rules compared with a simple model."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from payintent.core.addresses import make_client_address_key, parse_ip_address, parse_ip_network
from payintent.fraud.model import FraudRule, FraudRuleKind, FraudRuleSet, FraudSubject, RiskLevel

_MERCHANT = 1


def _rule(kind: str, value: str | None = None, **changes: Any) -> FraudRule:
    values: dict[str, Any] = {
        "id": 1,
        "kind": FraudRuleKind(kind),
        "merchant_id": None,
        "value": value,
        "count_max": None,
        "window_s": None,
        "code": "BLOCKED",
        "level": RiskLevel.HIGH,
        "score": 100,
    }
    return FraudRule(**(values | changes))


def _subject(**changes: Any) -> FraudSubject:
    return FraudSubject(**({"merchant_id": _MERCHANT, "payer_uid": "buyer-1"} | changes))


def _denies(rule: FraudRule, **subject: Any) -> bool:
    return FraudRuleSet([rule]).evaluate(_subject(**subject)) is not None


def test_a_country_rule_matches_only_its_country() -> None:
    rule = _rule("COUNTRY", "KP")
    assert _denies(rule, country="KP")
    for other in ("KR", "kp", "", None):
        assert not _denies(rule, country=other), other


def test_a_payer_rule_matches_only_the_exact_payer_uid() -> None:
    assert _denies(_rule("PAYER", "Buyer-7"), payer_uid="Buyer-7")
    for other in ("buyer-7", "Buyer-77", " Buyer-7", ""):
        assert not _denies(_rule("PAYER", "Buyer-7"), payer_uid=other), other


@pytest.mark.parametrize(
    ("value", "met", "passed"),
    [
        ("a@x.com", ["a@x.com", "A@X.com"], ["b@x.com", "aa@x.com", "a@x.com.au", None]),
        ("@x.com", ["a@x.com", "b@X.COM"], ["a@y.x.com", "a@ax.com", "x.com@a.com", None]),
    ],
)
def test_an_email_rule_matches_an_address_or_a_domain_case_insensitively(
    value: str, met: list[str], passed: list[str | None]
) -> None:
    for email in met:
        assert _denies(_rule("EMAIL", value), email=email), email
    for email in passed:
        assert not _denies(_rule("EMAIL", value), email=email), email


@pytest.mark.parametrize(
    ("value", "met", "passed"),
    [
        ("192.0.2.7", ["192.0.2.7", "::ffff:192.0.2.7"], ["192.0.2.8", "::7", "x", "", None]),
        ("192.0.2.0/24", ["192.0.2.0", "192.0.2.255"], ["192.0.3.0", "2001:db8::1", None]),
        ("2001:db8::/32", ["2001:db8::1", "2001:DB8:ffff::"], ["2001:db9::", "32.1.13.184"]),
        ("::1", ["::1", "0:0:0:0:0:0:0:1"], ["0.0.0.1", "127.0.0.1"]),
        ("0.0.0.0/0", ["192.0.2.7"], ["2001:db8::1", None]),
        ("::/0", ["2001:db8::1"], ["192.0.2.7", "::ffff:192.0.2.7"]),
        ("::ffff:192.0.2.0/120", ["192.0.2.9", "::ffff:192.0.2.9"], ["192.0.3.9"]),
    ],
)
def test_an_address_rule_matches_its_network(
    value: str, met: list[str], passed: list[str | None]
) -> None:
    for address in met:
        assert _denies(_rule("ADDRESS", value), address=address), address
    for address in passed:
        assert not _denies(_rule("ADDRESS", value), address=address), address


@pytest.mark.parametrize("kind", ["PAYER_VELOCITY", "ADDRESS_VELOCITY"])
def test_a_velocity_rule_matches_once_its_count_is_reached(kind: str) -> None:
    rule = _rule(kind, id=9, count_max=3, window_s=60)
    assert [_denies(rule, counts={9: count}) for count in range(5)] == [False] * 3 + [True] * 2
    assert not _denies(rule, counts={8: 3})
    assert not _denies(rule)


def test_the_rule_with_the_highest_score_decides_and_the_oldest_breaks_a_tie() -> None:
    rules = [
        _rule("PAYER", "buyer-1", id=3, score=70, code="THIRD"),
        _rule("COUNTRY", "DE", id=2, score=70, code="SECOND", level=RiskLevel.LOW),
        _rule("EMAIL", "@x.com", id=1, score=69),
        _rule("COUNTRY", "FR", id=4, score=100),
    ]
    denial = FraudRuleSet(rules).evaluate(_subject(country="DE", email="a@x.com"))
    assert denial is not None
    assert (denial.rule_id, denial.code, denial.level, denial.score) == (2, "SECOND", "LOW", 70)
    assert denial.rule == "country:2"


def test_a_rule_of_another_merchant_does_not_apply() -> None:
    theirs, ours, everybodys = (
        _rule("PAYER", "buyer-1", id=number, merchant_id=merchant_id)
        for number, merchant_id in enumerate((2, 1, None), 1)
    )
    assert not _denies(theirs)
    assert _denies(ours)
    assert _denies(everybodys)
    velocities = [
        _rule("PAYER_VELOCITY", id=number, merchant_id=merchant_id, count_max=1, window_s=1)
        for number, merchant_id in enumerate((2, 1, None), 1)
    ]
    book = FraudRuleSet(velocities)
    velocity_rules = book.list_velocity_rules(FraudRuleKind.PAYER_VELOCITY, _MERCHANT)
    assert {rule.id for rule in velocity_rules} == {2, 3}
    assert book.list_velocity_rules(FraudRuleKind.ADDRESS_VELOCITY, _MERCHANT) == []
    assert not _denies(velocities[0], counts={1: 9})


def test_a_rule_set_without_rules_is_falsy() -> None:
    assert not FraudRuleSet()
    for rule in (
        _rule("PAYER", "x"),
        _rule("ADDRESS", "192.0.2.1"),
        _rule("PAYER_VELOCITY", count_max=1, window_s=1),
    ):
        assert FraudRuleSet([rule])


_LISTED = {
    "COUNTRY": ["DE", "KP"],
    "PAYER": ["buyer-1", "buyer-2", "DE"],
    "EMAIL": ["a@x.com", "@x.com", "@y.com"],
    "ADDRESS": ["192.0.2.1", "192.0.2.0/30", "0.0.0.0/0", "2001:db8::/48", "2001:db8::1"],
}
_rules = st.one_of(
    *(
        st.builds(
            _rule,
            st.just(kind),
            st.sampled_from(values),
            score=st.integers(0, 3),
            merchant_id=st.sampled_from([None, 1, 2]),
        )
        for kind, values in _LISTED.items()
    ),
    *(
        st.builds(
            _rule,
            st.just(kind),
            count_max=st.integers(1, 3),
            window_s=st.just(60),
            score=st.integers(0, 3),
            merchant_id=st.sampled_from([None, 1, 2]),
        )
        for kind in ("PAYER_VELOCITY", "ADDRESS_VELOCITY")
    ),
)
_books = st.lists(_rules, max_size=12).map(
    lambda rules: [_numbered(rule, number) for number, rule in enumerate(rules, 1)]
)
_subjects = st.builds(
    _subject,
    payer_uid=st.sampled_from(["buyer-1", "buyer-9", "DE"]),
    email=st.sampled_from([None, "A@x.com", "b@y.com", "@x.com"]),
    country=st.sampled_from([None, "DE", "FR"]),
    address=st.sampled_from([None, "192.0.2.1", "192.0.2.9", "2001:db8::1", "::1"]),
    counts=st.dictionaries(st.integers(1, 12), st.integers(0, 4)),
)


def _numbered(rule: FraudRule, number: int) -> FraudRule:
    values = {name: getattr(rule, name) for name in FraudRule.__slots__}
    return FraudRule(**(values | {"id": number}))


def _plainly(rule: FraudRule, subject: FraudSubject) -> bool:
    if rule.merchant_id not in {None, subject.merchant_id}:
        return False
    match rule.kind.value:
        case "COUNTRY":
            return rule.value == subject.country
        case "PAYER":
            return rule.value == subject.payer_uid
        case "EMAIL":
            email = (subject.email or "").lower()
            return email == rule.value or (
                (rule.value or "")[0] == "@" and email.endswith(rule.value or "")
            )
        case "ADDRESS":
            where = ip_network(rule.value or "")
            return subject.address is not None and ip_address(subject.address) in where
        case _:
            return subject.counts.get(rule.id, 0) >= (rule.count_max or 0)


@settings(max_examples=300, deadline=None)
@given(rules=_books, subject=_subjects)
def test_a_rule_set_gives_the_same_result_as_checking_every_rule(
    rules: list[FraudRule], subject: FraudSubject
) -> None:
    met = sorted((-rule.score, rule.id) for rule in rules if _plainly(rule, subject))
    denial = FraudRuleSet(reversed(rules)).evaluate(subject)
    assert (denial and denial.rule_id) == (met[0][1] if met else None)


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2::", "2001:db8:1:2::/64"),
        ("no address", "no address"),
    ],
)
def test_a_client_is_identified_by_its_ipv4_address_or_ipv6_network(
    address: str, wanted: str
) -> None:
    assert make_client_address_key(address) == wanted


def test_an_invalid_address_is_parsed_as_none() -> None:
    for text in ("", " ", "1.2.3", "1.2.3.4:80", "[::1]", "01.2.3.4", "unknown", "1.2.3.4/32"):
        assert parse_ip_address(text) is None, text
    with pytest.raises(ValueError, match="host bits"):
        parse_ip_network("192.0.2.7/24")
