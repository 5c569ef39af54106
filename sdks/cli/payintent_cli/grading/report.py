"""The report on a shop, as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from payintent_cli.grading.checks import Grade, Outcome


def as_text(grade: Grade) -> str:
    """Describe each check, and how to fix it if it failed."""
    lines = [line for outcome in grade.outcomes for line in _paragraph(outcome)]
    passed = sum(outcome.passed for outcome in grade.outcomes)
    why = "fix this first" if grade.stopped is None else "the grader could not continue"
    count = "1 was" if grade.untried == 1 else f"{grade.untried} were"
    untried = f"; {count} not run: {why}" if grade.untried else ""
    return "\n".join([*lines, f"{passed} of {len(grade.outcomes)} passed{untried}"])


def as_json(grade: Grade) -> str:
    """Return the grade as JSON."""
    checks = [asdict(outcome) for outcome in grade.outcomes]
    card = {"passed": grade.passed, "stopped": grade.stopped, "checks": checks}
    return json.dumps(card, indent=2)


def _paragraph(outcome: Outcome) -> list[str]:
    grade = "pass" if outcome.passed else "FAIL"
    lines = [f"{grade}  {outcome.name}: {outcome.tried}", f"      the shop: {outcome.saw}"]
    return lines if outcome.passed else [*lines, f"      fix: {outcome.mend}"]
