"""A shared harness for all tests of a module with the same adapter."""

from collections.abc import AsyncGenerator
from importlib import import_module

import pytest
import pytest_asyncio

from tests.conformance.adapters import EXAMPLES, HARNESSES
from tests.conformance.harness import Harness
from tests.conformance.traits import TRAITS, applies

ALL = HARNESSES | EXAMPLES


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "where(rule): limit a conformance test to some adapters")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deselect tests that do not apply to an adapter, so that they do not count as skipped."""
    items[:] = [item for item in items if applies(item)]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=sorted(ALL))
async def harness(request: pytest.FixtureRequest) -> AsyncGenerator[Harness]:
    module = import_module(f"tests.conformance.{ALL[request.param]}")
    async with module.open_harness(request) as harness:
        assert harness.gateway.provider == request.param
        assert vars(TRAITS[request.param]).items() <= vars(harness).items()
        yield harness
