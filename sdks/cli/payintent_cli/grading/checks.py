"""All checks, in the order in which they run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from payintent_sdk.errors import PayintentError

from payintent_cli.grading import money_checks, order_checks, webhook_checks
from payintent_cli.grading.judging import Check
from payintent_cli.grading.service import Service
from payintent_cli.grading.shop import Shop
from payintent_cli.usage import UsageError

CHECKS = [webhook_checks.PAID, *webhook_checks.CHECKS, *order_checks.CHECKS]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a check."""

    name: str
    tried: str
    passed: bool
    saw: str
    mend: str


@dataclass(frozen=True, kw_only=True)
class Grade:
    """The results of all checks.

    `untried` is the number of skipped checks. `stopped` contains the check in which the grader
    failed, and the reason.
    """

    outcomes: list[Outcome]
    untried: int
    stopped: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the shop passed every check."""
        return self.stopped is None and all(outcome.passed for outcome in self.outcomes)


def grade(shop: Shop, service: Service | None = None, only: Collection[str] | None = None) -> Grade:
    """Run every check; checks with real payments run only if `service` is set.

    If the first check of a part fails, the rest of the part is skipped, because it would fail for
    the same reason. If the grader fails, all later checks are skipped too. `only` selects checks in
    addition to the first check of each part. Raises `UsageError` if a name is unknown.
    """
    parts = [CHECKS] + ([money_checks.checks_with(service)] if service else [])
    if only is not None:
        parts = _chosen(parts, only)
    outcomes = list[Outcome]()
    stopped = _try_all(parts, shop, outcomes)
    untried = sum(map(len, parts)) - len(outcomes)
    return Grade(outcomes=outcomes, untried=untried, stopped=stopped)


def _try_all(parts: list[list[Check]], shop: Shop, outcomes: list[Outcome]) -> str | None:
    """Add results to `outcomes`. Return the reason if the grader stopped before the last check."""
    for part in parts:
        for check in part:
            try:
                outcomes.append(_outcome(check, shop))
            except (UsageError, PayintentError) as error:
                return f"{check.name}: {error}"
            if check is part[0] and not outcomes[-1].passed:
                return None
    return None


def _chosen(parts: list[list[Check]], names: Collection[str]) -> list[list[Check]]:
    unknown = set(names) - {check.name for part in parts for check in part}
    if unknown:
        raise UsageError(f"unknown checks, or checks that need --key: {', '.join(sorted(unknown))}")
    return [[part[0], *(check for check in part[1:] if check.name in names)] for part in parts]


def _outcome(check: Check, shop: Shop) -> Outcome:
    passed, saw = check.run(shop, shop.place_order())
    return Outcome(name=check.name, tried=check.tried, passed=passed, saw=saw, mend=check.mend)
