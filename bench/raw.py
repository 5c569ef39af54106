"""Measure a baseline: pgbench runs exactly the service's statements, and nothing else."""

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from payintent.db.database import Row
from payintent.db.sealing import PayerSealing
from payintent.payments import new_store as new_payments
from payintent.payments import store as payment_store
from payintent.payments.model import CreatePaymentRequest
from payintent.payments.new_store import NewPayment
from payintent.runtime.encryption import Encryption

_THREADS = 2
_EXTRA_S = 60  # after the measured time, before pgbench is stopped
_TRANSACTIONS_PER_S = 100  # approximate rate of a client
_LONGER = (1, 5, 25)  # multiples of the duration, tried until a run completes a transaction
_TPS = re.compile(r"^tps = ([0-9.]+)", re.MULTILINE)
_FAILED = re.compile(r"^number of failed transactions: ([0-9]+)", re.MULTILINE)
_PARAMETER = re.compile(r"\$([0-9]+)")
# pgbench computes only with integers, so an id consists of half a UUID and 18 decimal digits.
_NEW_HALF, _KNOWN_HALF, _KEY_HALF = "01990000000000", "01980000000000", "00000000000000"
_FIRST = 10**17


@dataclass(frozen=True, slots=True)
class Script:
    """A transaction for pgbench, and its initial variables."""

    text: str
    variables: Mapping[str, str]


class _Recorder:
    """Replaces the database, and records the statement instead of running it."""

    def __init__(self) -> None:
        encryption = Encryption(bytes(32), {"bench": bytes(32)})
        self.payer_sealing = PayerSealing(encryption, is_on=False)
        self.query = ""
        self.arguments: Sequence[object] = ()

    async def row(self, query: LiteralString, *args: object) -> Row | None:
        self.query, self.arguments = query, args
        return None

    async def value(self, query: LiteralString, *args: object) -> Any:
        self.query, self.arguments = query, args

    async def fetch(self, query: LiteralString, *args: object) -> list[Row]:
        self.query, self.arguments = query, args
        return []


def known_id(number: int) -> UUID:
    """Return the id of a payment that `read_script` reads."""
    return UUID(f"{_KNOWN_HALF}{_FIRST + number}")


async def create_script(request: CreatePaymentRequest, series: int) -> Script:
    """Return a script that repeats a create request, with ids that no other series uses."""
    recorder = _Recorder()
    payment_id, checkout_id = uuid4(), f"cs_{uuid4().hex[:16]}"
    await new_payments.create(recorder, NewPayment(payment_id, checkout_id, request))
    ours = {
        payment_id: f"('{_NEW_HALF}' || :id)::uuid",
        request.key: f"('{_KEY_HALF}' || :key)::uuid",
        checkout_id: "('cs_' || :checkout)",
    }
    # Ascending ids and random keys, as in the service.
    head = (
        "\\set n :n + 1\n"
        "\\set id :n * 1000 + :client_id\n"
        f"\\set key random({_FIRST}, {10 * _FIRST - 1})\n"
        f"\\set checkout random({10**15}, {10**16 - 1})\n"
    )
    script = _script(head, recorder, ours)
    start = _FIRST // 1000 + series * 10**10
    return Script(script.text, {**script.variables, "n": str(start)})


async def read_script(count: int) -> Script:
    """Return a script that reads one of the first `count` known payments."""
    recorder = _Recorder()
    await payment_store.get(recorder, known_id(0))
    head = f"\\set id random({_FIRST}, {_FIRST + count - 1})\n"
    return _script(head, recorder, {known_id(0): f"('{_KNOWN_HALF}' || :id)::uuid"})


def rate(bin_dir: Path, url: str, script: Script, clients: int, seconds: float) -> float:
    """Run a script repeatedly, and return its transactions per second.

    On a busy machine, connecting can take the whole duration of a run. The run is then repeated
    with a longer duration.
    """
    for longer in _LONGER:
        result = _pgbench(bin_dir, url, script, clients, seconds * longer)
        tps, failures = _TPS.search(result.stdout), _FAILED.search(result.stdout)
        if result.returncode or (failures and int(failures[1])):
            break
        if tps is not None:
            return float(tps[1])
    raise RuntimeError(f"pgbench failed:\n{result.stdout}{result.stderr}")


def _pgbench(
    bin_dir: Path, url: str, script: Script, clients: int, seconds: float
) -> "subprocess.CompletedProcess[str]":
    place = urlsplit(url)
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script.text)
        file.flush()
        command = [str(bin_dir / "pgbench"), "--no-vacuum", "--protocol=prepared"]
        command += [f"--client={clients}", f"--jobs={_THREADS}", _length(seconds)]
        command += [f"--host={place.hostname}", f"--port={place.port}"]
        command += [f"--username={place.username}", f"--file={file.name}"]
        command += [f"--define={name}={value}" for name, value in script.variables.items()]
        return subprocess.run(
            [*command, place.path.lstrip("/")],
            capture_output=True,
            text=True,
            env={"PATH": os.defpath, "PGPASSWORD": place.password or ""},
            timeout=seconds + _EXTRA_S,
            check=False,
        )


def _length(seconds: float) -> str:
    """Return pgbench's duration option: seconds, or transactions if it is under one second."""
    if seconds >= 1:
        return f"--time={round(seconds)}"
    return f"--transactions={max(1, round(seconds * _TRANSACTIONS_PER_S))}"


def _script(head: str, recorder: _Recorder, ours: Mapping[object, str]) -> Script:
    """Replace a statement's parameters with variables."""
    variables: dict[str, str] = {}
    texts: list[str] = []
    for number, value in enumerate(recorder.arguments, start=1):
        if value is None:
            texts.append("NULL")
        elif value in ours:
            texts.append(ours[value])
        else:
            variables[f"p{number}"] = (
                f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)
            )
            texts.append(f":p{number}")
    query = _PARAMETER.sub(lambda match: texts[int(match[1]) - 1], recorder.query)
    return Script(f"{head}{query};\n", variables)
