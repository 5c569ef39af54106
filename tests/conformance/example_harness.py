"""The example of docs/extend.md, which speaks as the simulator does and so stands before one."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.conformance.harness import Harness
from tests.conformance.simulator_harness import before_simulator
from tests.docs.reading import blocks, page


@asynccontextmanager
async def open_harness(fixtures: pytest.FixtureRequest) -> AsyncGenerator[Harness]:
    async with before_simulator(_example()) as harness:
        yield harness


def _example() -> Any:
    [code] = [one for one in blocks(page("docs/extend.md"), "python") if "class ExamplePay" in one]
    scope: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "docs/extend.md", "exec"), scope)  # noqa: S102 - our own page
    return scope["ExamplePay"]
