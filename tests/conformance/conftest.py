"""One harness for all tests of a module that are about the same adapter."""

from collections.abc import AsyncGenerator
from importlib import import_module

import pytest
import pytest_asyncio

from tests.conformance.adapters import EXAMPLES, HARNESSES
from tests.conformance.harness import Harness

ALL = HARNESSES | EXAMPLES


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=sorted(ALL))
async def harness(request: pytest.FixtureRequest) -> AsyncGenerator[Harness]:
    module = import_module(f"tests.conformance.{ALL[request.param]}")
    async with module.open_harness(request) as harness:
        assert harness.gateway.provider == request.param
        yield harness
