"""`python -m bench.cells`: creates in one cell, and in two cells on two servers.

Two merchants create, each with so many clients; in two cells each of them has its own. Both
installations have two API processes, and are measured in turns. One host runs everything, so that
its cores are what all of them end at; with few clients (`--clients 4`) one cell leaves some free.
One cell is measured with one of the merchants too: creates share statements with what comes
meanwhile in their cell, so a cell with half the load has smaller batches, which cost more. Where
cells have hosts of their own each has its whole load.

Hosts of their own are played then: each server is held to a part of a core, so that one cell ends
at what its server has, and two cells have twice of it.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import asyncpg
import uvloop
from rich.console import Console
from rich.table import Table

from bench.host_cores import HostCoresError, held_to, postmaster_of
from bench.http import request
from bench.installation import Installation, free_ports
from bench.load import CREATE_BODY, KEY, Plan, run_load
from bench.places import Place, own_servers
from payintent.storage import migrations_runner
from payintent_sandbox.chains.dev_chains import DevChains
from payintent_sandbox.installation import prepare_installation

CLIENTS = 64  # of each merchant: enough to keep all cores busy
HOST_CORES = 0.2  # of each server: so few that the service has cores left when both are busy
_WARM_S = 1.0
_PROCESSES = 2
_COPIED_S = 5.0  # until the other cell and all processes know it
_TICKS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


@dataclass(frozen=True, slots=True)
class Extent:
    """How often each is measured, and for how long."""

    rounds: int
    round_s: float


FULL = Extent(rounds=5, round_s=6.0)
QUICK = Extent(rounds=1, round_s=0.3)


@dataclass(frozen=True, slots=True)
class Round:
    """What the clients created together."""

    per_s: float
    busy: float  # cores of the host that did something meanwhile


@dataclass(frozen=True, slots=True)
class Turn:
    """A round of each."""

    half: Round  # one cell, one merchant
    one: Round  # one cell, both
    two: Round  # two cells, both


@dataclass(frozen=True, slots=True)
class _Running:
    """An installation whose API runs, and how many clients each merchant has."""

    installation: Installation
    clients: int

    def measure(self, seconds: float, merchants: int = 2) -> Round:
        """Create for so many merchants at once."""
        kept = self.installation.world.kept["merchants"][:merchants]
        plans = [self._plan(merchant["api_key"], seconds) for merchant in kept]
        with ThreadPoolExecutor(len(plans)) as threads:
            busy_before, began = _busy_s(), perf_counter()
            loads = list(threads.map(run_load, plans))
            busy = (_busy_s() - busy_before) / (perf_counter() - began)
        return Round(sum(load.answers / load.seconds for load in loads), busy)

    def _plan(self, api_key: str, seconds: float) -> Plan:
        headers = {
            "authorization": f"Bearer {api_key}",
            "idempotency-key": KEY.decode(),
            "content-type": "application/json",
        }
        return Plan(
            port=self.installation.world.ports.api,
            pid=0,
            clients=self.clients,
            warm_s=_WARM_S,
            measured_s=seconds,
            request=request("POST", "/v1/payments", headers, CREATE_BODY.encode()),
            status=201,
            ids=[],
        )


@dataclass(frozen=True, slots=True)
class Rig:
    """Both installations, and the three servers below them."""

    one: _Running
    two: _Running
    servers: Mapping[str, Place]

    def measure(self, extent: Extent, console: Console) -> list[Turn]:
        """Measure one cell and two, in turns."""
        turns: list[Turn] = []
        for number in range(1, extent.rounds + 1):
            turn = Turn(
                half=self.one.measure(extent.round_s, merchants=1),
                one=self.one.measure(extent.round_s),
                two=self.two.measure(extent.round_s),
            )
            turns.append(turn)
            console.print(
                f"{number}: one cell {turn.half.per_s:,.0f}/s and {turn.one.per_s:,.0f}/s,"
                f" two cells {turn.two.per_s:,.0f}/s"
            )
        return turns

    @contextmanager
    def hosts_of(self, cores: float) -> Iterator[None]:
        """Hold each server to so many cores meanwhile (HostCoresError)."""
        with ExitStack() as stack:
            for name, place in self.servers.items():
                pid = postmaster_of(place.folder / "postgres")
                stack.enter_context(held_to(cores, name, pid))
            yield


@contextmanager
def rig(clients: int, var_dir: Path) -> Iterator[Rig]:
    """Start one cell on a server of its own, and two cells on two others."""
    places = own_servers(var_dir)
    with ExitStack() as stack:
        servers = {name: stack.enter_context(places(name)) for name in ("cell", "control", "other")}
        one = stack.enter_context(_one_cell(servers["cell"]))
        two = stack.enter_context(_two_cells(servers["control"], servers["other"]))
        yield Rig(_Running(one, clients), _Running(two, clients), servers)
        asyncio.run(_require_both_cells(servers["control"].url, servers["other"].url))


@contextmanager
def _one_cell(place: Place) -> Iterator[Installation]:
    installation = _install(place)
    with installation.api(processes=_PROCESSES):
        yield installation


@contextmanager
def _two_cells(control: Place, other: Place) -> Iterator[Installation]:
    """Place the second merchant in the cell of the second server."""
    installation = _install(control)
    settings = {"PAYINTENT_CELLS": json.dumps({"1": {"url": other.url}})}
    asyncio.run(migrations_runner.migrate(other.url))
    _command(installation, settings, "cell", "add", "1")
    with installation.api(settings, processes=_PROCESSES):
        moved = str(installation.world.kept["merchants"][1]["id"])
        _command(installation, settings, "merchant", "move", moved, "--to", "1")
        asyncio.run(_let_a_day_go_by(control.url))
        yield installation


def _install(place: Place) -> Installation:
    chains = DevChains(place.folder, (0, 0, 0))
    world = asyncio.run(prepare_installation(place.folder, free_ports(), place.url, chains))
    return Installation(world=world, log_dir=place.folder)


def _command(installation: Installation, settings: Mapping[str, str], *words: str) -> None:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "payintent", *words],
        env={**kept, **installation.world.service_environment(), **settings},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"payintent {' '.join(words)}\n{done.stdout}{done.stderr}")


async def _let_a_day_go_by(control_url: str) -> None:
    """Let the move be so long ago that keys of before it are looked up no more."""
    database = await asyncpg.connect(control_url)
    await database.execute(
        """
        UPDATE merchant_cell
        SET since = since - interval '3 days', until = until - interval '2 days'
        WHERE until IS NOT NULL
        """
    )
    await database.close()
    await asyncio.sleep(_COPIED_S)


async def _require_both_cells(*urls: str) -> None:
    """Refuse figures of two cells where one of them did all the work."""
    for url in urls:
        database = await asyncpg.connect(url)
        stored = await database.fetchval("SELECT count(*) FROM payment")
        await database.close()
        if not stored:
            raise RuntimeError("one of the two cells has no payment")


def _busy_s() -> float:
    """Read the time that all cores have worked since the host began (proc(5))."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    ticks = dict(zip(_TICKS, map(int, fields), strict=False))
    return (sum(ticks.values()) - ticks["idle"] - ticks["iowait"]) / os.sysconf("SC_CLK_TCK")


def table(title: str, turns: Sequence[Turn], clients: int) -> Table:
    """Show the medians, and the ratios within each turn."""
    cores = len(os.sched_getaffinity(0))
    shown = Table(title=title)
    for name in ("", "clients of a cell", "creates", "busy cores"):
        shown.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, of_a_cell, rounds in (
        ("one cell", clients, [turn.half for turn in turns]),
        ("one cell", 2 * clients, [turn.one for turn in turns]),
        ("two cells on two servers", clients, [turn.two for turn in turns]),
    ):
        per_s = statistics.median(each.per_s for each in rounds)
        busy = statistics.median(each.busy for each in rounds)
        shown.add_row(name, str(of_a_cell), f"{per_s:,.0f}/s", f"{busy:.2f} of {cores}")
    each = statistics.median(turn.two.per_s / turn.half.per_s for turn in turns)
    both = statistics.median(turn.two.per_s / turn.one.per_s for turn in turns)
    shown.add_row("ratio, as many clients for a cell", "", f"{each:.2f}", "", style="bold")
    shown.add_row("ratio, as many clients together", "", f"{both:.2f}", "", style="bold")
    return shown


def report(measured: Rig, extent: Extent, clients: int, host_cores: float, out: Console) -> None:
    """Measure with cores that all share, then with servers that have only their own."""
    title = "creates; all processes share the cores"
    out.print(table(title, measured.measure(extent, out), clients))
    title = f"creates; each server has {host_cores:g} of a core, as on a host of its own"
    try:
        with measured.hosts_of(host_cores):
            turns = measured.measure(extent, out)
    except HostCoresError as error:
        out.print(f"not measured with servers held to {host_cores:g} of a core: {error}")
        return
    out.print(table(title, turns, clients))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.cells", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke of moments, no figures")
    parser.add_argument("--clients", type=int, default=CLIENTS, help="of each merchant")
    parser.add_argument("--host-cores", type=float, default=HOST_CORES, help="of each server")
    given = parser.parse_args()
    extent = QUICK if given.quick else FULL
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    with rig(given.clients, var_dir) as measured:
        report(measured, extent, given.clients, given.host_cores, Console(width=100))


if __name__ == "__main__":
    uvloop.install()
    main()
