"""`make drill-cells` kills and freezes installations under load, and counts losses."""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from drills.cells import report, scene
from drills.cells.faults import FAULTS, Fault
from drills.cells.report import Run
from drills.cells.scene import Scene
from drills.client import Client
from drills.judge import Verdict, judge
from drills.load import Call, Load, failures
from drills.observe import outage_s

_REQUESTS_MAX = 100_000  # for each run
_DELIVERED_S = 150.0  # leases of a killed worker end after 45 s
_LOOK_S = 1.0
_CANCELS = 0.1


@dataclass(slots=True)
class Drill:
    """All runs, with their clients' requests."""

    scene: Scene
    per_s: float  # requests per second from each merchant
    around_s: float = 15.0  # duration of the load before a fault and after its repair
    calls: list[Call] = field(default_factory=list[Call])
    verdict: Verdict = field(default_factory=lambda: Verdict(frozenset(), frozenset(), frozenset()))

    async def run(self, fault: Fault) -> Run:
        """Inject a fault while both merchants send requests, and check the results."""
        loads = [
            Load(self.scene.target, own.api_key, self.per_s, _REQUESTS_MAX, cancels=_CANCELS)
            for own in self.scene.installations[:2]
        ]
        async with asyncio.TaskGroup() as work:
            for load in loads:
                work.create_task(load.run())
            try:
                await asyncio.sleep(self.around_s)
                since = time.monotonic()
                await fault.begin(self.scene)
                await asyncio.sleep(fault.hold_s)
                until = time.monotonic()
                await fault.end(self.scene)
                await asyncio.sleep(self.around_s)
            finally:
                for load in loads:
                    load.stop()
        own, other = loads[fault.installation], loads[1 - fault.installation]
        return await self._judge(fault, own, other, (since, until))

    async def _judge(
        self, fault: Fault, own: Load, other: Load, lasted: tuple[float, float]
    ) -> Run:
        since, until = lasted
        client = Client(self.scene.target, own.timeout_s)
        resent = await own.resend(client) + await other.resend(client)
        await client.close()
        self.calls += [*own.calls, *other.calls, *resent]
        before, self.verdict = self.verdict, await self._verdict()
        return Run(
            fault=fault.name,
            title=fault.title,
            is_harmless=fault.is_harmless,
            outage_s=outage_s(own.calls, since),
            before_s=[call.seconds for call in other.calls if call.due < since],
            during_s=[call.seconds for call in other.calls if since <= call.due < until],
            errors=failures(own.calls),
            others_failed=sum(not call.is_ok for call in other.calls),
            lost=len(self.verdict.lost - before.lost) + sum(not call.is_ok for call in resent),
            doubled=len(self.verdict.doubled - before.doubled),
            missing=len(self.verdict.missing - before.missing),
        )

    async def _verdict(self) -> Verdict:
        """Check all runs so far, and wait for missing webhooks until the deadline."""
        deadline = time.monotonic() + _DELIVERED_S
        while True:
            stored, events = await self.scene.stored()
            verdict = judge(self.calls, stored, events, self.scene.told())
            if not verdict.missing - self.verdict.missing or time.monotonic() > deadline:
                return verdict
            await asyncio.sleep(_LOOK_S)


async def _run(options: argparse.Namespace, folder: Path, console: Console) -> bool:
    runs: list[Run] = []
    try:
        async with scene.running(folder) as running_scene:
            drill = Drill(running_scene, options.rate)
            for fault in _chosen(options.only):
                for number in range(1, options.runs + 1):
                    runs.append(await drill.run(fault))
                    report.show_run(runs[-1], number, console)
    finally:  # even if the drill was interrupted
        if runs:
            console.print(report.table(runs))
            console.print("\n".join(report.markdown(runs)))
    return report.is_met(runs)


def _chosen(only: str) -> list[Fault]:
    names = only.split(",") if only else [fault.name for fault in FAULTS]
    return [fault for fault in FAULTS if fault.name in names]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make drill-cells")
    parser.add_argument("--runs", type=int, default=3, help="runs for each fault")
    parser.add_argument("--only", default="", help="fault names, separated by commas")
    parser.add_argument(
        "--rate", type=float, default=40.0, help="requests per second for each merchant"
    )
    options = parser.parse_args()
    names = [fault.name for fault in FAULTS]
    wrong = [name for name in options.only.split(",") if name and name not in names]
    if wrong:
        parser.error(f"unknown faults: {', '.join(wrong)}; valid faults: {', '.join(names)}")
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
    if not shutil.which("haproxy", path=path):
        parser.error("the drill needs HAProxy: install the Debian package haproxy")
    return options


def main() -> None:
    """Run the drill. The exit status is 1 if data was lost or the other merchant was affected."""
    options = _options()
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="drill-cells-", dir=var_dir) as folder:
        Path(folder).chmod(0o711)  # so that the database user can access the data
        met = asyncio.run(_run(options, Path(folder), Console(width=140)))
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
