"""The database roles in docs/operate/install.md, created by the files that the page names."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from payintent.db.migrations_runner import migrate
from tests.docs.parse_pages import page

RUNNING = ("payintent_api", "payintent_worker", "payintent_read")
OWNER = "payintent_migrate"
PASSWORD = "of-a-role"
_LOCK = 0x526F6C65  # roles belong to the server, which all test processes share


def statements(title: str) -> str:
    """Return the statements in a file in deploy/database."""
    return page(f"deploy/database/{title}.sql")


def making_roles() -> list[str]:
    """Return the individual statements that create the roles and the database."""
    return [item for item in statements("roles").split(";\n") if item.strip()]


def url_of(role: str, server_url: str, database: str) -> str:
    """Return the URL of a database for a role."""
    parts = urlsplit(server_url)
    place = f"{role}:{PASSWORD}@{parts.hostname}:{parts.port}"
    return urlunsplit(parts._replace(netloc=place, path=f"/{database}"))


@asynccontextmanager
async def database_with_roles(server_url: str) -> AsyncIterator[dict[str, str]]:
    """Create a database with the files; return its URL for each role and for the superuser."""
    async with empty_database_with_roles(server_url) as urls:
        await migrate(urls[OWNER], statements("grants"))
        yield urls


@asynccontextmanager
async def empty_database_with_roles(server_url: str) -> AsyncIterator[dict[str, str]]:
    """Create a database without migrations; return the same URLs as `database_with_roles`."""
    name = f"test_{uuid4().hex}"
    urls = {role: url_of(role, server_url, name) for role in (OWNER, *RUNNING)}
    urls["superuser"] = urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    await _make_roles(server_url, name)
    try:
        yield urls
    finally:
        await run(server_url, f'DROP DATABASE "{name}" WITH (FORCE)')


async def run(url: str, statements: str) -> None:
    """Run statements on a separate connection."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statements)
    finally:
        await connection.close()


async def _make_roles(server_url: str, database: str) -> None:
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
        for statement in making_roles():
            with suppress(asyncpg.DuplicateObjectError):
                await connection.execute(
                    statement.replace("DATABASE payintent ", f'DATABASE "{database}" ')
                )
        for role in (OWNER, *RUNNING):
            await connection.execute(f"ALTER ROLE {role} PASSWORD '{PASSWORD}'")
    finally:
        await connection.close()
