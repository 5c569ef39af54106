"""`python -m bench.disk_space`: the disk space that a paid payment uses in each table.

Payments pass through the API, the simulator and the worker: they are created, a method is
selected, a callback reports them as paid, and their webhooks are delivered. The sizes are the
growth of the tables, including TOAST and indexes, before and after VACUUM FULL. They do not include
WAL.
"""

import argparse
import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import uvloop
from rich.console import Console
from rich.table import Table

from bench import callbacks
from bench.installation import Installation, free_ports
from bench.machine import print_machine
from bench.workspaces import own_servers
from payintent_sandbox.chains.dev_chains import DevChains
from payintent_sandbox.installation import prepare_installation

_PAYMENTS = 3_000
_PER_S = 100.0
_SETTLE_S = 3.0  # the worker still records deliveries after the last webhook has arrived
_SIZES = """
SELECT c.relname AS name, pg_table_size(c.oid) AS rows, pg_indexes_size(c.oid) AS indexes
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
"""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a table's rows, including TOAST, and of its indexes, in bytes."""

    rows: int
    indexes: int

    @property
    def total(self) -> int:
        return self.rows + self.indexes


Sizes = Mapping[str, Size]


async def read_sizes(url: str, *, vacuum: bool = False) -> Sizes:
    """Read the size of every table, including partitions. `vacuum` rewrites all tables first."""
    connection = await asyncpg.connect(url)
    try:
        if vacuum:
            await connection.execute("VACUUM FULL")
        tables = await connection.fetch(_SIZES)
        return {table["name"]: Size(table["rows"], table["indexes"]) for table in tables}
    finally:
        await connection.close()


async def _measure(folder: Path, url: str, count: int) -> tuple[Sizes, Sizes, Sizes]:
    """Return the sizes without payments, with payments, and with payments after VACUUM FULL."""
    world = await prepare_installation(folder, free_ports(), url, DevChains(folder, (0, 0, 0)))
    empty = await read_sizes(url, vacuum=True)
    installation = Installation(world=world, log_dir=folder)
    with installation.gateway(), installation.api(), installation.worker():
        pending = await callbacks.prepare(installation, count)
        await callbacks.measure(installation, pending, _PER_S)
        await asyncio.sleep(_SETTLE_S)
    return empty, await read_sizes(url), await read_sizes(url, vacuum=True)


def table(empty: Sizes, grown: Sizes, vacuumed: Sizes, count: int) -> Table:
    """Return a table of the bytes per payment, with the largest tables first."""
    rendered = Table(title=f"bytes per paid payment, {count:,} payments")
    rendered.add_column("table", no_wrap=True)
    for title in ("rows", "indexes", "together", "after VACUUM FULL"):
        rendered.add_column(title, justify="right")
    by_size = sorted(grown, key=lambda name: empty[name].total - grown[name].total)
    for name in by_size:
        before, size = empty[name], grown[name]
        if size.total - before.total < count:  # less than a byte per payment
            continue
        figures = (
            size.rows - before.rows,
            size.indexes - before.indexes,
            size.total - before.total,
            vacuumed[name].total - before.total,
        )
        rendered.add_row(name, *(f"{figure / count:,.0f}" for figure in figures))
    rendered.add_row(
        "all tables",
        *(f"{figure / count:,.0f}" for figure in _sums(empty, grown, vacuumed)),
        style="bold",
    )
    return rendered


def _sums(empty: Sizes, grown: Sizes, vacuumed: Sizes) -> tuple[int, int, int, int]:
    return (
        sum(grown[name].rows - empty[name].rows for name in grown),
        sum(grown[name].indexes - empty[name].indexes for name in grown),
        sum(grown[name].total - empty[name].total for name in grown),
        sum(vacuumed[name].total - empty[name].total for name in vacuumed),
    )


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m bench.disk_space", description=__doc__)
    parser.add_argument("--payments", type=int, default=_PAYMENTS)
    count: int = parser.parse_args().payments
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    with own_servers(var_dir)("stored") as place:
        sizes = uvloop.run(_measure(place.folder, place.url, count))
    console = Console(width=110)
    console.print(table(*sizes, count))
    print_machine(console)


if __name__ == "__main__":
    main()
