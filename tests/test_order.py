"""The order in which the files of a whole run begin: a long one that begins last runs alone."""

from pathlib import Path

import pytest

from tests.support.order import LONGEST_FILES

_TESTS = Path(__file__).parent


def test_test_processes_take_files_in_the_order_of_collection(pytestconfig: pytest.Config) -> None:
    """By default xdist takes files with many tests first, and so the longest of one test last."""
    assert pytestconfig.getoption("loadscopereorder") is False


def test_what_is_said_to_run_longest_exists_once() -> None:
    assert [name for name in LONGEST_FILES if not (_TESTS / name).is_file()] == []
    assert len(set(LONGEST_FILES)) == len(LONGEST_FILES)
