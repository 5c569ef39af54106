"""The report card of a shop, for people and for programs."""

from __future__ import annotations

import json
from dataclasses import asdict

from payintent_cli.grading.checks import Grade, Outcome


def as_text(grade: Grade) -> str:
    """Write one paragraph for each check; the way to mend it where it failed."""
    lines = [line for outcome in grade.outcomes for line in _paragraph(outcome)]
    passed = sum(outcome.passed for outcome in grade.outcomes)
    why = "mend this first" if grade.stopped is None else "the grader could not go on"
    count = "1 was" if grade.untried == 1 else f"{grade.untried} were"
    untried = f"; {count} not tried: {why}" if grade.untried else ""
    return "\n".join([*lines, f"{passed} of {len(grade.outcomes)} passed{untried}"])


def as_json(grade: Grade) -> str:
    """Write all of it as JSON."""
    checks = [asdict(outcome) for outcome in grade.outcomes]
    card = {"passed": grade.passed, "stopped": grade.stopped, "checks": checks}
    return json.dumps(card, indent=2)


def _paragraph(outcome: Outcome) -> list[str]:
    grade = "pass" if outcome.passed else "FAIL"
    lines = [f"{grade}  {outcome.name}: {outcome.tried}", f"      the shop: {outcome.saw}"]
    return lines if outcome.passed else [*lines, f"      mend it: {outcome.mend}"]
