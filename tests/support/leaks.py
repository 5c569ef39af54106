"""Collect the objects that a test left unclosed, while the test can still be identified."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class LeakError(AssertionError):
    """A test left a socket, a file, a loop or a task open."""


def freeze() -> None:
    """Exempt loaded objects from collection, so that a collection after a test takes milliseconds.

    Exempt objects are still freed by their reference counts; only their cycles stay until `thaw`.
    """
    gc.collect()
    gc.freeze()


def thaw() -> None:
    """Make all objects collectable again, including cycles from module and session fixtures."""
    gc.unfreeze()


def forget_logs(config: pytest.Config) -> None:
    """Drop pytest's log records of the test, because their tracebacks reference leaked objects."""
    plugin = config.pluginmanager.get_plugin("logging-plugin")
    assert plugin is not None
    plugin.caplog_handler.reset()
    plugin.report_handler.reset()


def collect_leaks() -> list[str]:
    """Collect garbage, and return the warnings of objects that were collected unclosed.

    Surviving objects are frozen. Otherwise, each collection would also scan the objects of all
    earlier tests.
    """
    with _unraisable() as messages:
        freeze()
    return messages


@contextmanager
def _unraisable() -> Iterator[list[str]]:
    """Record warnings from finalisers, which the `error` filter turns into exceptions."""
    messages: list[str] = []

    def record(unraisable: Any) -> None:
        messages.append(f"{type(unraisable.exc_value).__name__}: {unraisable.exc_value}")

    previous, sys.unraisablehook = sys.unraisablehook, record
    try:
        yield messages
    finally:
        sys.unraisablehook = previous
