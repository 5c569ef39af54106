"""The processes of an installation: `api`, `worker`, `migrate`, `doctor`.

Each imports what it needs when it runs, so that no other command pays for it.
"""

import asyncio
import sys
from collections.abc import Callable

import typer

from payintent.address_checks import check_places, endpoint_problems
from payintent.cli.common import STOPPING, fail, settings
from payintent.config import Settings
from payintent.domain.errors import StorageUnavailableError
from payintent.encryption import EncryptionKeyError, load_encryption
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.packages import (
    GatewayPackageError,
    list_gateway_packages,
    load_gateway_packages,
)
from payintent.operations.examine_setup import SetupFinding, examine_setup
from payintent.service import BUILT_IN, open_service
from payintent.storage import audit
from payintent.storage import migrations_runner as migrations


def add_to(app: typer.Typer) -> None:
    """Add the commands that run processes, and `migrate` and `doctor`."""
    for command in (api, worker, migrate, doctor):
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
    from payintent.app import build_app, build_operator_app

    chosen = settings()
    try:
        _gateways()
    except GatewayPackageError as error:  # later it would be a traceback of the server
        fail(str(error))
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
    except STOPPING as error:
        fail(str(error))


def worker(
    metrics_port: int | None = typer.Option(
        None, help="Serve metrics of this process on this port of loopback."
    ),
) -> None:
    """Run in the background: expire, inquire, refund, deliver webhooks, watch chains, prune."""
    import uvloop
    from prometheus_client import start_http_server

    from payintent.workers import run_worker

    chosen = settings()
    if metrics_port is not None:
        start_http_server(metrics_port, "127.0.0.1")
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_worker(chosen))
    except STOPPING as error:
        fail(str(error))


def migrate() -> None:
    """Bring the database's schema up to date."""
    chosen = settings()
    try:
        done = asyncio.run(migrations.migrate(chosen.database_direct_url or chosen.database_url))
    except (StorageUnavailableError, OSError) as error:
        fail(str(error))
    print("\n".join(f"applied {name}" for name in done) or "nothing to do")


#: More checks of `doctor`, by name; other installed distributions add theirs.
EXTRA_CHECKS: dict[str, Callable[[], str]] = {}


def doctor() -> None:
    """Check settings, secrets, database, migrations, setup and chains; say what is wrong."""
    chosen = settings()
    checks = [
        ("python", lambda: sys.version.split()[0]),
        ("places", lambda: _places(chosen)),
        ("secrets", lambda: _secrets(chosen)),
        ("gateways", _gateways),
        ("database", lambda: asyncio.run(_database(chosen))),
        ("service", lambda: asyncio.run(_service(chosen))),
    ]
    for name, check in checks:
        try:
            print(f"{name:10} ok    {check()}")
        except (*STOPPING, OSError) as error:
            print(f"{name:10} FAIL  {error}")
            raise typer.Exit(1) from error
    _show_setup(chosen)
    for name, describe in EXTRA_CHECKS.items():
        print(f"{name:10} ok    {describe()}")
    if not asyncio.run(_chains(chosen)):
        raise typer.Exit(1)


def _show_setup(chosen: Settings) -> None:
    """Print what is found of operators and accounts; ends where credentials cannot be opened."""
    try:
        findings = asyncio.run(_setup(chosen))
    except EncryptionKeyError as error:
        print(f"{'accounts':10} FAIL  {error}")
        raise typer.Exit(1) from error
    for finding in findings:
        print(f"{finding.subject:10} {'ok   ' if finding.works else 'WARN '} {finding.text}")


async def _setup(chosen: Settings) -> list[SetupFinding]:
    service = await open_service(chosen)
    try:
        return await examine_setup(service.operation_context)
    finally:
        await service.close()


async def _chains(chosen: Settings) -> bool:
    """Say of every chain what is found; tells whether all of it is right."""
    from payintent.cli.chain_checks import chain_check_results

    wrong = 0
    async for slug, finding in chain_check_results(chosen):
        print(f"{slug:10} {'ok   ' if finding.right else 'FAIL '} {finding.text}")
        wrong += not finding.right
    return wrong == 0


def _places(chosen: Settings) -> str:
    check_places(chosen)
    if chosen.sandbox:
        return "a sandbox, on no public address"
    problems = list(endpoint_problems(chosen))
    if problems:
        return f"PAYINTENT_CHAIN_ANY_ENDPOINTS allows that {'; '.join(problems)}"
    return "endpoints and signers by https or on this machine, at two hosts for each chain"


def _secrets(chosen: Settings) -> str:
    secrets = load_encryption(chosen)
    return f"pepper {secrets.pepper_mark}, key ring {', '.join(secrets.marks)}"


def _gateways() -> str:
    """Load the gateways of other packages, as every process does when it starts."""
    http = GatewayHttpClient(timeout_s=1.0, answer_bytes_max=1)  # asks nothing, opens nothing
    load_gateway_packages(http, BUILT_IN)
    packages = [f"{name} of {owner}" for name, owner in list_gateway_packages().items()]
    return f"{len(BUILT_IN)} built in" + "".join(f", {package}" for package in packages)


async def _database(chosen: Settings) -> str:
    missing = await migrations.pending(chosen.database_direct_url or chosen.database_url)
    if missing:
        raise StorageUnavailableError(
            f"migrations are missing: {', '.join(missing)}; run payintent migrate"
        )
    return "reachable, every migration applied"


async def _service(chosen: Settings) -> str:
    service = await open_service(chosen)
    try:
        writable = not chosen.sandbox and await audit.is_writable(service.database)
    finally:
        await service.close()
    warning = "; this database role can change the audit log" if writable else ""
    return f"secrets belong to this database{warning}"
