"""The order in which test files start: a long file that starts last runs alone."""

import pytest


def test_test_processes_take_files_in_the_order_of_collection(pytestconfig: pytest.Config) -> None:
    """By default xdist takes files with many tests first, and so the longest of one test last."""
    assert pytestconfig.getoption("loadscopereorder") is False
