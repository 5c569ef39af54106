"""`python -m bench.deposits`: compare deposits with payments through the contract, in one run.

Both measurements settle the same number of payments, all of which are pending at first.
"""

import argparse
import os
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import chain
from bench.machine import print_machine
from bench.workspaces import own_servers

GOAL = 2.0  # multiple of the contract's processor time
FULL = (9_900, 100)  # as in `chain`; 10,000 addresses including the 100 payments of the outage
QUICK = (200, 100)


def table(contract: chain.Found, deposits: chain.Found) -> Table:
    """Return a table of both measurements and their ratios."""
    rendered = Table(title=f"{deposits.payments:,} deposits, two endpoints; goal: {GOAL:.0f} times")
    rendered.add_column("", no_wrap=True)
    for name in ("contract", "deposits", "ratio"):
        rendered.add_column(name, justify="right")
    for name, figures in (
        ("CPU of the watching process, per payment", [item.cpu_s for item in (contract, deposits)]),
        ("CPU of PostgreSQL, per payment", [item.database_cpu_s for item in (contract, deposits)]),
        ("together", [item.cpu_s + item.database_cpu_s for item in (contract, deposits)]),
    ):
        cells = [f"{figure / deposits.payments * 1e6:,.0f} us" for figure in figures]
        rendered.add_row(name, *cells, f"{figures[1] / figures[0]:.2f}")
    poll_ms = [f"{item.poll_cpu_s * 1e3:,.0f} ms" for item in (contract, deposits)]
    rendered.add_row("poll while all are pending: total CPU", *poll_ms)
    rendered.add_row(
        "poll while all are pending: searches", "", f"{deposits.searches} per endpoint"
    )
    return rendered


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.deposits", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a short smoke test; its figures are meaningless"
    )
    extent = QUICK if parser.parse_args().quick else FULL
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    places = own_servers(var_dir)
    contract = chain.measure(places, *extent)
    deposits = chain.measure(places, *extent, are_deposits=True)
    console = Console(width=100)
    console.print(table(contract, deposits))
    print_machine(console)


if __name__ == "__main__":
    main()
