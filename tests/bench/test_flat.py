"""The output of `bench.flat`."""

import io
from typing import Any

from rich.console import Console

from bench.flat import Cost, Place, table
from bench.flat_work import OPERATIONS


def _place(rows: int, figures: list[float]) -> Place:
    nothing: Any = None
    place = Place(rows=rows, work=nothing, watcher=nothing)
    place.costs = {name: [Cost(figure, 2 * figure) for figure in figures] for name in OPERATIONS}
    return place


def test_the_medians_for_the_largest_and_smallest_database_are_compared_with_the_goal() -> None:
    places = [_place(1_000, [100, 5_000, 90]), _place(100_000, [119, 1, 5_000])]
    places[1].costs["settle"] = [Cost(100, 241)] * 3
    printed = io.StringIO()
    console = Console(file=printed, width=110)
    console.print(table(places, "waited_us", "waited"))
    assert printed.getvalue().count("1.19") == len(OPERATIONS) - 1
    assert "missed" not in printed.getvalue()
    console.print(table(places, "database_us", "spent"))
    assert [line for line in printed.getvalue().splitlines() if "1.21 missed" in line]
