"""Collect what a test left unclosed while that test is still the one to blame."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class LeakError(AssertionError):
    """A test left a socket, a file, a loop or a task open."""


def freeze() -> None:
    """Exempt what is loaded from collection, so that collecting after a test takes milliseconds.

    Exempt objects are still freed by their reference counts; only their cycles stay until `thaw`.
    """
    gc.collect()
    gc.freeze()


def thaw() -> None:
    """Make everything collectable again: what module and session fixtures left in cycles."""
    gc.unfreeze()


def forget_logs(config: pytest.Config) -> None:
    """Drop the records that pytest keeps of the test: their tracebacks hold what leaked."""
    plugin = config.pluginmanager.get_plugin("logging-plugin")
    assert plugin is not None
    plugin.caplog_handler.reset()
    plugin.report_handler.reset()


def collect_leaks() -> list[str]:
    """Collect garbage, and say what complained of being collected unclosed.

    What survives is frozen: else every test would pay for all that those before it left alive.
    """
    with _unraisable() as messages:
        freeze()
    return messages


@contextmanager
def _unraisable() -> Iterator[list[str]]:
    """Record the warnings that finalisers raise; the filter `error` makes them exceptions."""
    messages: list[str] = []

    def record(unraisable: Any) -> None:
        messages.append(f"{type(unraisable.exc_value).__name__}: {unraisable.exc_value}")

    previous, sys.unraisablehook = sys.unraisablehook, record
    try:
        yield messages
    finally:
        sys.unraisablehook = previous
