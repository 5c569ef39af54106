"""The load generator: a process with 32 keep-alive connections and one request at a time on each.

It reads a `Plan` as JSON from standard input, and writes a `Load` as JSON to standard output.
"""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from bench.http import body_start

KEY = b"{key}"
ID = b"{id}"
#: The metadata and body of every creation request.
CREATE_METADATA = (
    '{"order_id":"A-1009","product":{"name":"The Sea, the Sea","category":"books","quantity":1}}'
)
CREATE_BODY = (
    '{"currency":"THB","amount":"1590.00","payer_uid":"buyer-1","payer_email":"b@example.com",'
    f'"country":"TH","expires_in":86400,"metadata":{CREATE_METADATA}}}'
)
_ID_AT = len('{"id":"')
_ID_CHARS = 26
_FIRST_ANSWER_S = 60.0
_BEGINS = 64  # the first bytes of a response, which contain the requested id


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The request, its target and its timing."""

    port: int
    pid: int  # of the server whose CPU time is measured; 0 if it has several processes
    clients: int
    warm_s: float
    measured_s: float
    request: bytes  # may contain `{key}` for a new idempotency key, or `{id}` for an id from `ids`
    status: int  # expected in every response
    ids: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The results of the measured period; `distinct`, `total` and `wrong` cover the whole run."""

    answers: int
    seconds: float
    server_cpu_s: float
    own_cpu_s: float
    distinct: int  # number of different ids in all responses
    total: int  # number of responses
    wrong: int  # responses with an unexpected status or payment
    first_wrong: str


@dataclass(slots=True)
class _Tally:
    """The counters shared by all connections."""

    total: int = 0
    wrong: int = 0
    first_wrong: str = ""
    stopped: bool = False
    response_ids: list[bytes] = field(default_factory=list)


class _Client(asyncio.Protocol):
    """A connection."""

    def __init__(self, plan: Plan, ask: Callable[[], tuple[bytes, bytes]], tally: _Tally) -> None:
        self._status = f"HTTP/1.1 {plan.status} ".encode()
        self._ask = ask
        self._tally = tally
        self._buffer = b""
        self._wanted = b""  # the id expected in the response; empty if it is new

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        start = body_start(data)
        if not start:
            self._buffer = data
            return
        self._buffer = b""
        begins = data[start : start + _BEGINS]
        tally = self._tally
        tally.total += 1
        tally.response_ids.append(begins[_ID_AT : _ID_AT + _ID_CHARS])
        if not data.startswith(self._status) or self._wanted not in begins:
            tally.wrong += 1
            tally.first_wrong = tally.first_wrong or data.decode(errors="replace")
        if not tally.stopped:
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._tally.stopped:
            self._tally.wrong += 1
            self._tally.first_wrong = self._tally.first_wrong or f"connection lost: {exc}"

    def _next(self) -> None:
        request_bytes, self._wanted = self._ask()
        self._transport.write(request_bytes)


async def run(plan: Plan) -> Load:
    """Send the plan's requests for its duration."""
    loop = asyncio.get_running_loop()
    tally = _Tally()
    ask = _creating(plan) if KEY in plan.request else _reading(plan)
    connections = [
        await loop.create_connection(lambda: _Client(plan, ask, tally), "127.0.0.1", plan.port)
        for _ in range(plan.clients)
    ]
    await asyncio.sleep(plan.warm_s)
    before, server_before, own_before = tally.total, _server_cpu_s(plan), time.process_time()
    start = time.perf_counter()
    await asyncio.sleep(plan.measured_s)
    while _is_empty(plan, tally.total - before, server_before) and (
        time.perf_counter() < start + _FIRST_ANSWER_S
    ):
        await asyncio.sleep(plan.measured_s)
    seconds = time.perf_counter() - start
    answers = tally.total - before
    server_cpu_s = _server_cpu_s(plan) - server_before
    own_cpu_s = time.process_time() - own_before
    tally.stopped = True
    for transport, _ in connections:
        transport.close()
    return Load(
        answers=answers,
        seconds=seconds,
        server_cpu_s=server_cpu_s,
        own_cpu_s=own_cpu_s,
        distinct=len(set(tally.response_ids)),
        total=tally.total,
        wrong=tally.wrong,
        first_wrong=tally.first_wrong,
    )


def _is_empty(plan: Plan, answers: int, server_before: float) -> bool:
    """Return whether a round has no results yet, as happens in short rounds on a busy machine."""
    return not answers or bool(plan.pid and cpu_s(plan.pid) == server_before)


def _server_cpu_s(plan: Plan) -> float:
    return cpu_s(plan.pid) if plan.pid else 0.0


def run_load(plan: Plan) -> Load:
    """Run a load in a separate process. Raises RuntimeError if a response is wrong."""
    result = subprocess.run(
        [sys.executable, "-m", "bench.load"],
        input=msgspec.json.encode(plan),
        stdout=subprocess.PIPE,
        check=True,
    )
    load = msgspec.json.decode(result.stdout, type=Load)
    if load.wrong or not load.answers:
        raise RuntimeError(f"{load.wrong} wrong responses, such as:\n{load.first_wrong}")
    return load


def cpu_s(pid: int) -> float:
    """Read the user and system CPU time of a process (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def database_cpu_s(backend_pid: int) -> float:
    """Read the CPU time of all processes of a PostgreSQL server, given the id of one process."""
    parents = {int(path.name): _parent(path) for path in Path("/proc").glob("[0-9]*")}
    server = parents[backend_pid]
    fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
    ended_s = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    alive = [pid for pid, parent in parents.items() if parent == server]
    return cpu_s(server) + ended_s + sum(map(cpu_s, alive))


def _parent(path: Path) -> int:
    try:
        return int((path / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # the process has ended
        return 0


def _creating(plan: Plan) -> Callable[[], tuple[bytes, bytes]]:
    before, _, after = plan.request.partition(KEY)
    count = 0

    def ask() -> tuple[bytes, bytes]:
        # Keys start with random digits, like real keys, so that index inserts are realistic.
        nonlocal count
        count += 1
        high, low = random.getrandbits(32), random.getrandbits(48)
        key = b"%08x-%04x-4%03x-8000-%012x" % (high, count >> 12 & 0xFFFF, count & 0xFFF, low)
        return before + key + after, b""

    return ask


def _reading(plan: Plan) -> Callable[[], tuple[bytes, bytes]]:
    if not plan.ids:
        return lambda: (plan.request, b"")
    before, _, after = plan.request.partition(ID)
    ids = [item.encode() for item in plan.ids]
    built = [(before + item + after, item) for item in ids]
    return lambda: random.choice(built)


def main() -> None:
    """Run a plan."""
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(run(plan))))


if __name__ == "__main__":
    main()
