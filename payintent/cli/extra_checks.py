"""Checks of `payintent doctor` in a sandbox that other installed distributions add."""

from collections.abc import Callable

#: Functions that return one line of text, by the subject of the line.
EXTRA_CHECKS: dict[str, Callable[[], str]] = {}
