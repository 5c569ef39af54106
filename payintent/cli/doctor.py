"""`payintent doctor`: what of an installation cannot work, found before anything starts."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import typer
from pydantic import ValidationError

from payintent.address_checks import (
    AddressUnusableError,
    address_doubts,
    check_addresses,
    endpoint_problems,
    insecure_bases,
)
from payintent.built_in_gateways import BUILT_IN
from payintent.cli.common import STOPPING, read_settings, say_waiting
from payintent.cli.default_processes import default_processes
from payintent.cli.extra_checks import EXTRA_CHECKS
from payintent.config import Settings
from payintent.domain.errors import PermissionDeniedError
from payintent.encryption import EncryptionKeyError, load_encryption
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.packages import (
    GatewayPackageError,
    list_gateway_packages,
    load_gateway_packages,
)
from payintent.interpreter_checks import interpreter_doubts
from payintent.log import error_location
from payintent.operations.examine_setup import examine_setup
from payintent.service import Service, most_connections, open_service
from payintent.settings_problems import problem_lines, unknown_settings
from payintent.storage import audit, server_facts
from payintent.storage import migrations_runner as migrations
from payintent.storage.availability import COMMAND_WAIT_S, reach_database, wait_for_database
from payintent.storage.database import Database
from payintent.version import API_VERSION

_CLOCK_APART_MAX_S = 2.0


def add_to(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor() -> None:
    """Check settings, secrets, database, migrations, setup and chains; say what is wrong."""
    report = _Report()
    report.right("payintent", f"{API_VERSION} on Python {sys.version.split()[0]}")
    for doubt in interpreter_doubts():
        report.doubtful("payintent", doubt)
    try:
        _examine(report)
    except Exception as error:  # noqa: BLE001 - whoever looks for an error gets a line, no traceback
        where = error_location(error)[-1:]
        report.wrong("doctor", f"a defect of this command: {type(error).__name__} at {where}")
    if report.failed:
        raise typer.Exit(1)


class _Report:
    """Prints a line for each finding, and remembers whether one was wrong."""

    def __init__(self) -> None:
        self.failed = False

    def right(self, subject: str, text: str) -> None:
        """Print what works as it is."""
        print(f"{subject:10} ok    {text}")

    def doubtful(self, subject: str, text: str) -> None:
        """Print what works, and may not be meant."""
        print(f"{subject:10} WARN  {text}")

    def wrong(self, subject: str, text: str) -> None:
        """Print what cannot work; the command then ends with status 1."""
        self.failed = True
        print(f"{subject:10} FAIL  {text}")


def _examine(report: _Report) -> None:
    for line in unknown_settings(os.environ):
        report.wrong("settings", line)
    try:
        chosen = read_settings()
    except ValidationError as error:
        for line in problem_lines(error):
            report.wrong("settings", line)
        return
    if not report.failed:
        report.right("settings", "every one is known and within its bounds")
    can_open = _examine_addresses(report, chosen)
    can_open &= _examine_secrets(report, chosen)
    can_open &= _examine_gateways(report)
    if chosen.oidc_issuer:
        asyncio.run(_examine_identity_provider(report, chosen))
    if chosen.smtp_host:
        asyncio.run(_examine_mail_server(report, chosen))
    can_open &= asyncio.run(_examine_database(report, chosen))
    if can_open:
        asyncio.run(_examine_service(report, chosen))


def _examine_gateways(report: _Report) -> bool:
    http = GatewayHttpClient(timeout_s=1.0, answer_bytes_max=1)  # asks nothing, opens nothing
    try:
        load_gateway_packages(http, BUILT_IN)
    except GatewayPackageError as error:
        report.wrong("gateways", str(error))
        return False
    packages = [f", {name} of {owner}" for name, owner in list_gateway_packages().items()]
    report.right("gateways", f"{len(BUILT_IN)} built in{''.join(packages)}")
    return True


async def _examine_identity_provider(report: _Report, chosen: Settings) -> None:
    """Ask the provider by which operators sign in; without it they sign in by tokens."""
    from payintent.cli.identity_checks import check_identity_provider

    finding = await check_identity_provider(chosen)
    (report.right if finding.right else report.wrong)("oidc", finding.text)


async def _examine_mail_server(report: _Report, chosen: Settings) -> None:
    """Connect to the mail server and sign in there; nothing is sent."""
    from payintent.mail.smtp_client import SmtpClient

    place = f"{chosen.smtp_host}:{chosen.smtp_port}"
    problem = await SmtpClient(chosen).examine()
    if problem is None:
        report.right("mail", f"{place} takes mail of {chosen.smtp_from}, {chosen.smtp_security}")
    else:
        report.wrong("mail", f"{place}: {problem}")


def _examine_addresses(report: _Report, chosen: Settings) -> bool:
    """Tell whether a process would start with these addresses."""
    for problem in insecure_bases(chosen):
        report.wrong("places", problem)
    for doubt in address_doubts(chosen):
        report.doubtful("places", doubt)
    try:
        check_addresses(chosen)
    except AddressUnusableError as error:
        report.wrong("places", str(error))
        return False
    if chosen.sandbox:
        report.right("places", "a sandbox, on no public address")
    elif problems := list(endpoint_problems(chosen)):
        allowed = f"PAYINTENT_CHAIN_ANY_ENDPOINTS allows that {'; '.join(problems)}"
        report.doubtful("places", allowed)
    else:
        text = "endpoints and signers by https or on this machine, at two hosts for each chain"
        report.right("places", text)
    return True


def _examine_secrets(report: _Report, chosen: Settings) -> bool:
    try:
        secrets = load_encryption(chosen)
    except EncryptionKeyError as error:
        report.wrong("secrets", str(error))
        return False
    report.right("secrets", f"pepper {secrets.pepper_mark}, key ring {', '.join(secrets.marks)}")
    return True


async def _examine_database(report: _Report, chosen: Settings) -> bool:
    """Return whether both addresses reach the database and it has every migration."""
    direct = chosen.direct_url
    try:
        for url in {direct, chosen.database_url}:
            await wait_for_database(
                lambda url=url: reach_database(url), COMMAND_WAIT_S, partial(say_waiting, url)
            )
        missing = await migrations.pending(direct)
    except STOPPING as error:
        report.wrong("database", _database_problem(error))
        return False
    if missing:
        named = ", ".join(missing)
        report.wrong("database", f"migrations are missing: {named}; run payintent migrate")
        return False
    report.right("database", "reachable, every migration applied")
    return await _examine_server(report, chosen)


async def _examine_server(report: _Report, chosen: Settings) -> bool:
    """Return whether the server is recent enough, and compare its clock with ours."""
    database = Database(chosen)
    try:
        facts = await server_facts.read_facts(database)
    except STOPPING as error:
        report.wrong("database", _database_problem(error))
        return False
    finally:
        await database.close()
    if facts.version < server_facts.VERSION_MIN:
        text = f"PostgreSQL {facts.version}, needed is {server_facts.VERSION_MIN} or later"
        report.wrong("database", text)
    if facts.compiles and chosen.database_pooled:
        text = "jit is on for this role, and slows connections behind a pooler"
        report.doubtful("database", f"{text}; deploy/database/pooled.sql turns it off")
    _examine_clock(report, facts)
    if not chosen.sandbox and not chosen.database_pooled:
        _examine_connections(report, chosen, facts.connections_max)
    return facts.version >= server_facts.VERSION_MIN


def _examine_clock(report: _Report, facts: server_facts.ServerFacts) -> None:
    apart_s = abs(facts.clock_ahead_s)
    if apart_s > _CLOCK_APART_MAX_S:
        side = "ahead of" if facts.clock_ahead_s > 0 else "behind"
        report.wrong("clock", f"the database's is {apart_s:.1f} s {side} this host's")
    else:
        report.right("clock", "this host's and the database's agree")


def _examine_connections(report: _Report, chosen: Settings, allowed: int) -> None:
    """Compare what the processes of one host may open with what the server allows."""
    processes = default_processes(chosen)
    most = most_connections(chosen, processes)
    text = (
        f"an api and a worker with {processes} processes each open up to {most} connections; "
        f"the server allows {allowed}"
    )
    if most > allowed:
        report.doubtful("database", f"{text}: lower PAYINTENT_DATABASE_CONNECTIONS_MAX, or pool")
    else:
        report.right("database", text)


async def _examine_service(report: _Report, chosen: Settings) -> None:
    try:
        async with _opened(chosen) as service:
            await _examine_rights(report, service)
            await _examine_replica(report, service)
            for finding in await examine_setup(service.operation_context):
                say = report.right if finding.works else report.doubtful
                say(finding.subject, finding.text)
        if chosen.sandbox:
            for name, describe in EXTRA_CHECKS.items():
                report.right(name, describe())
        await _examine_chains(report, chosen)
    except EncryptionKeyError as error:
        report.wrong("secrets", str(error))
    except STOPPING as error:
        report.wrong("database", _database_problem(error))


def _database_problem(error: Exception) -> str:
    """Say what PostgreSQL refuses, and what gives each role its rights."""
    if isinstance(error, PermissionDeniedError):
        return f"{error}; run payintent migrate --grants deploy/database/grants.sql"
    return str(error)


@asynccontextmanager
async def _opened(chosen: Settings) -> AsyncGenerator[Service]:
    service = await open_service(chosen)
    try:
        yield service
    finally:
        await service.close()


async def _examine_rights(report: _Report, service: Service) -> None:
    text = "secrets belong to this database"
    if not service.settings.sandbox and await audit.is_writable(service.database):
        report.doubtful("service", f"{text}; this database role can change the audit log")
    else:
        report.right("service", text)


async def _examine_replica(report: _Report, service: Service) -> None:
    """Report the replica of `DATABASE_READ_URL`, if one is configured."""
    finding = await service.reading.examine()
    if finding is not None:
        say = report.right if finding.is_standby and finding.is_near else report.doubtful
        say("replica", finding.text)


async def _examine_chains(report: _Report, chosen: Settings) -> None:
    from payintent.cli.chain_checks import chain_check_results

    async for slug, finding in chain_check_results(chosen):
        say = report.right if finding.right else report.wrong
        say(slug, finding.text)
