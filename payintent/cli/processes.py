"""The processes of an installation: `api`, `worker`, `migrate`.

Each imports what it needs when it runs, so that no other command pays for it.
"""

import asyncio
import os
from pathlib import Path

import typer

from payintent.address_checks import insecure_bases
from payintent.cli.common import STOPPING, fail, settings
from payintent.config import Settings
from payintent.domain.errors import LockTimeoutError
from payintent.log import get_logger
from payintent.settings_problems import set_names, unknown_settings
from payintent.storage import migrations_runner as migrations
from payintent.storage.availability import COMMAND_WAIT_S, reach_database, wait_for_database
from payintent.version import API_VERSION

_NOT_MIGRATED = (LockTimeoutError, migrations.MigrationChangedError, migrations.GrantsError)

_log = get_logger("process")


def add_to(app: typer.Typer) -> None:
    """Add the commands that run processes, and `migrate`."""
    for command in (api, worker, migrate):
        app.command()(command)


def api(
    host: str = typer.Option("127.0.0.1", help="The address to listen on."),
    port: int = typer.Option(8080, help="The port to listen on."),
    operator_host: str = typer.Option("127.0.0.1", help="The address of the operator's port."),
    operator_port: int | None = typer.Option(
        None, help="Serve metrics and the operator's routes on this port."
    ),
) -> None:
    """Serve the API and the hosted checkout, and operators on a port of their own."""
    from payintent.api.middleware import CommonHeaders
    from payintent.api.server import make_server, serve_until_stopped
    from payintent.app import StoppedEarlyError, build_app, build_operator_app

    chosen = settings()
    _log_start(chosen, "api", port=port, operator_port=operator_port)
    operator = build_operator_app()
    application = build_app(chosen, operator=operator)
    servers = [make_server(application, chosen, host, port)]
    if operator_port is not None:
        servers.append(
            make_server(
                CommonHeaders(operator), chosen, operator_host, operator_port, lifespan=False
            )
        )
    try:
        serve_until_stopped(servers, application, chosen.drain_s)
    except SystemExit:
        failure = application.start_failure
        if isinstance(failure, StoppedEarlyError):
            return
        if isinstance(failure, STOPPING):
            fail(str(failure))
        if failure is not None:
            _log.error("start_failed", exc_info=failure)
        raise


def worker(
    metrics_port: int | None = typer.Option(
        None, help="Serve metrics of this process on this port."
    ),
    metrics_host: str = typer.Option("127.0.0.1", help="The address that metrics are served on."),
) -> None:
    """Run in the background: expire, inquire, refund, deliver webhooks, watch chains, prune."""
    import uvloop
    from prometheus_client import start_http_server

    from payintent.workers import run_worker

    chosen = settings()
    _log_start(chosen, "worker", metrics_port=metrics_port)
    if metrics_port is not None:
        start_http_server(metrics_port, metrics_host)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_worker(chosen))
    except STOPPING as error:
        fail(str(error))


def migrate(
    wait_s: float = typer.Option(
        COMMAND_WAIT_S, min=0, help="How long to wait for a database that is away, in seconds."
    ),
    grants: Path | None = typer.Option(
        None, help="Then run the statements of this file, such as deploy/database/grants.sql."
    ),
) -> None:
    """Bring the database's schema up to date."""
    statements = _read_grants(grants)
    chosen = settings()
    url = chosen.database_direct_url or chosen.database_url

    async def run() -> list[str]:
        await wait_for_database(lambda: reach_database(url), wait_s)
        return await migrations.migrate(url, statements)

    try:
        done = asyncio.run(run())
    except (*STOPPING, *_NOT_MIGRATED) as error:
        fail(str(error))
    print("\n".join(f"applied {name}" for name in done) or "nothing to do")


def _read_grants(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        return file.read_text()
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        fail(f"{file} is no text")


def _log_start(chosen: Settings, process: str, **ports: int | None) -> None:
    """Log what starts, with which names of settings; their values are never logged."""
    _log.info(
        "starting", process=process, version=API_VERSION, settings=set_names(os.environ), **ports
    )
    doubts = [*unknown_settings(os.environ), *insecure_bases(chosen)]
    if doubts:
        _log.warning("settings_doubtful", why=doubts)
