"""Every check, in the order in which they are tried."""

from __future__ import annotations

from dataclasses import dataclass

from payintent_cli.grading import order_checks, webhook_checks
from payintent_cli.grading.judging import Check
from payintent_cli.grading.shop import Shop

CHECKS = [webhook_checks.PAID, *webhook_checks.CHECKS, *order_checks.CHECKS]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a shop did in one check."""

    name: str
    tried: str
    passed: bool
    saw: str
    mend: str


def grade(shop: Shop) -> list[Outcome]:
    """Run every check; the first alone where a shop does not even do that."""
    first, *others = CHECKS
    plain = _outcome(first, shop)
    return [plain, *(_outcome(check, shop) for check in others)] if plain.passed else [plain]


def _outcome(check: Check, shop: Shop) -> Outcome:
    passed, saw = check.run(shop, shop.place_order())
    return Outcome(name=check.name, tried=check.tried, passed=passed, saw=saw, mend=check.mend)
