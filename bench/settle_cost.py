"""`python -m bench.settle_cost`: measure the cost that the ledger and an index add to settlements.

Four copies of a database are measured alternately: with the current schema, without the retention
index, without the ledger, and without both. Without the ledger, ledger rows are computed but not
written.
"""

import argparse
import os
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import asyncpg
import uvloop
from rich.console import Console
from rich.table import Table

from bench.flat import Place, database_url, open_place, seed_database, serve
from bench.flat_work import Work
from bench.machine import print_machine
from payintent.payments import captures_store as capture_store

GOAL_PERCENT = 15
_INDEX = "payment_payer_details"
_FULL, _QUICK = (5_000, 16, 2), (100, 1, 1)  # payments, rounds, and warm-up rounds
_ADDED = "added by the current schema"
_add = capture_store.add


async def _add_without_entries(tx: Any, facts: Any, _entries: Any, at: Any) -> None:
    await _add(tx, facts, [], at)


#: The differences between the copies: the index is dropped, or ledger entries are not written.
COPIES = {
    "current schema": (False, False),
    f"without {_INDEX}": (True, False),
    "without the ledger": (False, True),
    "without both": (True, True),
}
WAYS: dict[str, Callable[[Work], Awaitable[int]]] = {
    "settle, one by one": Work.settle,
    "settle, 40 in a transaction": Work.settle_together,
}


def _ledger(*, is_off: bool) -> AbstractContextManager[object]:
    return patch.object(capture_store, "add", _add_without_entries) if is_off else nullcontext()


async def _open(server_url: str, number: int, rows: int) -> Place:
    """Copy the database, and open a service on the copy."""
    without_index, _ = list(COPIES.values())[number]
    server = await asyncpg.connect(server_url)
    await server.execute(f"CREATE DATABASE copy_{number} TEMPLATE seeded STRATEGY file_copy")
    await server.close()
    place = await open_place(database_url(server_url, f"copy_{number}"), rows)
    place.costs = {way: [] for way in WAYS}
    if without_index:
        await place.watcher.execute(f"DROP INDEX {_INDEX}")
    return place


async def _measure(url: str, rows: int, rounds: int, warm_up: int) -> list[Place]:
    server = await asyncpg.connect(url)
    await server.execute("CREATE DATABASE seeded")
    await server.close()
    await seed_database(database_url(url, "seeded"), rows)
    places = [await _open(url, number, rows) for number in range(len(COPIES))]
    numbers = list(range(len(places)))
    for turn in range(rounds + warm_up):
        for way, settle in WAYS.items():
            for number in random.sample(numbers, len(numbers)):
                place, (_, is_off) = places[number], list(COPIES.values())[number]
                for step in (Work.create, Work.quote, Work.select):
                    await step(place.work)
                with _ledger(is_off=is_off):
                    await place.measure(way, settle, is_stored=turn >= warm_up)
    for place in places:
        await place.close()
    return places


def table(places: list[Place]) -> Table:
    """Return the medians, and the additional cost of the first copy compared with the others."""
    rendered = Table(title=f"cost of a settlement; the ledger may add at most {GOAL_PERCENT} %")
    rendered.add_column("", no_wrap=True)
    for name in ("PostgreSQL processor time", _ADDED, "elapsed time", _ADDED):
        rendered.add_column(name, justify="right")
    for way in WAYS:
        for name, place in zip(COPIES, places, strict=True):
            cells = [f"{way}: {name}"]
            for of in ("database_us", "waited_us"):
                figure = place.median(way, of)
                dearer = (places[0].median(way, of) / figure - 1) * 100
                cells += [f"{figure:,.0f} us", "" if place is places[0] else f"{dearer:.1f} %"]
            rendered.add_row(*cells)
    return rendered


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m bench.settle_cost", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a short smoke test; its figures are meaningless"
    )
    rows, rounds, warm_up = _QUICK if parser.parse_args().quick else _FULL
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-settle-", dir=var_dir))
    folder.chmod(0o711)  # so that the server's user can access its data
    try:
        with serve(folder, "1GB") as url:
            places = uvloop.run(_measure(url, rows, rounds, warm_up))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    console = Console(width=120)
    console.print(table(places))
    print_machine(console)


if __name__ == "__main__":
    main()
