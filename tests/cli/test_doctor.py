"""`payintent doctor` reports each problem in a single line without a traceback."""

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
from pydantic import SecretStr

from payintent.cli import doctor
from payintent.runtime.settings import Settings
from payintent.runtime.settings_checks import (
    find_interpreter_warnings,
    find_unknown_settings,
    list_configured_names,
    make_variable_name,
)
from tests.support.authority import Authority
from tests.support.databases import at_database
from tests.support.identity_provider import CLIENT_ID, identity_provider
from tests.support.ports import free_port
from tests.support.smtp_server import PASSWORD, USER, smtp_server
from tests.support.terminal import CommandResult, Terminal

pytestmark = pytest.mark.full

_SECRET = "VmVyeS1zZWNyZXQ"


class _Doctor:
    """Runs `doctor` outside the sandbox with changed environment variables."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __call__(self, **changes: str | None) -> CommandResult:
        with pytest.MonkeyPatch.context() as patch:
            terminal = Terminal(self.settings.model_copy(update={"sandbox": False}), patch)
            patch.setenv("PAYINTENT_API_BASE", "https://pay.example.com/v1")
            patch.setenv("PAYINTENT_CHECKOUT_BASE", "https://pay.example.com/c")
            patch.setenv("VAR_DIR", "/nonexistent")  # ignore the files of a running `make dev`
            for name, value in changes.items():
                if value is None:
                    patch.delenv(name)
                else:
                    patch.setenv(name, value)
            result = terminal.run("doctor")
        assert "Traceback" not in result.out + result.err
        assert result.err == ""
        assert _SECRET not in result.out
        return result

    def find_errors(self, **changes: str | None) -> list[tuple[str, str]]:
        """Return the errors by subject. Fail if `doctor` reports no error."""
        result = self(**changes)
        assert result.status == 1, result
        lines = _lines(result, "FAIL")
        problems = [line for line in lines if not line[1].startswith("migrations are missing")]
        assert problems, result
        return problems


def _lines(result: CommandResult, level: str) -> list[tuple[str, str]]:
    split = [line.split(None, 2) for line in result.out.splitlines()]
    return [(subject, text) for subject, line_level, text in split if line_level == level]


@pytest.fixture
def examine(any_settings: Settings) -> _Doctor:
    """Run `doctor` without a migrated database, for errors that are found before it is read."""
    return _Doctor(any_settings)


@pytest.fixture
def examine_all(settings: Settings) -> _Doctor:
    """Run `doctor` with a migrated database."""
    return _Doctor(settings)


def test_doctor_reports_no_errors_for_a_valid_setup(examine_all: _Doctor) -> None:
    result = examine_all()
    assert (result.status, _lines(result, "FAIL")) == (0, [])
    assert {"payintent", "settings", "addresses", "secrets", "database", "clock"} <= {
        subject for subject, _ in _lines(result, "ok")
    }


def test_an_interpreter_with_a_known_vulnerability_is_reported_as_a_warning(
    examine_all: _Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for affected in ((3, 11, 0), (3, 11, 9), (3, 12, 0), (3, 12, 5)):
        [why] = find_interpreter_warnings(affected)
        assert "CVE-2024-7592" in why, affected
        monkeypatch.setattr(
            doctor, "find_interpreter_warnings", partial(find_interpreter_warnings, affected)
        )
        result = examine_all()
        assert result.status == 0
        assert ("payintent", why) in _lines(result, "WARN")
    for fixed in ((3, 11, 10), (3, 12, 6), (3, 13, 0), (3, 14, 2)):
        assert find_interpreter_warnings(fixed) == [], fixed


def test_the_number_of_connections_is_compared_with_the_servers_limit(
    examine_all: _Doctor, server_url: str
) -> None:
    allowed = asyncio.run(_connections_allowed(server_url))
    few, many = (
        [text for _, text in _lines(examine_all(PAYINTENT_DATABASE_CONNECTIONS_MAX=most), level)]
        for most, level in (("1", "ok"), ("1000", "WARN"))
    )
    for texts, expected in (
        (few, f"the server allows {allowed}"),
        (many, "lower PAYINTENT_DATABASE"),
    ):
        assert [text for text in texts if "connections" in text and expected in text], texts


async def _connections_allowed(url: str) -> int:
    """Return the number of connections that are not reserved for superusers."""
    connection = await asyncpg.connect(url)
    names = ("superuser_reserved_connections", "reserved_connections")
    reserved = [  # PostgreSQL 16 added the second setting
        await connection.fetchval("SELECT coalesce(current_setting($1, true), '0')", name)
        for name in names
    ]
    allowed = int(await connection.fetchval("SHOW max_connections")) - sum(map(int, reserved))
    await connection.close()
    return allowed


def test_development_tools_are_checked_only_in_the_sandbox(
    settings: Settings, examine_all: _Doctor
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(doctor.EXTRA_CHECKS, "hammer", lambda: "a tool")
        assert "a tool" not in examine_all().out
        # An earlier test may have registered the check.
        patch.delitem(doctor.EXTRA_CHECKS, "anvil", raising=False)
        output = Terminal(settings, patch).run("doctor").out
    assert "hammer     ok    a tool" in output
    assert "\nanvil " in output, "the sandbox also checks its own tool"


async def test_doctor_queries_the_openid_connect_provider(examine: _Doctor) -> None:
    async with identity_provider() as provider:
        variables = {
            "PAYINTENT_OIDC_ISSUER": provider.issuer,
            "PAYINTENT_OIDC_CLIENT_ID": CLIENT_ID,
            "PAYINTENT_OIDC_CLIENT_SECRET": _SECRET,
            "PAYINTENT_OIDC_ROLES": "staff=viewer",
        }
        result = await asyncio.to_thread(examine, **variables)
        assert ("oidc", f"{provider.issuer} responds; keys: 2") in _lines(result, "ok")
        provider.metadata = {"issuer": "https://login.example.com"}
        result = await asyncio.to_thread(examine, **variables)
        [error] = [text for subject, text in _lines(result, "FAIL") if subject == "oidc"]
        assert "its issuer differs" in error
    result = await asyncio.to_thread(examine, **variables)
    [error] = [text for subject, text in _lines(result, "FAIL") if subject == "oidc"]
    assert "no connection" in error


def test_doctor_signs_in_to_the_mail_server_without_sending_mail(
    examine: _Doctor, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    with smtp_server(starttls=authority.server()) as server:
        variables = {
            "PAYINTENT_SMTP_HOST": "127.0.0.1",
            "PAYINTENT_SMTP_PORT": str(server.port),
            "PAYINTENT_SMTP_FROM": "payments@example.com",
            "PAYINTENT_SMTP_USER": USER,
            "PAYINTENT_SMTP_PASSWORD": PASSWORD,
            "PAYINTENT_CA_FILE": str(authority.ca_file),
        }
        address = f"127.0.0.1:{server.port}"
        text = f"{address} accepts mail from payments@example.com, starttls"
        assert ("mail", text) in _lines(examine(**variables), "ok")
        variables["PAYINTENT_SMTP_PASSWORD"] = _SECRET
        failed = _lines(examine(**variables), "FAIL")
        assert ("mail", f"{address}: SMTPAuthenticationError 535") in failed
        assert server.received == []


_INVALID_SETTINGS: list[tuple[str, str, str]] = [
    ("API_BASE", "pay.example.com/v1", "must be a URL such as"),
    ("API_BASE", "https://pay example.com/v1", "must be a URL such as"),
    ("API_BASE", "https://user:pass@pay.example.com/v1", "must be a URL such as"),
    ("API_BASE", "ftp://pay.example.com/v1", "must be a URL such as"),
    ("API_BASE", "https://pay.example.com/v1/", "not have a trailing slash"),
    ("CHECKOUT_BASE", "https://pay.example.com/c?x=1", "a query or a fragment"),
    ("CHECKOUT_BASE", "/c", "must be a URL such as"),
    ("KEY_MARK", "a", "must be two letters or digits, such as a1"),
    ("KEY_MARK", "a12", "must be two letters or digits, such as a1"),
    ("KEY_MARK", "a_", "must be two letters or digits, such as a1"),
    ("KEY_MARK", "é1", "must be two letters or digits, such as a1"),
    ("OIDC_ISSUER", "http://login.example.com", "must be an https URL without a query"),
    ("OIDC_ISSUER", "https://login.example.com/?x", "must be an https URL without a query"),
    ("OIDC_ISSUER", "https://login.example.com", "needs PAYINTENT_OIDC_CLIENT_ID"),
    ("OIDC_ROLES", "staff=viewer,admins", "(number 2); write it like payments-admins=admin"),
    ("OIDC_ROLES", "staff=root", "one of the roles viewer, support, finance, admin"),
    ("OIDC_ROLES", "staff=viewer,staff=admin", "contains a value with two roles (number 2)"),
    ("SMTP_HOST", "mail.example.com", "needs PAYINTENT_SMTP_FROM"),
    ("SMTP_HOST", "mail.example.com/x", "must be a host name such as mail.example.com"),
    ("SMTP_FROM", "Shop <a@b.test>", "must be an address such as payments@example.com"),
    ("SMTP_SECURITY", "ssl", "must be one of starttls, tls, none"),
    ("EDGE_TRUSTED_PROXIES", "10.0.0.1,proxy.example", "'proxy.example', which is not an address"),
    ("EDGE_TRUSTED_PROXIES", "10.0.0.1/8", "'10.0.0.1/8', which is not an address or a network"),
    ("GATEWAY_ORIGINS", "https://a.example,b.example", "invalid entry (number 2)"),
    ("CA_FILE", "/no/such/file", "refers to a file that cannot be read: No such file or directory"),
    ("CA_FILE", "/dev/null", "must be a file with a certificate in PEM format"),
    ("LOG_LEVEL", "loud", "must be one of DEBUG, INFO, WARNING, ERROR"),
    ("SANDBOX", "maybe", "must be true or false"),
    ("DATABASE_POOLED", "true", "needs DATABASE_DIRECT_URL"),
    ("WEBHOOK_LEASE_S", "10", "must exceed PAYINTENT_WEBHOOK_TIMEOUT_S"),
    ("AMOUNT_MIN", "2000000000", "must not exceed PAYINTENT_AMOUNT_MAX"),
    ("AMOUNT_MAX", "NaN", "must be a number above 0 and at most 1000000000000000"),
    ("CLOSING_PATIENCE_S", "nan", "must be a number"),
    ("REQUESTS_MAX", "1.5", "must be a whole number of at least 1 and at most 1000000"),
]


@pytest.mark.parametrize(("name", "value", "problem"), _INVALID_SETTINGS)
def test_an_invalid_setting_is_reported_in_a_single_line_with_its_name(
    examine: _Doctor, name: str, value: str, problem: str
) -> None:
    [(subject, text)] = examine.find_errors(**{f"PAYINTENT_{name}": value})
    assert subject == "settings"
    assert f"PAYINTENT_{name}" in text
    assert problem in text


_NUMBERS = [
    name
    for name, field in Settings.model_fields.items()
    if not isinstance(field.default, bool | str | SecretStr | None) and not field.is_required()
]


@pytest.mark.parametrize("value", ["-1", "", "many", "inf", "9e99"])
def test_every_numeric_setting_has_bounds_and_reports_them(examine: _Doctor, value: str) -> None:
    problems = examine.find_errors(**{make_variable_name(name): value for name in _NUMBERS})
    assert len(_NUMBERS) > 50
    assert [text.split()[0] for _, text in problems] == [
        make_variable_name(name) for name in _NUMBERS
    ]
    pattern = (
        rf"\w+ is '{value}' but must be a (whole )?number (of at least|above) \d+ and at most \d+"
    )
    assert [text for _, text in problems if not re.fullmatch(pattern, text)] == []


def test_every_invalid_setting_is_reported(examine: _Doctor) -> None:
    problems = examine.find_errors(
        DATABASE_URL="",
        PAYINTENT_PEPPER=None,
        PAYINTENT_LOG_LEVEL="loud",
        PAYINTENT_WEBHOOK_TIMEOUT_S="0",
        PAYINTENT_WEBHOK_TIMEOUT_S="10",
    )
    assert [text.split()[0] for _, text in problems] == [
        "PAYINTENT_WEBHOK_TIMEOUT_S",
        "DATABASE_URL",
        "PAYINTENT_PEPPER",
        "PAYINTENT_WEBHOOK_TIMEOUT_S",
        "PAYINTENT_LOG_LEVEL",
    ]


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("PAYINTENT_WEBHOK_TIMEOUT_S", "PAYINTENT_WEBHOOK_TIMEOUT_S"),
        ("PAYINTENT_PEPER", "PAYINTENT_PEPPER"),
        ("PAYINTENT_DATABSE_URL", "PAYINTENT_DATABASE_URL"),
        ("payintent_log_levl", "PAYINTENT_LOG_LEVEL"),
        ("PAYINTENT_WEBHOOK_PORT", "PAYINTENT_WEBHOOK_PORTS"),
        ("PAYINTENT_QQQQ", None),
    ],
)
def test_a_misspelt_setting_is_rejected_with_a_suggestion(
    examine: _Doctor, name: str, suggestion: str | None
) -> None:
    [(subject, text)] = examine.find_errors(**{name: "1"})
    hint = f"; did you mean {suggestion}?" if suggestion else ""
    assert (subject, text) == ("settings", f"{name} is not a setting{hint}")


@pytest.mark.parametrize(
    "name",
    [
        "PAYINTENT_OPERATOR_TOKEN",
        "PAYINTENT_DATABASE_URL",
        "payintent_pepper",
        "PATH",
    ],
)
def test_settings_and_unrelated_variables_are_not_reported_as_unknown(name: str) -> None:
    assert find_unknown_settings({name: "x"}) == []


def test_a_database_url_that_another_variable_overrides_is_reported() -> None:
    urls = {"DATABASE_URL": "postgresql://a", "PAYINTENT_DATABASE_URL": "postgresql://b"}
    [problem] = find_unknown_settings(urls)
    assert problem.startswith("PAYINTENT_DATABASE_URL has no effect, because DATABASE_URL ")
    assert find_unknown_settings(urls | {"DATABASE_URL": "postgresql://b"}) == []
    for name, url in urls.items():
        assert find_unknown_settings({name: url}) == []


@pytest.mark.parametrize("service", ["PAYINTENT", "PAYINTENT_API"])
def test_service_variables_of_kubernetes_are_not_reported_as_unknown(
    service: str,
) -> None:
    variables = {
        f"{service}_SERVICE_HOST": "10.0.0.1",
        f"{service}_SERVICE_PORT": "80",
        f"{service}_SERVICE_PORT_HTTP": "80",
        f"{service}_PORT": "tcp://10.0.0.1:80",
        f"{service}_PORT_443_TCP": "tcp://10.0.0.1:443",
        f"{service}_PORT_443_TCP_PROTO": "tcp",
        f"{service}_PORT_443_TCP_PORT": "443",
        f"{service}_PORT_443_TCP_ADDR": "10.0.0.1",
    }
    assert find_unknown_settings(variables) == []
    assert find_unknown_settings({"PAYINTENT_API_PORT": "tcp://10.0.0.1:80"}) != []
    del variables[f"{service}_SERVICE_HOST"]  # without the host variable, they are mistakes
    assert len(find_unknown_settings(variables)) == len(variables)
    for name in (f"{service}_PORT_X", f"{service}_PORT_443_TCP_X", f"{service}_SERVICE"):
        assert find_unknown_settings({f"{service}_SERVICE_HOST": "10.0.0.1", name: "x"}) != []


def test_configured_settings_are_listed_by_name_without_values() -> None:
    names = ["DATABASE_READ_URL", "DATABASE_URL", "PAYINTENT_PEPPER"]
    assert list_configured_names({"PATH": "/bin", **dict.fromkeys(names, _SECRET)}) == names


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"PAYINTENT_PEPPER": _SECRET}, "PAYINTENT_PEPPER is not base64"),
        ({"PAYINTENT_PEPPER": f"{_SECRET}="}, "PAYINTENT_PEPPER must be 32 bytes, not 11"),
        ({"PAYINTENT_KEYRING": f"k1:{_SECRET}="}, "must be 32 bytes, not 11"),
        ({"PAYINTENT_KEYRING": "k1:"}, "must be 32 bytes, not 0"),
    ],
)
def test_a_secret_of_the_wrong_size_is_rejected_and_not_printed(
    examine: _Doctor, changes: dict[str, str], problem: str
) -> None:
    [(subject, text)] = examine.find_errors(**changes)
    assert subject == "secrets"
    assert text.endswith(problem)


@pytest.mark.parametrize("name", ["PAYINTENT_API_BASE", "PAYINTENT_CHECKOUT_BASE"])
@pytest.mark.parametrize("host", ["pay.example.com", "10.0.0.7", "8.8.8.8"])
def test_an_insecure_base_url_is_rejected(examine: _Doctor, name: str, host: str) -> None:
    path = "v1" if name == "PAYINTENT_API_BASE" else "c"
    [(subject, text)] = examine.find_errors(**{name: f"http://{host}/{path}"})
    assert subject == "addresses"
    assert text.startswith(f"{name} must use https")


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"PAYINTENT_API_BASE": "https://pay.example.com"}, "PAYINTENT_API_BASE must end with"),
        (
            {"PAYINTENT_CHECKOUT_BASE": "https://pay.example.com"},
            "PAYINTENT_CHECKOUT_BASE must end",
        ),
        ({"PAYINTENT_API_BASE": "http://127.0.0.1:8080/v1"}, "PAYINTENT_API_BASE is on this"),
        ({"PAYINTENT_EDGE_SECRET": _SECRET}, "PAYINTENT_EDGE_SECRET has no effect"),
    ],
)
def test_a_suspicious_setting_is_reported_as_a_warning(
    examine_all: _Doctor, changes: dict[str, str], warning: str
) -> None:
    result = examine_all(**changes)
    assert result.status == 0
    assert [text for subject, text in _lines(result, "WARN") if text.startswith(warning)] != []


def test_a_ca_file_that_only_its_owner_can_read_is_reported_as_a_warning(
    examine: _Doctor, tmp_path: Path
) -> None:
    ca_file = Authority(tmp_path).ca_file
    url = f"{examine.settings.database_url}&sslrootcert={ca_file}"  # the URL already has a query
    result = examine(PAYINTENT_CA_FILE=str(ca_file), DATABASE_URL=url)
    suffix = " is not readable by all users"
    settings_with_warning = [
        text.partition(suffix)[0] for _, text in _lines(result, "WARN") if suffix in text
    ]
    assert settings_with_warning == ["PAYINTENT_CA_FILE", "sslrootcert of DATABASE_URL"]


def test_a_chain_without_a_second_endpoint_is_rejected(examine: _Doctor) -> None:
    problems = examine.find_errors(PAYINTENT_RPC_BSC="https://rpc.example.com/key")
    assert [subject for subject, _ in problems] == ["addresses"]
    assert "PAYINTENT_RPC_BSC needs two endpoints on different hosts" in problems[0][1]


def _with_netloc(url: str, user: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}@{parts.hostname}:{parts.port}"))


@pytest.mark.parametrize(
    ("user", "database", "words"),
    [
        (f"nobody_at_all:{_SECRET}", "", 'password authentication failed for user "nobody_at_all"'),
        ("", "no_such_database", 'database "no_such_database" does not exist'),
    ],
)
def test_a_rejected_database_connection_is_reported_with_the_servers_message(
    examine: _Doctor, user: str, database: str, words: str
) -> None:
    url = examine.settings.database_url
    url = _with_netloc(url, user) if user else at_database(url, database)
    problems = examine.find_errors(DATABASE_URL=url)
    assert problems == [("database", f"the database refuses the connection: {words}")]


def test_an_unreachable_database_is_reported_after_a_few_seconds(examine: _Doctor) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "COMMAND_WAIT_S", 0.2)
        unreachable_url = f"postgresql://payintent:{_SECRET}@127.0.0.1:{free_port()}/payintent"
        problems = examine.find_errors(DATABASE_URL=unreachable_url)
    assert problems == [("database", "the database cannot be reached: connection refused")]


async def _execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


def test_missing_grants_are_reported_with_the_file_that_contains_them(
    examine_all: _Doctor, database_url: str
) -> None:
    role = f"role_{uuid4().hex}"
    asyncio.run(_execute(database_url, f"CREATE ROLE {role} LOGIN PASSWORD '{_SECRET}'"))
    try:
        url = _with_netloc(database_url, f"{role}:{_SECRET}")
        [(subject, text)] = examine_all.find_errors(DATABASE_URL=url)
    finally:
        asyncio.run(_execute(database_url, f"DROP ROLE {role}"))
    assert (subject, text[:27]) == ("database", "permission denied for table")
    assert "deploy/database/grants.sql" in text


def test_a_read_only_database_is_rejected(examine_all: _Doctor, database_url: str) -> None:
    name = urlsplit(database_url).path[1:]
    statement = f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'
    asyncio.run(_execute(database_url, statement))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "COMMAND_WAIT_S", 3.0)
        [(subject, text)] = examine_all.find_errors()
    assert subject == "database"
    assert "standby or read-only" in text


@pytest.mark.parametrize(("seconds", "side"), [(5, "ahead of"), (-5, "behind")])
def test_a_clock_that_is_off_by_seconds_is_rejected(
    examine_all: _Doctor, database_url: str, seconds: int, side: str
) -> None:
    statement = (
        "CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql VOLATILE "
        f"RETURN clock_timestamp() + interval '{seconds} s'"
    )
    asyncio.run(_execute(database_url, statement))
    [(subject, text)] = examine_all.find_errors()
    assert subject == "clock"
    assert re.fullmatch(rf"the database clock is [45]\.\d s {side} this host's", text)


def test_an_internal_error_is_also_reported_in_a_single_line(examine: _Doctor) -> None:
    def fail(_: Any) -> Any:
        raise ZeroDivisionError(_SECRET)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "load_encryption", fail)
        [(subject, text)] = examine.find_errors()
    assert subject == "doctor"
    assert "ZeroDivisionError" in text


def test_a_read_url_of_a_primary_or_an_unreachable_host_is_reported_as_a_warning(
    settings: Settings, examine_all: _Doctor
) -> None:
    result = examine_all(DATABASE_READ_URL=settings.database_url)
    assert result.status == 0
    assert ("replica", "it is a primary, not a replica") in _lines(result, "WARN")
    unreachable_url = (
        f"postgresql://someone:{_SECRET}@127.0.0.1:{free_port()}/payintent?sslmode=disable"
    )
    result = examine_all(DATABASE_READ_URL=unreachable_url)
    assert result.status == 0
    text = "the database cannot be reached: connection refused; lists are read from the primary"
    assert ("replica", text) in _lines(result, "WARN")


@pytest.mark.parametrize("compiles", [True, False])
def test_jit_behind_a_pooler_is_reported_as_a_warning(
    settings: Settings, examine_all: _Doctor, compiles: bool
) -> None:
    url = settings.database_url
    name = urlsplit(url).path[1:]
    value = "on" if compiles else "off"
    asyncio.run(_execute(url, f'ALTER DATABASE "{name}" SET jit = {value}'))
    assert "jit" not in examine_all().out  # without a pooler, the service disables JIT
    result = examine_all(PAYINTENT_DATABASE_POOLED="true", DATABASE_DIRECT_URL=url)
    warnings = [text for subject, text in _lines(result, "WARN") if subject == "database"]
    assert ["deploy/database/pooled.sql" in text for text in warnings] == [True] * compiles
