import asyncio
import time
from datetime import UTC, datetime, timedelta

import uvloop

from payintent_sandbox.emulators.clock import ScaledClock

WAITS = 200


def test_no_wait_ends_early_on_the_servers_event_loop() -> None:
    clock = ScaledClock(scale=10.0)

    async def scaled(delay_s: float) -> float:
        started = time.monotonic()
        await clock.wait(delay_s)
        return time.monotonic() - started - delay_s / 10.0

    async def real(delay_s: float) -> float:
        moment = datetime.now(UTC) + timedelta(seconds=delay_s)
        await clock.wait_until(moment)
        return time.time() - moment.timestamp()

    async def all_of_them() -> list[float]:
        # Use many fractions of a millisecond, because timers are rounded to milliseconds.
        waits = [scaled(0.2 + i * 0.0037) for i in range(WAITS)]
        moments = [real(0.02 + i * 0.00037) for i in range(WAITS)]
        return await asyncio.gather(*waits, *moments)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        overshoots = runner.run(all_of_them())
    assert min(overshoots) >= 0
