"""The order in which test files start: a long file that starts last runs alone."""

import pytest


def test_test_processes_run_files_in_collection_order(pytestconfig: pytest.Config) -> None:
    """By default, xdist starts with files that have many tests, so the longest test starts last."""
    assert pytestconfig.getoption("loadscopereorder") is False
