"""The supervisor starts processes, restarts them if they die, and replaces them one by one.

It forks after all imports, so that processes share the memory of loaded modules. Forking is safe
only without threads, event loops or connections, so the supervisor uses none of them and only waits
for signals and messages.
"""

import gc
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

from prometheus_client import CollectorRegistry, Counter, Gauge

from payintent.runtime.log import get_logger
from payintent.runtime.processes import handover, metrics
from payintent.runtime.processes.board import ABSENT, Board
from payintent.runtime.processes.child import STATES, Child, compute_restart_wait_s
from payintent.runtime.processes.handover import Handover, ProcessState, bind
from payintent.runtime.processes.member import Member

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_READ_BYTES = 1_024


class SignalReader:
    """Receives the supervisor's signals. Repetitions of an unread signal are merged."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, _ignore)
        unblock_signals()

    def wait(
        self, sockets: Iterable[socket.socket], seconds: float
    ) -> tuple[set[int], list[socket.socket]]:
        by_descriptor = {channel.fileno(): channel for channel in sockets}
        poll = select.poll()
        for descriptor in (self._reader.fileno(), *by_descriptor):
            poll.register(descriptor, select.POLLIN)
        descriptors = [descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)]
        signals: set[int] = set()
        with suppress(BlockingIOError):
            signals.update(self._reader.recv(_READ_BYTES))
        return signals, [
            by_descriptor[descriptor] for descriptor in descriptors if descriptor in by_descriptor
        ]

    def close_in_child(self) -> None:
        """Restore the default signal handlers in a forked process."""
        for number in SIGNALS:
            default_handler = (
                signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            )
            signal.signal(number, default_handler)
        self.close()
        unblock_signals()

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        self._reader.close()
        self._writer.close()


def block_signals() -> None:
    """Block the supervisor's signals during a fork or exec, so that no signal is lost."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _ignore(*_: object) -> None:
    """Do nothing, because signal numbers are read from the socket."""


_WAIT_MAX_S = 60.0

_log = get_logger("supervisor")
_REGISTRY = CollectorRegistry()  # not the default registry, which the processes use
PROCESSES = Gauge("payintent_processes", "Processes by state", ["state"], registry=_REGISTRY)
ENDS = Counter(
    "payintent_process_ends_total", "Processes that exited unexpectedly", registry=_REGISTRY
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The number of processes, and the addresses that they listen on."""

    count: int
    addresses: Mapping[str, tuple[str, int]]
    retire_signal: signal.Signals  # ends a process whose successor is ready


def supervise(plan: Plan) -> Member:
    """Become the supervisor of several processes, and return in each of them.

    In the supervisor, raises SystemExit when all processes have ended, or if a process cannot
    start while no other process is running. Raises `BindError` if an
    address cannot be bound.
    """
    previous_state = handover.receive_handover()
    supervisor = _create(plan) if previous_state is None else _resume(plan, previous_state)
    member = supervisor.run()
    if member is None:
        raise SystemExit(supervisor.status)
    member.start()
    return member


def _create(plan: Plan) -> "_Supervisor":
    sockets = {name: bind(host, port) for name, (host, port) in plan.addresses.items()}
    return _Supervisor(plan, Board.create(2 * plan.count + 2), sockets)


def _resume(plan: Plan, previous_state: Handover) -> "_Supervisor":
    """Continue with the previous program's processes until they are replaced."""
    children = [
        Child(item.pid, item.number, item.open_channel(), is_ready=item.is_ready)
        for item in previous_state.processes
    ]
    handover.set_inheritable(previous_state, inheritable=False)
    return _Supervisor(
        limit_plan(plan, previous_state.slots),
        previous_state.open_board(),
        previous_state.open_sockets(),
        children,
        previous_state.unexpected_ends,
    )


def limit_plan(plan: Plan, slots: int) -> Plan:
    """Limit a plan to the slots of a board that was created for a different plan.

    One slot is for the supervisor, and one for a successor while it replaces a process.
    """
    count_max = slots - 2
    if plan.count <= count_max:
        return plan
    _log.warning("processes_bounded", wanted=plan.count, count=count_max)
    return replace(plan, count=count_max)


class _Supervisor:
    """Runs the processes. `run` also returns in each forked process."""

    def __init__(
        self,
        plan: Plan,
        board: Board,
        sockets: dict[str, list[socket.socket]],
        inherited_children: Sequence[Child] = (),
        unexpected_ends: int = 0,
    ) -> None:
        self.status = 0
        self._plan = plan
        self._board = board
        self._sockets = sockets
        self._signals = SignalReader()
        self._children = {child.pid: child for child in inherited_children}
        #: Pending starts: the time and the number of consecutive failures.
        self._starts = [(0.0, 0)] * max(0, plan.count - len(inherited_children))
        self._has_served = any(child.is_ready for child in inherited_children)
        self._is_stopping = False
        self._unexpected_ends = unexpected_ends  # including those under previous programs
        ENDS.inc(unexpected_ends)
        self._is_rolling = bool(inherited_children)
        self._is_roll_requested = False
        self._trial_pid: int | None = None
        self._replacement_queue = deque(inherited_children)
        self._replacement: tuple[Child, Child] | None = None  # the new and the old process

    def run(self) -> Member | None:
        """Run until all processes have ended. Returns a `Member` in each forked process."""
        gc.collect()
        gc.freeze()  # otherwise the collector would write to objects and thereby copy shared memory
        self._reap()  # the previous program may have received the signals of inherited processes
        while self._children or self._starts:
            member = self._start_due() or self._continue_roll()
            if member is not None:
                return member
            self._publish()
            self._wait()
        self._signals.close()
        self._close_sockets()
        return None

    def _start_due(self) -> Member | None:
        """Start the processes that are due. Returns a `Member` in a new process."""
        now = time.monotonic()
        while self._starts and self._starts[0][0] <= now and self._may_start():
            _, failures = self._starts.pop(0)
            process = self._start(failures)
            if isinstance(process, Member):
                return process
            if process is None:
                self._schedule_start(failures + 1)
        return None

    def _may_start(self) -> bool:
        """Return whether to start a process. Until a process becomes ready, only one may run."""
        return self._has_served or not self._children

    def _schedule_start(self, failures: int) -> float:
        """Schedule a start after consecutive failures, and return the delay."""
        wait_s = compute_restart_wait_s(failures)
        self._starts.append((time.monotonic() + wait_s, failures))
        self._starts.sort()
        return wait_s

    def _start(self, failures: int = 0) -> Child | Member | None:
        """Fork a process. Returns a `Child` in the supervisor, and a `Member` in the new process.

        Returns None if the system does not allow more processes.
        """
        used_numbers = {child.number for child in self._children.values()}
        number = next(slot for slot in range(1, self._board.slots) if slot not in used_numbers)
        parent_channel, child_channel = socket.socketpair()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # otherwise both processes would write the buffered text
        block_signals()
        try:
            pid = os.fork()
        except OSError as error:
            pid = -1
            _log.error("process_not_started", number=number, why=error.strerror)
        if pid == 0:
            return self._become_member(number, parent_channel, child_channel)
        unblock_signals()
        child_channel.close()
        if pid < 0:
            parent_channel.close()
            return None
        child = self._children[pid] = Child(pid, number, parent_channel, failures)
        _log.info("process_started", number=number, pid=pid)
        return child

    def _become_member(
        self, number: int, parent_channel: socket.socket, child_channel: socket.socket
    ) -> Member:
        """Release the supervisor's resources, in particular its ends of all socket pairs."""
        os.setpgrp()  # Ctrl-C must reach only the supervisor, which then stops its processes
        self._signals.close_in_child()
        parent_channel.close()
        for child in self._children.values():
            child.channel.close()
        return Member(number, self._board, self._sockets, child_channel)

    def _wait(self) -> None:
        by_channel = {
            child.channel: child for child in self._children.values() if child.is_starting
        }
        signals, readable = self._signals.wait(
            by_channel, self._compute_next_event_at() - time.monotonic()
        )
        for channel in readable:
            by_channel[channel].read_channel()
            self._has_served |= by_channel[channel].is_ready
        if signal.SIGCHLD in signals:
            self._reap()
        for number in (signal.SIGTERM, signal.SIGINT):
            if number in signals:
                self._stop(number)
        if signal.SIGHUP in signals:
            self._roll()
        self._kill_overdue()

    def _compute_next_event_at(self) -> float:
        starts = [at for at, _ in self._starts] if self._may_start() else []
        kills = [child.kill_at for child in self._children.values()]
        return min([*starts, *kills, time.monotonic() + _WAIT_MAX_S])

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if pid == self._trial_pid:
                self._finish_trial(code)
            elif (child := self._children.pop(pid, None)) is not None:
                self._handle_exit(child, code)

    def _handle_exit(self, child: Child, code: int) -> None:
        """Clean up after a process, and restart it; `code` is negative if a signal ended it."""
        child.channel.close()
        self._board.set_connections(child.number, ABSENT)
        metrics.add_ended_process(self._board, child.number)
        if child.is_ending:
            _log.info("process_stopped", number=child.number, pid=child.pid, status=code)
            return
        self._unexpected_ends += 1
        ENDS.inc()
        if code > 0 and not child.is_ready and not self._list_running_children():
            self.status = code  # the process has logged the reason, and no other process is running
            self._stop(signal.SIGTERM)
            return
        self._restart(child, code)

    def _restart(self, child: Child, code: int) -> None:
        """Schedule a replacement, unless there are enough processes."""
        restart_in_s: float | None = None
        if self._replacement is not None and child is self._replacement[0] and not child.is_ready:
            self._abort_roll("the new process ended before it was ready")
        if len(self._list_running_children()) + len(self._starts) < self._plan.count:
            restart_in_s = round(self._schedule_start(child.count_next_failures()), 1)
        _log.warning(
            "process_ended",
            number=child.number,
            pid=child.pid,
            status=code,
            again_in_s=restart_in_s,
        )

    def _list_running_children(self) -> list[Child]:
        return [child for child in self._children.values() if not child.is_ending]

    def _stop(self, signal_number: signal.Signals) -> None:
        """End all processes. They drain first, unless the signal is SIGINT or a second signal."""
        is_first = not self._is_stopping
        self._is_stopping = True
        self._starts.clear()
        self._replacement_queue.clear()
        self._close_sockets()  # otherwise clients could connect after the last process has ended
        for child in self._children.values():
            child.end(signal_number if is_first else signal.SIGINT)

    def _close_sockets(self) -> None:
        for listener in chain.from_iterable(self._sockets.values()):
            listener.close()

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for child in self._children.values():
            if child.kill_at <= now:
                _log.error("process_killed", number=child.number, pid=child.pid)
                child.kill()

    def _roll(self) -> None:
        """Start a trial of the installed program, and execute the program if the trial succeeds."""
        if self._is_stopping:
            return
        if self._is_rolling:
            self._is_roll_requested = True
            return
        self._is_rolling = True
        try:
            self._trial_pid = handover.start_trial()
        except OSError as error:
            self._abort_roll(f"the program cannot be started: {error.strerror}")

    def _finish_trial(self, code: int) -> None:
        self._trial_pid = None
        if code != 0:
            self._abort_roll("the installed program cannot start with these settings")
        elif not self._is_stopping:
            self._execute_new_program()

    def _execute_new_program(self) -> None:
        block_signals()
        try:
            handover.execute_new_program(self._make_handover())
        except OSError as error:
            unblock_signals()
            self._abort_roll(f"the program cannot be started: {error.strerror}")

    def _make_handover(self) -> Handover:
        return Handover(
            board=self._board.descriptor,
            slots=self._board.slots,
            sockets={
                name: [listener.fileno() for listener in listeners]
                for name, listeners in self._sockets.items()
            },
            processes=[
                ProcessState(child.pid, child.number, child.channel.fileno(), child.is_ready)
                for child in self._children.values()
            ],
            unexpected_ends=self._unexpected_ends,
        )

    def _continue_roll(self) -> Member | None:
        """Start a process's successor, and retire the process once its successor is ready."""
        if not self._is_rolling or self._trial_pid is not None or self._is_stopping:
            return None
        if self._replacement is not None:
            new_child, old_child = self._replacement
            if new_child.is_ready and not old_child.is_ending:
                old_child.end(self._plan.retire_signal)
            if old_child.pid in self._children:
                return None
            self._replacement = None
        while self._replacement_queue:
            old_child = self._replacement_queue.popleft()
            if old_child.pid in self._children and not old_child.is_ending:
                return self._replace(old_child)
        _log.info("roll_done", processes=len(self._children))
        self._end_roll()
        return None

    def _replace(self, old_child: Child) -> Member | None:
        """Start a process's successor. If there are too many processes, only retire the process."""
        if len(self._list_running_children()) > self._plan.count:
            old_child.end(self._plan.retire_signal)
            return None
        process = self._start()
        if isinstance(process, Member):
            return process
        if process is None:
            self._abort_roll("no process could be started")
        else:
            self._replacement = (process, old_child)
        return None

    def _abort_roll(self, reason: str) -> None:
        """Stop replacing processes. Processes that have not been replaced yet keep running."""
        _log.error("roll_failed", why=reason)
        self._replacement_queue.clear()
        self._replacement = None
        self._end_roll()

    def _end_roll(self) -> None:
        self._is_rolling = False
        if self._is_roll_requested:
            self._is_roll_requested = False
            self._roll()

    def _publish(self) -> None:
        states = [child.state for child in self._children.values()]
        for state in STATES:
            PROCESSES.labels(state).set(states.count(state))
        metrics.publish_supervisor(self._board, _REGISTRY.collect())
