"""Cluster faults under load, and their repairs."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from drills.ha import network
from drills.ha.cluster import Cluster, Members
from drills.ha.network import DATABASES, ETCDS
from drills.processes import Program


@dataclass(frozen=True, slots=True)
class Stage:
    """The objects that a fault can affect. `before` is the cluster's state before the fault."""

    cluster: Cluster
    front: dict[str, Program]  # haproxy, pgbouncer, api-1, api-2, worker
    before: Members = field(default_factory=lambda: Members({}, {}))


Step = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that is repaired after `hold_s`."""

    name: str
    title: str
    begin: Step
    hold_s: float
    end: Step


async def _nothing(_: Stage) -> None:
    await asyncio.sleep(0)


async def _start_leader_again(stage: Stage) -> None:
    await _start_again(stage, stage.before.leader)


async def _start_again(stage: Stage, *names: str) -> None:
    for name in names:
        program = stage.cluster.programs[name]
        await program.stop(signal.SIGKILL)
        await program.start()


async def _kill_postgres(stage: Stage) -> None:
    leader = stage.before.leader
    patroni = stage.cluster.programs[leader].process
    patroni_pid = patroni.pid if patroni else 0
    await asyncio.to_thread(network.send, leader, signal.SIGKILL, patroni_pid)


async def _kill_leader(stage: Stage) -> None:
    await asyncio.to_thread(network.send, stage.before.leader, signal.SIGKILL)


async def _kill_node(stage: Stage) -> None:
    for host in (stage.before.leader, _etcd_beside(stage)):
        await asyncio.to_thread(network.unplug, host)
        await asyncio.to_thread(network.send, host, signal.SIGKILL)


async def _mend_node(stage: Stage) -> None:
    both = _etcd_beside(stage), stage.before.leader
    for host in both:
        await asyncio.to_thread(network.plug_in, host)
    await _start_again(stage, *both)


def _etcd_beside(stage: Stage) -> str:
    return ETCDS[DATABASES.index(stage.before.leader)]


async def _freeze(stage: Stage) -> None:
    await asyncio.to_thread(network.send, stage.before.leader, signal.SIGSTOP)


async def _wake(stage: Stage) -> None:
    await asyncio.to_thread(network.send, stage.before.leader, signal.SIGCONT)


async def _switch_over(stage: Stage) -> None:
    await stage.cluster.switch_over()


async def _unplug(stage: Stage) -> None:
    await asyncio.to_thread(network.unplug, stage.before.leader)


async def _plug_in(stage: Stage) -> None:
    await asyncio.to_thread(network.plug_in, stage.before.leader)


async def _part_from_etcd(stage: Stage) -> None:
    await asyncio.to_thread(network.part, stage.before.leader, *ETCDS)


async def _join_etcd(stage: Stage) -> None:
    await asyncio.to_thread(network.join, stage.before.leader, *ETCDS)


async def _part_from_standby(stage: Stage) -> None:
    await asyncio.to_thread(network.part, stage.before.leader, stage.before.standby)


async def _join_standby(stage: Stage) -> None:
    await asyncio.to_thread(network.join, stage.before.leader, stage.before.standby)


async def _kill_etcd(stage: Stage) -> None:
    for host in ETCDS:
        await stage.cluster.programs[host].kill()


async def _start_etcd(stage: Stage) -> None:
    await _start_again(stage, *ETCDS)


def _restart(name: str) -> Step:
    async def restart(stage: Stage) -> None:
        await stage.front[name].stop()
        await stage.front[name].start()

    return restart


def _kill(name: str) -> Step:
    async def kill(stage: Stage) -> None:
        await stage.front[name].kill()

    return kill


def _start(name: str) -> Step:
    async def start(stage: Stage) -> None:
        await stage.front[name].start()

    return start


FAULTS = (
    Fault("switchover", "switchover", _switch_over, 5, _nothing),
    Fault("kill-postgres", "leader's PostgreSQL killed", _kill_postgres, 5, _nothing),
    Fault(
        "kill-leader",
        "leader's PostgreSQL and Patroni killed",
        _kill_leader,
        25,
        _start_leader_again,
    ),
    Fault("kill-node", "leader's host and one etcd member down", _kill_node, 30, _mend_node),
    Fault("freeze", "leader frozen for 30 s, then resumed", _freeze, 30, _wake),
    Fault("part-all", "leader isolated from all hosts for 30 s", _unplug, 30, _plug_in),
    Fault("part-etcd", "leader isolated only from etcd for 30 s", _part_from_etcd, 30, _join_etcd),
    Fault(
        "part-standby",
        "leader isolated only from its standby for 20 s",
        _part_from_standby,
        20,
        _join_standby,
    ),
    Fault("etcd-down", "etcd down for 30 s", _kill_etcd, 30, _start_etcd),
    Fault("haproxy", "HAProxy restarted", _restart("haproxy"), 2, _nothing),
    Fault("pgbouncer", "PgBouncer restarted", _restart("pgbouncer"), 2, _nothing),
    Fault("kill-api", "one of two APIs killed", _kill("api-1"), 3, _start("api-1")),
    Fault("kill-worker", "worker killed", _kill("worker"), 3, _start("worker")),
)
