"""Values cached until they expire or are invalidated."""

import asyncio

from payintent.runtime.caches import TtlCache, TtlMap


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def a_map(clock: Clock, entries_max: int = 10) -> TtlMap[str, int]:
    return TtlMap(5.0, entries_max, clock)


def test_a_value_is_returned_until_it_expires() -> None:
    clock = Clock()
    values = a_map(clock)
    values.set("a", 1)
    clock.now_s += 4.999
    assert values.get("a") == 1
    clock.now_s += 0.001
    assert values.get("a") is None


def test_setting_a_value_again_restarts_its_lifetime() -> None:
    clock = Clock()
    values = a_map(clock)
    values.set("a", 1)
    clock.now_s += 4
    values.set("a", 2)
    clock.now_s += 4
    assert values.get("a") == 2


def test_a_removed_or_unset_value_is_absent() -> None:
    values = a_map(Clock())
    values.set("a", 1)
    values.remove("a")
    values.remove("b")
    assert (values.get("a"), values.get("b")) == (None, None)


def test_a_full_map_is_cleared_and_never_exceeds_its_limit() -> None:
    values = a_map(Clock(), entries_max=3)
    for number in range(4):
        values.set(f"key {number}", number)
    assert [values.get(f"key {number}") for number in range(4)] == [None, None, None, 3]


async def test_a_refresh_that_started_before_an_invalidation_is_not_cached() -> None:
    stored, is_read, may_return = ["old"], asyncio.Event(), asyncio.Event()

    async def read(_: str) -> str:
        value = stored[0]
        is_read.set()
        await may_return.wait()
        return value

    cache = TtlCache(read, "", 5.0, Clock())
    early = asyncio.create_task(cache.get())
    await is_read.wait()
    stored[0] = "new"
    cache.invalidate()
    late = asyncio.create_task(cache.get())
    await asyncio.sleep(0)
    may_return.set()
    assert (await early, await late, await cache.get()) == ("old", "new", "new")
