"""The supervisor: starts processes, restarts those that die, replaces them one at a time.

It forks them from itself once everything is imported, so that they share that memory. A fork is
safe only where no thread, no event loop and no connection exists, so the supervisor has none: it
waits for signals and for the ties of its processes, and does nothing else.
"""

import gc
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from prometheus_client import CollectorRegistry, Counter, Gauge

from payintent.log import get_logger
from payintent.processes import handover, metrics, wakeup
from payintent.processes.board import ABSENT, Board
from payintent.processes.child import STATES, Child, restart_wait_s
from payintent.processes.handover import HandedProcess, Handover
from payintent.processes.listening import bind
from payintent.processes.member import Member

_LOOK_MAX_S = 60.0

_log = get_logger("supervisor")
_REGISTRY = CollectorRegistry()  # of the supervisor: what it counts is no process's
PROCESSES = Gauge("payintent_processes", "Processes by state", ["state"], registry=_REGISTRY)
ENDS = Counter(
    "payintent_process_ends_total",
    "Processes that ended without being told to",
    registry=_REGISTRY,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a supervisor runs: how many processes, and the addresses that they listen on."""

    count: int
    addresses: Mapping[str, tuple[str, int]]
    retire: signal.Signals  # ends a process whose successor serves already


def supervise(plan: Plan) -> Member:
    """Become the supervisor of several processes; returns in each of them.

    The supervisor itself ends (SystemExit) when all have ended, or when one cannot start and there
    is no other. Raises `BindError`.
    """
    handed = handover.receive()
    supervisor = _new(plan) if handed is None else _adopt(plan, handed)
    member = supervisor.run()
    if member is None:
        raise SystemExit(supervisor.status)
    member.start()
    return member


def _new(plan: Plan) -> "_Supervisor":
    sockets = {name: bind(host, port) for name, (host, port) in plan.addresses.items()}
    return _Supervisor(plan, Board.create(2 * plan.count + 2), sockets)


def _adopt(plan: Plan, handed: Handover) -> "_Supervisor":
    """Take over what an older program of this process was; its processes are replaced."""
    children = [
        Child(item.pid, item.number, item.open_tie(), is_ready=item.ready)
        for item in handed.processes
    ]
    handover.keep_to_this_program(handed)
    return _Supervisor(
        bounded(plan, handed.slots),
        handed.open_board(),
        handed.open_sockets(),
        children,
        handed.unexpected_ends,
    )


def bounded(plan: Plan, slots: int) -> Plan:
    """Return a plan for a board that was made for another count, before the host had more cores.

    One slot is the supervisor's, and one is for a process that takes another one's place.
    """
    most = slots - 2
    if plan.count <= most:
        return plan
    _log.warning("processes_bounded", wanted=plan.count, count=most)
    return replace(plan, count=most)


class _Supervisor:
    """The processes, and what is to be done with them; `run` returns in each process too."""

    def __init__(
        self,
        plan: Plan,
        board: Board,
        sockets: dict[str, list[socket.socket]],
        adopted: Sequence[Child] = (),
        unexpected_ends: int = 0,
    ) -> None:
        self.status = 0
        self._plan = plan
        self._board = board
        self._sockets = sockets
        self._wakeup = wakeup.Wakeup()
        self._children = {child.pid: child for child in adopted}
        self._due = [(0.0, 0)] * max(0, plan.count - len(adopted))  # when, after how many failures
        self._has_served = any(child.is_ready for child in adopted)
        self._stopping = False
        self._unexpected_ends = unexpected_ends  # those before this program took over, too
        ENDS.inc(unexpected_ends)
        self._is_rolling = bool(adopted)
        self._roll_again = False
        self._trial: int | None = None  # the process that tries the program that is installed now
        self._to_replace = deque(adopted)
        self._replaced: tuple[Child, Child] | None = None  # the new one, and whose place it takes

    def run(self) -> Member | None:
        """Run until every process has ended; gives a process its part, the supervisor nothing."""
        gc.collect()
        gc.freeze()  # a collection would write to every object, and so copy the shared memory
        while self._children or self._due:
            member = self._start_due() or self._roll_on()
            if member is not None:
                return member
            self._publish()
            self._wait()
        self._wakeup.close()
        self._close_sockets()
        return None

    # Start

    def _start_due(self) -> Member | None:
        """Start what is due; until one process serves there is one at a time, to say why not."""
        now = time.monotonic()
        while self._due and self._due[0][0] <= now and (self._has_served or not self._children):
            _, failures = self._due.pop(0)
            started = self._start(failures)
            if isinstance(started, Member):
                return started
            if started is None:
                self._start_later(failures + 1)
        return None

    def _start_later(self, failures: int) -> float:
        """Start a process after so many failures in a row; returns in how many seconds."""
        wait_s = restart_wait_s(failures)
        self._due.append((time.monotonic() + wait_s, failures))
        self._due.sort()
        return wait_s

    def _start(self, failures: int = 0) -> Child | Member | None:
        """Fork a process; gives the supervisor its child, and the process its part.

        None where the system allows no more processes.
        """
        taken = {child.number for child in self._children.values()}
        number = next(n for n in range(1, self._board.slots) if n not in taken)
        ours, theirs = socket.socketpair()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # or both would write what is in the buffers
        wakeup.block()
        try:
            pid = os.fork()
        except OSError as error:
            pid = -1
            _log.error("process_not_started", number=number, why=error.strerror)
        if pid == 0:
            return self._become_process(number, ours, theirs)
        wakeup.unblock()
        theirs.close()
        if pid < 0:
            ours.close()
            return None
        child = self._children[pid] = Child(pid, number, ours, failures)
        _log.info("process_started", number=number, pid=pid)
        return child

    def _become_process(self, number: int, ours: socket.socket, theirs: socket.socket) -> Member:
        """Let go of what is the supervisor's alone, above all of the ends of all ties."""
        os.setpgrp()  # Ctrl-C reaches the supervisor alone, which ends its processes in order
        self._wakeup.close_in_child()
        ours.close()
        for child in self._children.values():
            child.tie.close()
        return Member(number, self._board, self._sockets, theirs)

    # Wait, and see what happened

    def _wait(self) -> None:
        silent = {child.tie: child for child in self._children.values() if child.is_awaited}
        signals, readable = self._wakeup.wait(silent, self._next_at() - time.monotonic())
        for tie in readable:
            self._hear(silent[tie])
        if signal.SIGCHLD in signals:
            self._reap()
        for number in (signal.SIGTERM, signal.SIGINT):
            if number in signals:
                self._stop(number)
        if signal.SIGHUP in signals:
            self._roll()
        self._kill_overdue()

    def _next_at(self) -> float:
        """Return when something is to be done though nothing happens."""
        starts = [at for at, _ in self._due] if self._has_served or not self._children else []
        kills = [child.kill_at for child in self._children.values()]
        return min([*starts, *kills, time.monotonic() + _LOOK_MAX_S])

    def _hear(self, child: Child) -> None:
        child.read_tie()
        self._has_served |= child.is_ready

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if pid == self._trial:
                self._tried(code)
            elif (child := self._children.pop(pid, None)) is not None:
                self._ended(child, code)

    def _ended(self, child: Child, code: int) -> None:
        """Do what the end of a process asks for; a negative code is the signal that killed it."""
        child.tie.close()
        self._board.set_connections(child.number, ABSENT)
        metrics.fold(self._board, child.number)
        if child.is_ending:
            _log.info("process_stopped", number=child.number, pid=child.pid, status=code)
            return
        self._unexpected_ends += 1
        ENDS.inc()
        if code > 0 and not child.is_ready and not self._living():
            self.status = code  # it has said why; meanwhile clients would wait for nobody
            self._stop(signal.SIGTERM)
            return
        self._restart(child, code)

    def _restart(self, child: Child, code: int) -> None:
        """Start another process in its place, unless there are enough."""
        again_in_s: float | None = None
        if self._replaced is not None and child is self._replaced[0] and not child.is_ready:
            self._give_up_roll("the new process ended before it served")
        if len(self._living()) + len(self._due) < self._plan.count:
            again_in_s = round(self._start_later(child.failures_now()), 1)
        _log.warning(
            "process_ended",
            number=child.number,
            pid=child.pid,
            status=code,
            again_in_s=again_in_s,
        )

    def _living(self) -> list[Child]:
        return [child for child in self._children.values() if not child.is_ending]

    # Stop

    def _stop(self, number: signal.Signals) -> None:
        """End all processes: by SIGTERM as they drain, by Ctrl-C or a second time at once."""
        is_first = not self._stopping
        self._stopping = True
        self._due.clear()
        self._to_replace.clear()
        self._close_sockets()  # so that the last process can close them in order
        for child in self._children.values():
            child.end(number if is_first else signal.SIGINT)

    def _close_sockets(self) -> None:
        for listener in chain.from_iterable(self._sockets.values()):
            listener.close()

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for child in self._children.values():
            if child.kill_at <= now:
                _log.error("process_killed", number=child.number, pid=child.pid)
                child.kill()

    # Replace one after the other

    def _roll(self) -> None:
        """Try the program that is installed now, and then become it."""
        if self._stopping:
            return
        if self._is_rolling:
            self._roll_again = True
            return
        self._is_rolling = True
        try:
            self._trial = handover.start_trial()
        except OSError as error:
            self._give_up_roll(f"the program cannot be started: {error.strerror}")

    def _tried(self, code: int) -> None:
        self._trial = None
        if code != 0:
            self._give_up_roll("the program that is installed now cannot start with these settings")
        elif not self._stopping:
            self._become_new()

    def _become_new(self) -> None:
        wakeup.block()
        try:
            handover.become_new(self._handover())
        except OSError as error:
            wakeup.unblock()
            self._give_up_roll(f"the program cannot be started: {error.strerror}")

    def _handover(self) -> Handover:
        return Handover(
            board=self._board.descriptor,
            slots=self._board.slots,
            sockets={
                name: [listener.fileno() for listener in listeners]
                for name, listeners in self._sockets.items()
            },
            processes=[
                HandedProcess(child.pid, child.number, child.tie.fileno(), child.is_ready)
                for child in self._children.values()
            ],
            unexpected_ends=self._unexpected_ends,
        )

    def _roll_on(self) -> Member | None:
        """Start a process, retire the older one when that serves, and go on when it has ended."""
        if not self._is_rolling or self._trial is not None or self._stopping:
            return None
        if self._replaced is not None:
            new, old = self._replaced
            if new.is_ready and not old.is_ending:
                old.end(self._plan.retire)
            if old.pid in self._children:
                return None
            self._replaced = None
        while self._to_replace:
            old = self._to_replace.popleft()
            if old.pid in self._children and not old.is_ending:
                return self._replace(old)
        _log.info("roll_done", processes=len(self._children))
        self._end_roll()
        return None

    def _replace(self, old: Child) -> Member | None:
        """Start the process that takes another's place; without one where there are too many."""
        if len(self._living()) > self._plan.count:
            old.end(self._plan.retire)
            return None
        started = self._start()
        if isinstance(started, Member):
            return started
        if started is None:
            self._give_up_roll("no process could be started")
        else:
            self._replaced = (started, old)
        return None

    def _give_up_roll(self, why: str) -> None:
        """Leave every process that is not replaced yet as it is."""
        _log.error("roll_failed", why=why)
        self._to_replace.clear()
        self._replaced = None
        self._end_roll()

    def _end_roll(self) -> None:
        self._is_rolling = False
        if self._roll_again:
            self._roll_again = False
            self._roll()

    # Metrics

    def _publish(self) -> None:
        states = [child.state for child in self._children.values()]
        for state in STATES:
            PROCESSES.labels(state).set(states.count(state))
        metrics.publish_supervisor(self._board, _REGISTRY.collect())
