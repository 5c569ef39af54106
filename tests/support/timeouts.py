"""The time that a test waits for an event before it fails.

A longer limit does not slow down passing tests, and a busy machine may need it.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 90.0
_LOOK_S = 0.03


async def wait_until(
    ask: Callable[[], Any], description: str, patience_s: float = PATIENCE_S
) -> Any:
    """Call a function until it returns a value, and return the value."""
    deadline = time.monotonic() + patience_s
    while True:
        value = ask()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {patience_s:g} s: {description}"
        await asyncio.sleep(_LOOK_S)
