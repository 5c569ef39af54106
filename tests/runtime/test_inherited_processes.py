"""A supervisor that continues with the processes of the previous program."""

import json
import subprocess
import sys

from tests.support.timeouts import PATIENCE_S

#: A process has ended, but the previous program has already received its SIGCHLD.
_PROGRAM = """
import os, signal, socket
from payintent.runtime.log import configure_logging
from payintent.runtime.processes.board import Board
from payintent.runtime.processes.child import Child
from payintent.runtime.processes.supervisor import Plan, _Supervisor

configure_logging()
pid = os.fork()
if pid == 0:
    os._exit(0)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
channel, _ = socket.socketpair()
ended = Child(pid, 1, channel, is_ready=True)
supervisor = _Supervisor(Plan(1, {}, signal.SIGTERM), Board.create(4), {}, [ended])
member = supervisor.run()
if member is not None:
    member.start()
    member.report_ready()
    os.kill(os.getppid(), signal.SIGTERM)
    signal.pause()
"""


def test_an_ended_process_without_a_signal_is_replaced_and_does_not_hold_up_the_roll() -> None:
    program = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    events = [json.loads(line)["event"] for line in program.stderr.splitlines()]
    assert events[0] == "process_ended"
    assert set(events[1:3]) == {"process_started", "roll_done"}
