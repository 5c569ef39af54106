"""More checks of `payintent doctor` in a sandbox; other installed distributions add theirs."""

from collections.abc import Callable

#: By the name that the line begins with: says in one line what it found.
EXTRA_CHECKS: dict[str, Callable[[], str]] = {}
