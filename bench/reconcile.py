"""`python -m bench.reconcile`: the time and memory that a worker needs to reconcile a list.

A separate database is filled with captures and their payments, sessions and entries. The gateway's
list has as many lines as there are captures, and a few hundred lines differ. A separate process
compares the list as a worker does. The reported memory is that process's maximum (VmHWM),
including the worker's modules.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console

import payintent.worker  # noqa: F401 - a worker's imports are part of its memory
from bench.flat import PIDS, cpu_us
from bench.goals import Goal, show
from bench.machine import print_machine
from payintent.core.ids import SESSION, format_id
from payintent.core.money import get_minor_decimals
from payintent.db import migrations_runner
from payintent.db.driver import Connection, connect, transaction
from payintent.reconciliation import runs_store
from payintent.reconciliation.file import HEADER
from payintent.reconciliation.runs import compare_new_files
from payintent.reconciliation.sources import FolderSource
from payintent.runtime.json_format import format_timestamp
from payintent.runtime.settings import Settings
from payintent.service import open_service
from payintent_sandbox.postgres import Postgres
from payintent_sandbox.seed.history import seed

LINES = 1_000_000
WITHIN_S = 60
MEMORY_MB = 100
_TEMPLATE_PAYMENTS = 200  # in a generated history; one of them is copied
_BATCH = 50_000
_DIFFERING_EACH = 100  # different amounts, lines without a capture, captures without a line
_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="  # of the benchmark's database

_CHOOSE = """
CREATE TEMPORARY TABLE template AS
SELECT c.id AS capture_id, p.id AS payment_id, s.id AS session_id, c.account_id,
    (SELECT max(captured_at) FROM capture) + interval '1 day' AS at
FROM capture c
JOIN payment p ON p.id = c.payment_id AND p.status = 'PAID'
JOIN session s ON s.id = c.session_id
WHERE c.credited AND NOT EXISTS (SELECT FROM money_case m WHERE m.capture_id = c.id)
LIMIT 1
"""
#: Foreign keys are correct by construction, and checking them costs more than everything else.
_WITHOUT_FOREIGN_KEYS = "SET LOCAL session_replication_role = replica"
_REPEAT = """
CREATE TEMPORARY TABLE one ON COMMIT DROP AS
SELECT n, gen_random_uuid() AS payment, gen_random_uuid() AS session, gen_random_uuid() AS capture,
    t.*
FROM template t, generate_series({first}, {last}) n;
INSERT INTO payment
SELECT r.*
FROM one o
JOIN payment p ON p.id = o.payment_id,
    jsonb_populate_record(p, jsonb_build_object('id', o.payment, 'session_id', o.session,
        'checkout_id', 'cs_' || right(replace(o.payment::text, '-', ''), 16),
        'metadata', '{{}}'::jsonb)) r;
INSERT INTO session
SELECT r.*
FROM one o
JOIN session s ON s.id = o.session_id,
    jsonb_populate_record(s, jsonb_build_object('id', o.session, 'payment_id', o.payment,
        'reference', 'list-' || o.n)) r;
INSERT INTO capture
SELECT r.*
FROM one o
JOIN capture c ON c.id = o.capture_id,
    jsonb_populate_record(c, jsonb_build_object('id', o.capture, 'session_id', o.session,
        'payment_id', o.payment, 'reference', 'list-' || o.n, 'captured_at',
        o.at + o.n * interval '50 milliseconds')) r;
INSERT INTO ledger_entry
    (fact_id, fact, leg, merchant_id, debit, credit, amount, currency, chain, created_at)
SELECT o.capture, e.fact, e.leg, e.merchant_id, e.debit, e.credit, e.amount, e.currency, e.chain,
    e.created_at
FROM one o
JOIN ledger_entry e ON e.fact_id = o.capture_id AND e.fact = 'capture'
"""
_LINES = """
SELECT r.n, c.reference, c.session_id, c.amount_minor, c.currency, c.captured_at
FROM capture c, LATERAL (SELECT substr(c.reference, 6)::bigint AS n) r
WHERE c.reference LIKE 'list-%' AND r.n BETWEEN $1 AND $2
"""


@dataclass(frozen=True, slots=True)
class Found:
    """The results of the process that compares the list."""

    lines: int
    status: str
    case_count: int
    took_s: float
    worked_s: float  # processor time of the process
    database_s: float  # processor time of PostgreSQL
    peak_mb: float


def list_goals(figures: Found) -> list[Goal]:
    """List this run's goals and results."""
    per_s = figures.lines / figures.took_s
    return [
        Goal("lines of a gateway's list compared", per_s, LINES / WITHIN_S, "/s"),
        Goal("maximum memory of the process", figures.peak_mb, MEMORY_MB, " MB", is_ceiling=True),
    ]


async def _fill(connection: Connection, lines: int) -> int:
    """Copy a payment from the history this many times; return its gateway account."""
    await connection.execute("SET statement_timeout = 0")
    await connection.execute(_CHOOSE)
    for first in range(1, lines + 1, _BATCH):
        last = min(first + _BATCH - 1, lines)
        async with transaction(connection):
            await connection.execute(_WITHOUT_FOREIGN_KEYS)
            await connection.execute(_REPEAT.format(first=first, last=last))
    await connection.execute("VACUUM (ANALYZE) payment, session, capture, ledger_entry, money_case")
    return await connection.fetchval("SELECT account_id FROM template")


async def _write_list(connection: Connection, path: Path, lines: int) -> None:
    """Write the gateway's list, with as many lines as captures. Some lines differ."""
    differing = min(_DIFFERING_EACH, lines // 10)
    with path.open("w") as file:
        file.write(",".join(HEADER) + "\n")
        for first in range(1, lines + 1, _BATCH):
            for row in await connection.fetch(_LINES, first, first + _BATCH - 1):
                number, minor = row["n"], row["amount_minor"]
                unknown = "unknown-" if number > lines - differing else ""
                minor += 1 if number <= differing else 0
                file.write(
                    f"payment,{unknown}{row['reference']},"
                    f"{format_id(SESSION, row['session_id'])},"
                    f"{Decimal(minor).scaleb(-get_minor_decimals(row['currency']))},"
                    f"{row['currency']},{format_timestamp(row['captured_at'])}\n"
                )


async def _prepare(url: str, folder: Path, lines: int) -> None:
    await migrations_runner.migrate(url)
    service = await open_service(_settings(url))
    await seed(service, _TEMPLATE_PAYMENTS, 1, lambda _: None)
    await service.close()
    connection = await connect(url)
    try:
        account_id = await _fill(connection, lines)
        path = folder / str(account_id) / "list.csv"
        path.parent.mkdir(parents=True)
        await _write_list(connection, path, lines)
    finally:
        await connection.close()


async def _take(url: str, folder: str) -> Found:
    """Compare the file in the folder, as a worker does."""
    service = await open_service(_settings(url))
    pids = [row["pid"] for row in await service.database.fetch(PIDS)]
    database_us = cpu_us(pids)
    began, worked = time.perf_counter(), time.process_time()
    await compare_new_files(service.reconciliation_context, FolderSource(folder))
    took, worked = time.perf_counter() - began, time.process_time() - worked
    database_s = (cpu_us(pids) - database_us) / 1e6
    [run] = await runs_store.list_runs(service.database, None, None, None, 1)
    await service.close()
    return Found(
        run.lines, run.status + run.problem, run.opened, took, worked, database_s, _peak_mb()
    )


def _peak_mb() -> float:
    """Return the maximum memory of this process."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


def _settings(url: str) -> Settings:
    values: dict[str, Any] = {"database_url": url, "pepper": _KEY, "keyring": f"bench:{_KEY}"}
    return Settings.model_validate(values | {"sandbox": True})


def measure(var_dir: Path, lines: int) -> Found:
    """Fill a separate database, and compare the list in a separate process."""
    folder = Path(tempfile.mkdtemp(prefix="bench-reconcile-", dir=var_dir))
    folder.chmod(0o711)  # so that the server's user can access its data
    postgres = Postgres(folder / "postgres", durable=False)
    try:
        url = postgres.start()
        began = time.perf_counter()
        uvloop.run(_prepare(url, folder / "lists", lines))
        print(f"{lines:,} captures and lines in {time.perf_counter() - began:.0f} s")
        worker = [sys.executable, "-m", "bench.reconcile", "--take", str(folder / "lists")]
        result = subprocess.run(
            worker, env=os.environ | {"BENCH_URL": url}, stdout=subprocess.PIPE, check=True
        )
        return Found(**json.loads(result.stdout.splitlines()[-1]))
    finally:
        postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m bench.reconcile", description=__doc__)
    parser.add_argument("--lines", type=int, default=LINES)
    parser.add_argument("--take", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.take:
        print(json.dumps(asdict(uvloop.run(_take(os.environ["BENCH_URL"], options.take)))))
        return
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    figures = measure(var_dir, options.lines)
    print(
        f"{figures.lines:,} lines in {figures.took_s:.1f} s ({figures.worked_s:.1f} s CPU, "
        f"PostgreSQL {figures.database_s:.1f} s): {figures.lines / figures.took_s:,.0f}/s, "
        f"{figures.peak_mb:.0f} MB; {figures.status}, {figures.case_count} cases"
    )
    console = Console(width=110)
    show(list_goals(figures), console)
    print_machine(console)


if __name__ == "__main__":
    main()
