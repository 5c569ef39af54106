"""Injects the faults. `drills.ha` starts this module on the service's host."""

import argparse
import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from drills.client import Client
from drills.ha import faults, report, service
from drills.ha.cluster import Cluster
from drills.ha.faults import Fault, Stage
from drills.ha.programs import Passwords, databases
from drills.ha.report import Run
from drills.ha.service import Scene
from drills.judge import Verdict, judge
from drills.load import CREATE, Call, Load, failures
from drills.observe import outage_s, settled_s

_BEFORE_S = 5.0
_AFTER_S = 10.0
_REQUESTS_MAX = 20_000  # for each run
_DELIVERED_S = 150.0  # a killed worker's leases expire after 45 s
_LOOK_S = 1.0
_CANCELS = 0.1
_STOPPED = 130


@dataclass(slots=True)
class Drill:
    """All runs, with the requests of their clients."""

    stage: Stage
    scene: Scene
    per_s: float
    calls: list[Call] = field(default_factory=list[Call])
    verdict: Verdict = field(default_factory=lambda: Verdict(frozenset(), frozenset(), frozenset()))

    async def run(self, fault: Fault) -> Run:
        """Inject a fault under load, and check the payments."""
        stage = replace(self.stage, before=await self.stage.cluster.whole())
        load = Load(
            self.scene.target, self.scene.api_key, self.per_s, _REQUESTS_MAX, cancels=_CANCELS
        )
        async with asyncio.TaskGroup() as work:
            work.create_task(load.run())
            try:
                await asyncio.sleep(_BEFORE_S)
                since = time.monotonic()
                await fault.begin(stage)
                await asyncio.sleep(fault.hold_s)
                await fault.end(stage)
                await stage.cluster.whole()
                await asyncio.sleep(_AFTER_S)
            finally:
                load.stop()
        return await self._judge(fault, load, since)

    async def _judge(self, fault: Fault, load: Load, since: float) -> Run:
        client = Client(self.scene.target, load.timeout_s)
        resent = await load.resend(client)
        await client.close()
        self.calls += [*load.calls, *resent]
        before, self.verdict = self.verdict, await self._verdict()
        left = sum(not call.is_ok for call in resent)
        return Run(
            fault=fault.name,
            title=fault.title,
            acknowledged=sum(call.is_ok and call.kind == CREATE for call in load.calls),
            outage_s=outage_s(load.calls, since),
            settled_s=settled_s(load.calls, since),
            errors=failures(load.calls) + failures([call for call in resent if left]),
            lost=len(self.verdict.lost - before.lost),
            doubled=len(self.verdict.doubled - before.doubled),
            missing=len(self.verdict.missing - before.missing),
        )

    async def _verdict(self) -> Verdict:
        """Check all runs so far, and wait for missing webhooks until the deadline."""
        deadline = time.monotonic() + _DELIVERED_S
        while True:
            stored, events = await self.scene.stored()
            verdict = judge(self.calls, stored, events, self.scene.receiver.told)
            if not verdict.missing - self.verdict.missing or time.monotonic() > deadline:
                return verdict
            await asyncio.sleep(_LOOK_S)


async def _run(options: argparse.Namespace, console: Console) -> bool:
    folder: Path = options.folder
    passwords = Passwords()
    cluster = Cluster(databases(folder, options.patroni, passwords), passwords)
    runs: list[Run] = []
    await cluster.start()
    leader = (await cluster.whole()).leader
    async with service.running(folder, leader, passwords) as scene:
        drill = Drill(Stage(cluster, scene.front), scene, options.rate)
        try:
            for number in range(1, options.runs + 1):
                for fault in _chosen(options.only):
                    runs.append(await drill.run(fault))
                    report.show_run(runs[-1], number, console)
        finally:  # even if the drill was interrupted
            console.print(report.table(runs))
            options.table.write_text("\n".join(report.markdown(runs)) + "\n")
    return all(run.is_clean for run in runs)


def _chosen(only: str) -> Iterable[Fault]:
    names = only.split(",") if only else [fault.name for fault in faults.FAULTS]
    return [fault for fault in faults.FAULTS if fault.name in names]


def main() -> int:
    """Run the selected faults. Return 0 if nothing was lost, duplicated or missing."""
    parser = argparse.ArgumentParser(prog="drills.ha.run")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--patroni", type=Path, required=True)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--only", default="")
    try:
        return 0 if asyncio.run(_run(parser.parse_args(), Console(width=120))) else 1
    except KeyboardInterrupt:
        return _STOPPED


if __name__ == "__main__":
    raise SystemExit(main())
