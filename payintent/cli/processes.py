"""The `api`, `worker` and `migrate` commands.

Each command imports its modules when it runs, so that other commands start quickly.
"""

import asyncio
import os
import signal
from collections.abc import Mapping
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import typer

from payintent.cli.common import FATAL_ERRORS, fail, load_settings, report_unavailable_database
from payintent.core.errors import LockTimeoutError
from payintent.db import migrations_runner as migrations
from payintent.db.availability import COMMAND_WAIT_S, reach_database, wait_for_database
from payintent.db.hosts import list_hosts
from payintent.runtime.log import get_logger
from payintent.runtime.processes.child import count_usable_cores
from payintent.runtime.processes.handover import BindError, end_trial
from payintent.runtime.processes.member import Member
from payintent.runtime.processes.supervisor import Plan, supervise
from payintent.runtime.settings import Settings
from payintent.runtime.settings_checks import (
    find_insecure_base_urls,
    find_interpreter_warnings,
    find_unknown_settings,
    list_configured_names,
)
from payintent.runtime.version import VERSION

Address = tuple[str, int]


def start_processes(
    count: int, addresses: Mapping[str, Address], retire_signal: signal.Signals
) -> Member:
    """Start supervised processes and return in each of them.

    The command fails if an address is already in use.
    """
    try:
        return supervise(Plan(count, addresses, retire_signal))
    except BindError as error:
        fail(str(error))


def get_default_process_count(settings: Settings) -> int:
    """Return the number of usable cores, minus one if PostgreSQL runs on this host."""
    is_shared = any(map(_is_this_host, list_hosts(settings.direct_url)))
    return max(1, count_usable_cores() - is_shared)


def _is_this_host(host: str) -> bool:
    """Return whether `host` (a socket directory, or an address with a port) is on this machine."""
    name = host.rpartition(":")[0].strip("[]")
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return host.startswith("/") or name == "localhost" or name.endswith(".localhost")


_MIGRATION_ERRORS = (
    LockTimeoutError,
    migrations.MigrationChangedError,
    migrations.OldSchemaError,
    migrations.GrantsError,
)

_log = get_logger("process")
_PROCESSES_MAX = 256
_PORT_MAX = 65_535  # the resolver reduces larger numbers modulo 65,536


def add_to(app: typer.Typer) -> None:
    for command in (api, worker, migrate):
        app.command()(command)


_Processes = typer.Option(
    None,
    min=1,
    max=_PROCESSES_MAX,
    show_default="the number of cores, minus 1 if PostgreSQL is on this host",
    help="Number of processes under a supervisor; 1 runs a single process without a supervisor.",
)


def api(
    host: str = typer.Option("127.0.0.1", help="The address to listen on."),
    port: int = typer.Option(8080, help="The port to listen on.", min=0, max=_PORT_MAX),
    operator_host: str = typer.Option("127.0.0.1", help="The address of the operator port."),
    operator_port: int | None = typer.Option(
        None, help="Serve metrics and the operator routes on this port.", min=0, max=_PORT_MAX
    ),
    processes: int | None = _Processes,
) -> None:
    """Serve the API and the hosted checkout, and the operator routes on a separate port."""
    from payintent.cli.serve_api import ApiAddresses, serve_api

    operator = None if operator_port is None else (operator_host, operator_port)
    addresses = ApiAddresses(public=(host, port), operator=operator)
    settings = _prepare_start("api", processes, port=port, operator_port=operator_port)
    serve_api(settings, addresses, processes)


def worker(
    metrics_port: int | None = typer.Option(
        None, help="Serve the metrics of all processes on this port.", min=0, max=_PORT_MAX
    ),
    metrics_host: str = typer.Option("127.0.0.1", help="The address of the metrics port."),
    processes: int | None = _Processes,
) -> None:
    """Run the background loops for expiry, inquiries, refunds, webhooks and chains."""
    from payintent.cli.work import run_workers

    settings = _prepare_start("worker", processes, metrics_port=metrics_port)
    metrics = None if metrics_port is None else (metrics_host, metrics_port)
    run_workers(settings, metrics, processes)


def migrate(
    wait_s: float = typer.Option(
        COMMAND_WAIT_S, min=0, help="Seconds to wait for an unavailable database."
    ),
    grants: Path | None = typer.Option(
        None, help="Also run the statements in this file, such as deploy/database/grants.sql."
    ),
) -> None:
    """Migrate the database schema to this version."""
    statements = _read_grants(grants)
    url = load_settings().direct_url

    async def run() -> list[str]:
        await wait_for_database(
            lambda: reach_database(url), wait_s, partial(report_unavailable_database, url)
        )
        return await migrations.migrate(url, statements)

    try:
        applied_names = asyncio.run(run())
    except (*FATAL_ERRORS, *_MIGRATION_ERRORS) as error:
        fail(str(error))
    print("\n".join(f"applied {name}" for name in applied_names) or "nothing to do")


def _read_grants(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        return file.read_text()
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        fail(f"{file} is not a text file")


def _prepare_start(process: str, processes: int | None, **ports: int | None) -> Settings:
    """Read the settings and log the start, with the names of the settings but not their values.

    A trial run exits here.
    """
    settings = load_settings()
    end_trial()
    count = (
        {} if processes == 1 else {"processes": processes or get_default_process_count(settings)}
    )
    names = list_configured_names(os.environ)
    _log.info("starting", process=process, version=VERSION, settings=names, **ports, **count)
    if warnings := [*find_unknown_settings(os.environ), *find_insecure_base_urls(settings)]:
        _log.warning("settings_doubtful", why=warnings)
    if reasons := find_interpreter_warnings():
        _log.warning("interpreter_doubtful", why=reasons)
    return settings
