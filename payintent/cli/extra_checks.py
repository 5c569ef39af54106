"""Additional checks of `payintent doctor` in a sandbox, which distributions can register."""

from collections.abc import Callable

#: Functions that return the text of a line, by its subject.
EXTRA_CHECKS: dict[str, Callable[[], str]] = {}
