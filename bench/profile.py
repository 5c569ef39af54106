"""Write flame graphs of the hot paths to `var/profile/`, and print the heaviest functions.

py-spy samples the unmodified service from another process while the benchmark's load runs. Idle
samples are ignored, so shares refer to processor time.
"""

import asyncio
import contextlib
import html
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from bench import callbacks
from bench.__main__ import Bench, Extent
from bench.installation import Installation, free_ports
from bench.machine import print_machine
from payintent_sandbox.chains.dev_chains import DevChains
from payintent_sandbox.installation import prepare_installation
from payintent_sandbox.postgres import Postgres, find_binaries
from tools.prepare import PY_SPY, prepare

_EXTENT = Extent(
    rounds=1, payments=2_000, warm_s=1, round_s=10, callbacks=2_000, lists=(1, 1), pages=1
)
_RATE_PER_S = 250
_CALLBACKS_PER_S = 200
_SHOWN = 12
_ENTRY_PERCENT = 99
#: A frame in py-spy's flame graph: `name (file:line) (12 samples, 3.4%)`.
_FRAME = re.compile(r"<title>([^<]+?) \(([^()<]+):\d+\) \((\d[\d,]*) samples?, [^<]*</title>")
_ALL = re.compile(r"<title>all \((\d[\d,]*) samples?, [^<]*</title>")


@dataclass(frozen=True, slots=True)
class Share:
    """The share of samples in which a function or one of its callees ran."""

    function: str
    percent: float


@dataclass(frozen=True, slots=True)
class Profiler:
    """The path of py-spy, and the folder of its flame graphs."""

    program: Path
    folder: Path

    @contextlib.contextmanager
    def record(self, name: str, pid: int) -> Iterator[None]:
        """Record a process while a load runs, and write `NAME.svg`."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            sampling = subprocess.Popen(
                [
                    *(str(self.program), "record", "--pid", str(pid)),
                    *("--rate", str(_RATE_PER_S), "--duration", "3600"),
                    *("--output", str(self.folder / f"{name}.svg")),
                ],
                stdout=output,
                stderr=output,
            )
        try:
            yield
        finally:
            sampling.send_signal(signal.SIGINT)  # py-spy then writes its flame graph
        if sampling.wait() != 0:
            raise RuntimeError(f"py-spy could not record {name}:\n{log.read_text()}")

    def shares(self, name: str) -> list[Share]:
        """Read the heaviest functions of the service from a flame graph."""
        return heaviest((self.folder / f"{name}.svg").read_text())


def heaviest(picture: str) -> list[Share]:
    """List the functions of the service by their share, including their callees.

    Functions that appear in nearly every sample belong to process startup and are omitted.
    """
    samples: Counter[str] = Counter()
    for name, place, count in _FRAME.findall(picture):
        _, ours, file = place.rpartition("payintent/")
        if ours:
            samples[f"{html.unescape(name)} ({file})"] += _number(count)
    match = _ALL.search(picture)
    total = _number(match[1]) if match else 0
    shares = [Share(name, 100 * count / total) for name, count in samples.most_common()]
    return [share for share in shares if share.percent < _ENTRY_PERCENT][:_SHOWN]


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def record_loads(bench: Bench, profiler: Profiler) -> list[str]:
    """Record payment creation and reads under the benchmark's load."""
    with bench.installation.api() as pid:
        asyncio.run(bench.seed())
        works: dict[str, Callable[[int], object]] = {
            "create": bench.create,
            "get": bench.get,
            "quotes": bench.quotes,
            "catalog": bench.catalog,
        }
        for name, work in works.items():
            with profiler.record(name, pid):
                work(pid)
    return list(works)


async def record_callbacks(bench: Bench, profiler: Profiler) -> list[str]:
    """Record the API as it settles callbacks, and the worker as it delivers their events."""
    installation = bench.installation
    with installation.gateway(), installation.api() as api, installation.worker() as worker:
        pending = await callbacks.prepare(installation, bench.extent.callbacks)
        with profiler.record("settle", api), profiler.record("deliver", worker):
            await callbacks.measure(installation, pending, _CALLBACKS_PER_S)
    return ["settle", "deliver"]


def main() -> None:
    """Record every hot path, and print its heaviest functions."""
    prepare("profile")
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    profiler = Profiler(PY_SPY, var_dir / "profile")
    profiler.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="profile-", dir=var_dir))
    folder.chmod(0o711)  # so that the server's user can access its data
    postgres = Postgres(folder / "postgres", durable=True)
    console = Console(width=100)
    try:
        url = postgres.start()
        chains = DevChains(folder, (0, 0, 0))
        world = asyncio.run(prepare_installation(folder, free_ports(), url, chains))
        bench = Bench(
            installation=Installation(world=world, log_dir=folder),
            bin_dir=find_binaries(),
            extent=_EXTENT,
            console=console,
        )
        names = record_loads(bench, profiler)
        names += uvloop.run(record_callbacks(bench, profiler))
    finally:
        postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)
    for name in names:
        console.print(_table(name, profiler.shares(name)))
    console.print(f"the flame graphs are in {profiler.folder}")
    print_machine(console)


def _table(name: str, shares: list[Share]) -> Table:
    table = Table(title=name)
    table.add_column("function, including callees")
    table.add_column("share of processor time", justify="right")
    for share in shares:
        table.add_row(share.function, f"{share.percent:.0f} %")
    return table


if __name__ == "__main__":
    main()
