"""The example of docs/contribute/add-a-gateway.md, which speaks as the simulator does and so stands before one.

It is installed as a package, and found by its entry point.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.conformance.harness import Harness
from tests.conformance.simulator_harness import before_simulator
from tests.support.example_package import lay_out_example, loading_example


@asynccontextmanager
async def open_harness(fixtures: pytest.FixtureRequest) -> AsyncGenerator[Harness]:
    folders: pytest.TempPathFactory = fixtures.getfixturevalue("tmp_path_factory")
    with loading_example(lay_out_example(folders.mktemp("example"))) as adapter:
        async with before_simulator(adapter) as harness:
            yield harness
