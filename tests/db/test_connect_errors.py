"""Permanent and temporary connection errors have PostgreSQL's message without secrets."""

from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from payintent.core.errors import (
    DatabaseRefusedError,
    PermissionDeniedError,
    StorageUnavailableError,
)
from payintent.db.database import Database
from payintent.db.driver import connect
from payintent.db.hosts import RefusedConnectionError, make_connection_error
from payintent.runtime.settings import Settings
from tests.support.databases import at_database
from tests.support.ports import free_port

_PASSWORD = "of-a-role-that-may-do-nothing"


@pytest.fixture
async def role(server_url: str) -> AsyncIterator[str]:
    """A role that may log in but has no other permission."""
    name = f"role_{uuid4().hex}"
    await _execute(server_url, f"CREATE ROLE {name} LOGIN PASSWORD '{_PASSWORD}'")
    yield name
    await _execute(server_url, f"DROP ROLE {name}")


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _with_user(url: str, user: str, password: str = _PASSWORD) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.hostname}:{parts.port}"))


async def _get_permanent_error(settings: Settings, url: str) -> str:
    """Check that both ways to connect fail permanently with the same message; return it."""
    with pytest.raises(RefusedConnectionError) as connect_error:
        await connect(url)
    database = Database(settings.model_copy(update={"database_url": url}))
    with pytest.raises(DatabaseRefusedError) as pool_error:
        await database.open()
    assert str(connect_error.value) == str(pool_error.value)
    for secret in (_PASSWORD, "127.0.0.1", str(urlsplit(url).port)):
        assert secret not in str(connect_error.value)
    return str(connect_error.value).removeprefix("the database refuses the connection: ")


async def test_a_wrong_password_is_a_permanent_error(settings: Settings, role: str) -> None:
    url = _with_user(settings.database_url, role, "not-the-password")
    assert (
        await _get_permanent_error(settings, url)
        == f'password authentication failed for user "{role}"'
    )


async def test_a_missing_role_is_a_permanent_error(settings: Settings) -> None:
    url = _with_user(settings.database_url, "nobody_at_all")
    assert await _get_permanent_error(settings, url) == (
        'password authentication failed for user "nobody_at_all"'
    )


async def test_a_role_without_login_permission_is_a_permanent_error(
    settings: Settings, role: str
) -> None:
    await _execute(settings.database_url, f"ALTER ROLE {role} NOLOGIN")
    url = _with_user(settings.database_url, role)
    assert await _get_permanent_error(settings, url) == f'role "{role}" is not permitted to log in'


async def test_a_missing_database_is_a_permanent_error(settings: Settings) -> None:
    url = at_database(settings.database_url, "no_such_one")
    assert await _get_permanent_error(settings, url) == 'database "no_such_one" does not exist'


async def test_a_role_without_connect_permission_is_a_permanent_error(
    settings: Settings, role: str
) -> None:
    name = urlsplit(settings.database_url).path[1:]
    await _execute(settings.database_url, f'REVOKE CONNECT ON DATABASE "{name}" FROM PUBLIC')
    url = _with_user(settings.database_url, role)
    assert await _get_permanent_error(settings, url) == f'permission denied for database "{name}"'


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://u:se/cret@host:port/x", "its URL cannot be read"),
        ("mysql://u:secret@127.0.0.1/x", "its URL cannot be read"),
        ("secret", "its URL cannot be read"),
        ("postgresql://u:secret@[::1/x", "its URL cannot be read"),
        ("postgresql://u:secret@127.0.0.1:99999999/x", "its URL cannot be read"),
        ("postgresql://u:secret@127.0.0.1/x?sslmode=maybe", "`sslmode` parameter must be one of"),
    ],
)
async def test_an_invalid_url_is_a_permanent_error(url: str, reason: str) -> None:
    with pytest.raises(RefusedConnectionError) as error:
        await connect(url)
    assert reason in str(error.value)
    assert "secret" not in str(error.value)
    assert "se/cret" not in str(error.value)


async def test_a_server_without_tls_is_a_permanent_error_if_the_url_requires_tls(
    settings: Settings,
) -> None:
    url = settings.database_url.replace("sslmode=disable", "sslmode=require")
    assert await _get_permanent_error(settings, url) == (
        "the database cannot be reached: it does not support TLS, which sslmode requires"
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            asyncpg.InvalidAuthorizationSpecificationError(
                'no pg_hba.conf entry for host "10.0.0.9", user "ann", database "shop"'
            ),
            'no pg_hba.conf entry for this host, user "ann", database "shop"',
        ),
        (asyncpg.ProtocolViolationError("no such database: shop"), "no such database: shop"),
        (
            asyncpg.InvalidCatalogNameError('database "s3cr3t@db:5432/shop" does not exist'),
            "database (not readable) does not exist",
        ),
        (
            asyncpg.ProtocolViolationError("no such database: s3cr3t@db:5432/shop"),
            "no such database: (not readable)",
        ),
        (
            asyncpg.ProtocolViolationError("unsupported startup parameter: jit"),
            "unsupported startup parameter: jit",
        ),
    ],
)
def test_a_permanent_error_has_the_message_of_the_server_or_pooler(
    error: Exception, message: str
) -> None:
    permanent_error = make_connection_error(error)
    assert isinstance(permanent_error, RefusedConnectionError)
    assert str(permanent_error).endswith(f": {message}")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            asyncpg.CannotConnectNowError("the database system is starting up"),
            "the database system is starting up",
        ),
        (
            asyncpg.TooManyConnectionsError("sorry, too many clients already"),
            "sorry, too many clients already",
        ),
        (asyncpg.ProtocolViolationError("query_wait_timeout"), "query_wait_timeout"),
        (TimeoutError(), "it did not respond in time"),
        (
            OSError(113, "Connect call failed ('10.0.0.9', 5432)"),
            "no route to host",
        ),
        (
            FileNotFoundError(2, "No such file or directory"),
            "no such file: the socket, or a certificate in the URL",
        ),
        (asyncpg.InternalClientError("at 10.0.0.9"), "InternalClientError"),
    ],
)
def test_a_temporary_failure_is_reported_as_unreachable(error: Exception, message: str) -> None:
    temporary_error = make_connection_error(error)
    assert not isinstance(temporary_error, RefusedConnectionError)
    assert str(temporary_error) == f"the database cannot be reached: {message}"


async def test_an_unreachable_server_is_a_temporary_error(settings: Settings) -> None:
    url = f"postgresql://payintent:secret@127.0.0.1:{free_port()}/payintent"
    database = Database(settings.model_copy(update={"database_url": url}))
    with pytest.raises(StorageUnavailableError) as error:
        await database.open()
    assert not isinstance(error.value, DatabaseRefusedError)
    assert str(error.value) == "the database cannot be reached: connection refused"


async def test_a_statement_without_permission_raises_a_permission_error(
    settings: Settings, role: str
) -> None:
    url = _with_user(settings.database_url, role)
    database = Database(settings.model_copy(update={"database_url": url}))
    with pytest.raises(PermissionDeniedError, match="permission denied for table payment"):
        await database.fetch("SELECT id FROM payment LIMIT 1")
    await database.close()
