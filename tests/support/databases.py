"""New databases for tests, which are created in advance and dropped in the background.

A test does not wait for `CREATE DATABASE` or `DROP DATABASE`. A thread runs both over a single
connection, and keeps a database of each kind ready.
"""

import asyncio
import hashlib
import hmac
import threading
from base64 import b64encode
from collections.abc import Coroutine
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from payintent.db import migrations_runner

TEMPLATE = "payintent_template"
#: A copy of the template with the tests' merchant.
WORLD_TEMPLATE = "payintent_world_template"
_WAIT_S = 60.0
_CLONES_SINCE = 180_000  # PostgreSQL 18


def at_database(url: str, name: str) -> str:
    """Return the URL of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def name_of(url: str) -> str:
    """Return the name of the database in a URL."""
    return urlsplit(url).path[1:]


async def make_template(url: str) -> None:
    """Create and migrate the template of all other databases."""
    connection = await asyncpg.connect(url)
    await connection.execute(f'CREATE DATABASE "{TEMPLATE}"')
    await make_passwords_cheap(connection, urlsplit(url).password or "")
    await connection.close()
    await migrations_runner.migrate(at_database(url, TEMPLATE))


async def copy_template(url: str) -> str:
    """Copy the template to create the template with a merchant; return its URL."""
    connection = await asyncpg.connect(url)
    await connection.execute(f'CREATE DATABASE "{WORLD_TEMPLATE}" TEMPLATE "{TEMPLATE}"')
    await connection.close()
    return at_database(url, WORLD_TEMPLATE)


async def make_passwords_cheap(connection: asyncpg.Connection, password: str) -> None:
    """Hash the password once instead of 4,096 times, because both sides hash it on every connect.

    The hash is computed here, because PostgreSQL 15 has no setting for the iterations.
    """
    salt = b"not a secret"
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 1)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    of_server = hmac.digest(salted, b"Server Key", "sha256")
    coded = [b64encode(part).decode() for part in (salt, stored, of_server)]
    verifier = "SCRAM-SHA-256$1:{}${}:{}".format(*coded)
    await connection.execute(f"ALTER ROLE CURRENT_USER PASSWORD '{verifier}'")


async def _connect(url: str) -> asyncpg.Connection:
    """Connect, and let the kernel clone files if the server supports it."""
    connection = await asyncpg.connect(url)
    if int(await connection.fetchval("SHOW server_version_num")) >= _CLONES_SINCE:
        await connection.execute("SET file_copy_method = clone")
    return connection


class Databases:
    """Copies of the template. A test calls `take`, and `give_back` at its end."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stocks: dict[str, SimpleQueue[Future[str]]] = {}
        self._busy = asyncio.Lock()  # a connection runs one statement at a time
        self._connection: asyncpg.Connection = self._run(_connect(server_url)).result(_WAIT_S)
        for template in (TEMPLATE, WORLD_TEMPLATE):
            self._order(template)

    def take(self, template: str = TEMPLATE) -> str:
        """Return the URL of an unused database, and start creating the next one."""
        if template not in self._stocks:
            self._order(template)
        self._order(template)
        return at_database(self._server_url, self._stocks[template].get().result(_WAIT_S))

    def give_back(self, url: str) -> None:
        """Drop a database and its remaining connections, without waiting."""
        self._run(self._drop(name_of(url)))

    def forget(self, template: str) -> None:
        """Drop the prepared databases of a template that is about to be dropped."""
        stock = self._stocks.pop(template, None)
        while stock is not None and not stock.empty():
            self.give_back(at_database(self._server_url, stock.get().result(_WAIT_S)))

    def close(self) -> None:
        """Finish the pending work, and stop the thread."""
        self._run(self._connection.close()).result(_WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _order(self, template: str) -> None:
        stock = self._stocks.setdefault(template, SimpleQueue())
        stock.put(self._run(self._make(template)))

    async def _make(self, template: str) -> str:
        name = f"test_{uuid4().hex}"
        await self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
        return name

    async def _drop(self, name: str) -> None:
        await self._execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    async def _execute(self, statement: str) -> None:
        async with self._busy:
            await self._connection.execute(statement)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)
