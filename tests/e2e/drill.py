"""Run the commands in docs/operate/backup.md and compare databases."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import asyncpg

from payintent.runtime.settings import Settings
from payintent_sandbox.postgres import find_binaries
from tests.docs.parse_pages import examples, page
from tests.support import processes
from tests.support.timeouts import PATIENCE_S

# Unlogged tables are excluded because PostgreSQL empties them after a crash.
_TABLES = """
SELECT relname
FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relpersistence = 'p'
ORDER BY relname
"""


def step(title: str) -> str:
    """Return the page's only example with this title."""
    [example] = examples(page("docs/operate/backup.md"), "sh", title)
    return example


def run(title: str, folder: Path, url: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run an example in a folder, with this database in its environment."""
    result = subprocess.run(
        ["sh", "-eu", "-c", step(title)],
        cwd=folder,
        env=_environment(url) | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert result.returncode == 0, f"{title}: {result.stdout}{result.stderr}"
    return result


def command(settings: Settings, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of the service with these settings. The caller checks its status."""
    return processes.run("payintent", *words, env=os.environ | variables_of(settings))


def variables_of(settings: Settings) -> dict[str, str]:
    """Return the environment of a process with these settings."""
    return {
        "DATABASE_URL": settings.database_url,
        "PAYINTENT_PEPPER": settings.pepper.get_secret_value(),
        "PAYINTENT_KEYRING": settings.keyring.get_secret_value(),
        "PAYINTENT_CHECKOUT_BASE": settings.checkout_base,
        "PAYINTENT_API_BASE": settings.api_base,
        "PAYINTENT_SANDBOX": "true",
        "PAYINTENT_REQUEST_WAIT_S": str(settings.request_wait_s),
        "PAYINTENT_DRAIN_S": str(settings.drain_s),
    }


def restored_database(url: str) -> tuple[str, str]:
    """Return the name and the URL of the restored database, which is on the same server."""
    name = f"{urlsplit(url).path[1:]}_restored"
    return name, urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


async def contents(url: str) -> dict[str, tuple[int, str]]:
    """Return the row count and a digest for every table."""
    connection = await asyncpg.connect(url)
    digests: dict[str, tuple[int, str]] = {}
    for [table] in await connection.fetch(_TABLES):
        row = await connection.fetchrow(
            "SELECT count(*), md5(string_agg(t::text, E'\\n' ORDER BY t::text COLLATE \"C\")) "
            f'FROM public."{table}" t'
        )
        digests[table] = (row[0], row[1])
    await connection.close()
    return digests


def drop(url: str) -> None:
    """Drop a database if it exists."""

    async def drop_database() -> None:
        parts = urlsplit(url)
        connection = await asyncpg.connect(urlunsplit(parts._replace(path="/postgres")))
        await connection.execute(f'DROP DATABASE IF EXISTS "{parts.path[1:]}" WITH (FORCE)')
        await connection.close()

    asyncio.run(drop_database())


def _environment(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    path = [str(find_binaries()), str(Path(sys.executable).parent), os.environ["PATH"]]
    return os.environ | {
        "PATH": os.pathsep.join(path),
        "PGHOST": parts.hostname or "",
        "PGPORT": str(parts.port),
        "PGUSER": parts.username or "",
        "OWNER": parts.username or "",
        "PGPASSWORD": unquote(parts.password or ""),
        "PGDATABASE": parts.path[1:],
        "DATABASE_URL": url,
    }
