"""The example gateway of docs/contribute/add-a-gateway.md, in front of the simulator.

It is installed as a package and found by its entry point.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.conformance.harness import Harness
from tests.conformance.simulator_harness import open_simulator_harness
from tests.support.example_package import lay_out_example, loading_example


@asynccontextmanager
async def open_harness(fixtures: pytest.FixtureRequest) -> AsyncGenerator[Harness]:
    folders: pytest.TempPathFactory = fixtures.getfixturevalue("tmp_path_factory")
    with loading_example(lay_out_example(folders.mktemp("example"))) as adapter:
        async with open_simulator_harness(adapter) as harness:
            yield harness
