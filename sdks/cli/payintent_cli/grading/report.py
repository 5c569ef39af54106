"""The report card of a shop, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from payintent_cli.grading.checks import CHECKS, Outcome


def as_text(outcomes: Sequence[Outcome]) -> str:
    """Write one paragraph for each check; the way to mend it where it failed."""
    lines = [line for outcome in outcomes for line in _paragraph(outcome)]
    passed = sum(outcome.passed for outcome in outcomes)
    left = len(CHECKS) - len(outcomes)
    untried = f"; {left} were not tried: mend this first" if left else ""
    return "\n".join([*lines, f"{passed} of {len(outcomes)} passed{untried}"])


def as_json(outcomes: Sequence[Outcome]) -> str:
    """Write all of it as JSON."""
    passed = all(outcome.passed for outcome in outcomes)
    return json.dumps({"passed": passed, "checks": [asdict(one) for one in outcomes]}, indent=2)


def _paragraph(outcome: Outcome) -> list[str]:
    grade = "pass" if outcome.passed else "FAIL"
    lines = [f"{grade}  {outcome.name}: {outcome.tried}", f"      the shop: {outcome.saw}"]
    return lines if outcome.passed else [*lines, f"      mend it: {outcome.mend}"]
