"""`payintent doctor`: check an installation before its processes start."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from functools import partial

import msgspec
import typer
from pydantic import ValidationError

from payintent.chains import store as chain_store
from payintent.chains.checks import (
    CheckResult,
    check_chain,
    check_search_range,
    get_poll_s,
    open_configured_reader,
)
from payintent.chains.signer_checks import check_refund_setup, check_sweep_setup
from payintent.cli.commands import EXTRA_CHECKS
from payintent.cli.common import FATAL_ERRORS, read_settings, report_unavailable_database
from payintent.cli.processes import get_default_process_count
from payintent.console.oidc.provider import IdentityProvider, IdentityProviderError
from payintent.core.access import Role, parse_claim_roles
from payintent.core.errors import PermissionDeniedError
from payintent.core.texts import format_count
from payintent.db import availability
from payintent.db import migrations_runner as migrations
from payintent.db.availability import COMMAND_WAIT_S, reach_database, wait_for_database
from payintent.db.database import Database
from payintent.gateway_accounts import store as account_store
from payintent.gateway_accounts.store import AccountRecord
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.packages import (
    GatewayPackageError,
    list_gateway_packages,
    load_gateway_packages,
)
from payintent.operators import audit_store, tokens_store
from payintent.operators.operation import OperationContext
from payintent.runtime.encryption import (
    Encryption,
    EncryptionKeyError,
    decrypt_credentials,
    load_encryption,
)
from payintent.runtime.log import get_error_location
from payintent.runtime.settings import Settings
from payintent.runtime.settings_checks import (
    UnusableAddressError,
    check_addresses,
    describe_problems,
    find_address_warnings,
    find_endpoint_problems,
    find_insecure_base_urls,
    find_interpreter_warnings,
    find_unknown_settings,
)
from payintent.runtime.version import VERSION
from payintent.service import BUILT_IN_PROVIDERS, Service, count_connections_max, open_service

_ACCOUNTS_MAX = 10_000
_ADMINS_MIN = 2  # a proposer and an approver
_CLOCK_DIFFERENCE_MAX_S = 2.0


def add_to(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor() -> None:
    """Check settings, secrets, database, migrations, setup and chains."""
    report = _Report()
    report.ok("payintent", f"{VERSION} on Python {sys.version.split()[0]}")
    for warning in find_interpreter_warnings():
        report.warn("payintent", warning)
    try:
        _check_all(report)
    except Exception as error:  # noqa: BLE001 - print a line instead of a traceback
        location = get_error_location(error)[-1:]
        report.fail("doctor", f"internal error: {type(error).__name__} at {location}")
    if report.has_failures:
        raise typer.Exit(1)


class _Report:
    """Prints one line per finding and records failures."""

    def __init__(self) -> None:
        self.has_failures = False

    def ok(self, subject: str, text: str) -> None:
        print(f"{subject:10} ok    {text}")

    def warn(self, subject: str, text: str) -> None:
        print(f"{subject:10} WARN  {text}")

    def fail(self, subject: str, text: str) -> None:
        self.has_failures = True
        print(f"{subject:10} FAIL  {text}")


def _check_all(report: _Report) -> None:
    for line in find_unknown_settings(os.environ):
        report.fail("settings", line)
    try:
        settings = read_settings()
    except ValidationError as error:
        for line in describe_problems(error):
            report.fail("settings", line)
        return
    if not report.has_failures:
        report.ok("settings", "all settings are known and valid")
    can_start = _check_addresses(report, settings)
    can_start &= _check_secrets(report, settings)
    can_start &= _check_gateways(report)
    if settings.oidc_issuer:
        asyncio.run(_check_identity_provider(report, settings))
    if settings.smtp_host:
        asyncio.run(_check_mail_server(report, settings))
    can_start &= asyncio.run(_check_database(report, settings))
    if can_start:
        asyncio.run(_check_service(report, settings))


def _check_gateways(report: _Report) -> bool:
    http = GatewayHttpClient(timeout_s=1.0, response_bytes_max=1)  # not used to send requests
    try:
        load_gateway_packages(http, BUILT_IN_PROVIDERS)
    except GatewayPackageError as error:
        report.fail("gateways", str(error))
        return False
    packages = [f", {name} from {owner}" for name, owner in list_gateway_packages().items()]
    report.ok("gateways", f"{len(BUILT_IN_PROVIDERS)} built in{''.join(packages)}")
    return True


async def _check_identity_provider(report: _Report, settings: Settings) -> None:
    """Fetch the provider's metadata and keys, as for a sign-in."""
    provider = IdentityProvider(settings)
    try:
        keys = await provider.get_keys()
    except IdentityProviderError as error:
        report.fail("oidc", f"{settings.oidc_issuer}: {error.detail}")
    else:
        if keys:
            report.ok("oidc", f"{settings.oidc_issuer} responds; keys: {len(keys)}")
        else:
            report.fail("oidc", f"{settings.oidc_issuer} does not publish any keys")
    finally:
        await provider.close()


async def _check_mail_server(report: _Report, settings: Settings) -> None:
    """Sign in to the mail server without sending an email."""
    from payintent.mail.smtp_client import SmtpClient

    server = f"{settings.smtp_host}:{settings.smtp_port}"
    problem = await SmtpClient(settings).check_connection()
    if problem is None:
        report.ok(
            "mail", f"{server} accepts mail from {settings.smtp_from}, {settings.smtp_security}"
        )
    else:
        report.fail("mail", f"{server}: {problem}")


def _check_addresses(report: _Report, settings: Settings) -> bool:
    """Return whether a process can start with these addresses."""
    for problem in find_insecure_base_urls(settings):
        report.fail("addresses", problem)
    for warning in find_address_warnings(settings):
        report.warn("addresses", warning)
    try:
        check_addresses(settings)
    except UnusableAddressError as error:
        report.fail("addresses", str(error))
        return False
    if settings.sandbox:
        report.ok("addresses", "this is a sandbox, and it is not on a public address")
    elif problems := list(find_endpoint_problems(settings)):
        text = f"allowed by PAYINTENT_CHAIN_ANY_ENDPOINTS: {'; '.join(problems)}"
        report.warn("addresses", text)
    else:
        text = (
            "endpoints and signers use HTTPS or run on this host; each chain has at least two hosts"
        )
        report.ok("addresses", text)
    return True


def _check_secrets(report: _Report, settings: Settings) -> bool:
    try:
        secrets = load_encryption(settings)
    except EncryptionKeyError as error:
        report.fail("secrets", str(error))
        return False
    report.ok(
        "secrets",
        f"pepper {secrets.pepper_fingerprint}, key ring {', '.join(secrets.fingerprints)}",
    )
    return True


async def _check_database(report: _Report, settings: Settings) -> bool:
    """Return whether the database is migrated, supported, and reachable at both URLs."""
    direct = settings.direct_url
    try:
        for url in {direct, settings.database_url}:
            await wait_for_database(
                lambda url=url: reach_database(url),
                COMMAND_WAIT_S,
                partial(report_unavailable_database, url),
            )
        pending_migrations = await migrations.list_pending_migrations(direct)
    except FATAL_ERRORS as error:
        report.fail("database", _describe_database_error(error))
        return False
    if pending_migrations:
        names = ", ".join(pending_migrations)
        report.fail("database", f"migrations are missing: {names}; run payintent migrate")
        return False
    report.ok("database", "reachable and fully migrated")
    return await _check_server(report, settings)


async def _check_server(report: _Report, settings: Settings) -> bool:
    """Check the version, clock and connection limit. Return whether the version is supported."""
    database = Database(settings)
    try:
        facts = await availability.read_facts(database)
    except FATAL_ERRORS as error:
        report.fail("database", _describe_database_error(error))
        return False
    finally:
        await database.close()
    if facts.version < availability.VERSION_MIN:
        text = f"PostgreSQL {facts.version} is too old: use {availability.VERSION_MIN} or later"
        report.fail("database", text)
    if facts.jit_enabled and settings.database_pooled:
        text = "jit is on for this role and slows down connections behind a pooler"
        report.warn("database", f"{text}; deploy/database/pooled.sql turns it off")
    _check_clock(report, facts)
    if not settings.sandbox and not settings.database_pooled:
        _check_connections(report, settings, facts.connections_max)
    return facts.version >= availability.VERSION_MIN


def _check_clock(report: _Report, facts: availability.ServerFacts) -> None:
    difference_s = abs(facts.clock_ahead_s)
    if difference_s > _CLOCK_DIFFERENCE_MAX_S:
        side = "ahead of" if facts.clock_ahead_s > 0 else "behind"
        report.fail("clock", f"the database clock is {difference_s:.1f} s {side} this host's")
    else:
        report.ok("clock", "this host and the database agree")


def _check_connections(report: _Report, settings: Settings, connection_limit: int) -> None:
    """Compare the maximum number of connections from a host with the server's limit."""
    processes = get_default_process_count(settings)
    count = count_connections_max(settings, processes)
    text = (
        f"an api and a worker with {format_count(processes, 'process', 'processes')} each "
        f"can open up to {count} connections in total; the server allows {connection_limit}"
    )
    if count > connection_limit:
        report.warn("database", f"{text}: lower PAYINTENT_DATABASE_CONNECTIONS_MAX or use a pooler")
    else:
        report.ok("database", text)


async def _check_service(report: _Report, settings: Settings) -> None:
    try:
        service = await open_service(settings)
        try:
            await _check_privileges(report, service)
            await _check_replica(report, service)
            for finding in await check_setup(service.operation_context):
                print_line = report.ok if finding.is_ok else report.warn
                print_line(finding.subject, finding.text)
            if settings.sandbox:
                for name, describe in EXTRA_CHECKS.items():
                    report.ok(name, describe())
            await _check_chains(report, service)
        finally:
            await service.close()
    except EncryptionKeyError as error:
        report.fail("secrets", str(error))
    except FATAL_ERRORS as error:
        report.fail("database", _describe_database_error(error))


def _describe_database_error(error: Exception) -> str:
    if isinstance(error, PermissionDeniedError):
        return f"{error}; run payintent migrate --grants deploy/database/grants.sql"
    return str(error)


@dataclass(frozen=True, slots=True)
class SetupFinding:
    """A line in the output of `doctor`."""

    subject: str
    is_ok: bool
    text: str


async def check_setup(context: OperationContext) -> list[SetupFinding]:
    """Check operators and gateway accounts.

    In the sandbox, operators are not checked, because commands in its terminal never need approval.
    Raises `EncryptionKeyError` if credentials cannot be decrypted.
    """
    findings = [] if context.settings.sandbox else [await _check_admins(context)]
    records = await account_store.list_accounts(context.database, _ACCOUNTS_MAX)
    findings.extend(_check_accounts(context, records))
    return findings


async def _check_admins(context: OperationContext) -> SetupFinding:
    if not await tokens_store.may_read_tokens(context.database):
        return SetupFinding(
            "operators", True, "not checked: this database role cannot read operators"
        )
    count = await tokens_store.count_valid_tokens(context.database, Role.ADMIN)
    text = f"admins with a valid token: {count}"
    settings = context.database.settings
    if settings.oidc_issuer and Role.ADMIN in parse_claim_roles(settings.oidc_roles).values():
        return SetupFinding("operators", True, f"{text}; other admins sign in with OpenID Connect")
    if count < _ADMINS_MIN:
        text += f"; at least {_ADMINS_MIN} are needed to approve admin operations"
    return SetupFinding("operators", count >= _ADMINS_MIN, text)


def _check_accounts(
    context: OperationContext, records: list[AccountRecord]
) -> Iterator[SetupFinding]:
    unbound_ids: list[str] = []
    incomplete_accounts: dict[tuple[str, str], list[str]] = {}
    orphaned_accounts: dict[str, list[str]] = {}
    for account in records:
        names, is_bound = _read_credential_names(context.encryption, account)
        if not is_bound:
            unbound_ids.append(str(account.id))
        if not account.enabled:
            continue
        capabilities = context.capabilities(account.provider)
        if capabilities is None:
            orphaned_accounts.setdefault(account.provider, []).append(str(account.id))
        elif missing_names := capabilities.credentials - names:
            key = account.provider, ", ".join(sorted(missing_names))
            incomplete_accounts.setdefault(key, []).append(str(account.id))
    for provider, ids in sorted(orphaned_accounts.items()):
        text = (
            f"accounts at {provider}, whose gateway is not installed: {', '.join(ids)}; "
            "install its package before you start the service"
        )
        yield SetupFinding("accounts", False, text)
    for (provider, names), ids in sorted(incomplete_accounts.items()):
        text = f"accounts at {provider} are unusable because they lack {names}: {', '.join(ids)}"
        yield SetupFinding("accounts", False, text)
    if unbound_ids:
        text = (
            "accounts whose credentials are not bound to provider and base_url: "
            f"{', '.join(unbound_ids)}; run payintent keyring rotate"
        )
        yield SetupFinding("accounts", False, text)
    if not incomplete_accounts and not unbound_ids and not orphaned_accounts:
        yield SetupFinding("accounts", True, f"{len(records)}, with all required credentials")


def _read_credential_names(
    encryption: Encryption, account: AccountRecord
) -> tuple[frozenset[str], bool]:
    """Return an account's credential names, and whether its encryption context is current."""
    credentials, is_bound = decrypt_credentials(
        encryption, account.id, account.provider, account.base_url, account.sealed
    )
    return frozenset(msgspec.json.decode(credentials, type=dict[str, str])), is_bound


async def _check_privileges(report: _Report, service: Service) -> None:
    text = "the secrets match this database"
    if not service.settings.sandbox and await audit_store.may_rewrite(service.database):
        report.warn("service", f"{text}; this database role can change the audit log")
    else:
        report.ok("service", text)


async def _check_replica(report: _Report, service: Service) -> None:
    finding = await service.read_database.get_status()
    if finding is not None:
        print_line = report.ok if finding.is_standby and finding.is_current else report.warn
        print_line("replica", finding.text)


async def _check_chains(report: _Report, service: Service) -> None:
    """Check every chain that has endpoints."""
    for slug in service.settings.endpoints:
        async for finding in _check_chain(service, slug):
            (report.ok if finding.is_ok else report.fail)(slug, finding.text)
        async for finding in _check_search_ranges(service, slug):
            (report.ok if finding.is_ok else report.warn)(slug, finding.text)


async def _check_search_ranges(service: Service, slug: str) -> AsyncGenerator[CheckResult]:
    chain = await chain_store.get_chain(service.database, slug)
    reader = open_configured_reader(service.settings, chain) if chain else None
    contracts = await chain_store.list_contracts(service.database, slug)
    if chain is None or reader is None or not contracts:
        return
    addresses = [contract.address for contract in contracts]
    try:
        for name in reader.names:
            poll_s = get_poll_s(service.settings, slug)
            yield await check_search_range(reader, name, chain, addresses, poll_s)
    finally:
        await reader.close()


async def _check_chain(service: Service, slug: str) -> AsyncGenerator[CheckResult]:
    chain = await chain_store.get_chain(service.database, slug)
    reader = open_configured_reader(service.settings, chain) if chain else None
    if chain is None or reader is None:
        yield CheckResult(False, "cannot be watched with this configuration")
        return
    cursor = await chain_store.get_cursor(service.database, slug)
    if cursor is not None and cursor.halted:
        yield CheckResult(False, f"halted: {cursor.halted}")
    tokens = await chain_store.list_tokens(service.database, slug)
    contracts = await chain_store.list_contracts(service.database, slug)
    factories = await chain_store.list_factories(service.database, slug)
    try:
        async for finding in check_chain(reader, chain, tokens, [*contracts, *factories]):
            yield finding
        refunder = service.refund_senders.get(slug)
        signer = refunder.signer if refunder else None
        async for finding in check_refund_setup(signer, reader, chain, tokens, contracts):
            yield finding
        has_factory = any(factory.current for factory in factories)
        async for finding in check_sweep_setup(signer, chain, has_factory=has_factory):
            yield finding
    finally:
        await reader.close()
