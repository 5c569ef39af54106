"""The output of `bench.cost` and `bench.settle_cost`."""

import io
from typing import Any

from rich.console import Console

from bench import cost, settle_cost
from bench.flat import Cost, Place
from bench.work_rates import WorkRate


def _step(name: str, cpu_us: float, database_cpu_us: float) -> WorkRate:
    return WorkRate(
        name=name,
        count=1,
        per_s=1,
        goal_per_s=1,
        cpu_us=cpu_us,
        database_cpu_us=database_cpu_us,
    )


def test_rates_follow_from_the_sum_of_all_steps() -> None:
    printed = io.StringIO()
    cost.show(Console(file=printed, width=100), [_step("a", 600, 100), _step("b", 400, 150)], 2)
    output = printed.getvalue()
    assert "1,000,000 / 1,000 = 1,000 such payments per second" in output
    assert "2 x 1,000,000 / (1,000 + 250) = 1,600/s" in output
    assert "16 x 1,000,000 / 250 = 64,000/s, with 4.0 service cores" in output


def test_a_settlement_is_compared_with_a_reduced_settlement() -> None:
    nothing: Any = None
    places = [Place(rows=1, work=nothing, watcher=nothing) for _ in settle_cost.COPIES]
    for number, place in enumerate(places):
        place.costs = {way: [Cost(500, 110 - 10 * number)] for way in settle_cost.WAYS}
    printed = io.StringIO()
    Console(file=printed, width=120).print(settle_cost.table(places))
    lines = [line for line in printed.getvalue().splitlines() if "one by one" in line]
    expected = ["110 us", "10.0 %", "22.2 %", "37.5 %"]
    assert [want in line for want, line in zip(expected, lines, strict=True)] == [True] * 4
