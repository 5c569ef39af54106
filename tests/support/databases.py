"""Fresh databases for tests, made before they are asked for and dropped behind the test's back.

A test waits for neither `CREATE DATABASE` nor `DROP DATABASE`: one thread does both over one
connection, with one database of each kind in stock.
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
#: A copy of it in which the tests' merchant is arranged.
WORLD_TEMPLATE = "payintent_world_template"
_WAIT_S = 60.0
_CLONES_SINCE = 180_000  # PostgreSQL 18


def at_database(url: str, name: str) -> str:
    """Give the URL of another database of the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def name_of(url: str) -> str:
    """Give the name of a URL's database."""
    return urlsplit(url).path[1:]


async def make_template(url: str) -> None:
    """Migrate the database that all others are copies of."""
    connection = await asyncpg.connect(url)
    await connection.execute(f'CREATE DATABASE "{TEMPLATE}"')
    await make_passwords_cheap(connection, urlsplit(url).password or "")
    await connection.close()
    await migrations_runner.migrate(at_database(url, TEMPLATE))


async def copy_template(url: str) -> str:
    """Copy the template for the one with a merchant; gives its URL."""
    connection = await asyncpg.connect(url)
    await connection.execute(f'CREATE DATABASE "{WORLD_TEMPLATE}" TEMPLATE "{TEMPLATE}"')
    await connection.close()
    return at_database(url, WORLD_TEMPLATE)


async def make_passwords_cheap(connection: asyncpg.Connection, password: str) -> None:
    """Hash the password once, not 4,096 times: each side does it at every connection.

    The hash is made here, since PostgreSQL 15 cannot be told how often.
    """
    salt = b"not a secret"
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 1)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    of_server = hmac.digest(salted, b"Server Key", "sha256")
    coded = [b64encode(part).decode() for part in (salt, stored, of_server)]
    verifier = "SCRAM-SHA-256$1:{}${}:{}".format(*coded)
    await connection.execute(f"ALTER ROLE CURRENT_USER PASSWORD '{verifier}'")


async def _connect(url: str) -> asyncpg.Connection:
    """Connect, and let the kernel copy files by itself where the server can ask for that."""
    connection = await asyncpg.connect(url)
    if int(await connection.fetchval("SHOW server_version_num")) >= _CLONES_SINCE:
        await connection.execute("SET file_copy_method = clone")
    return connection


class Databases:
    """Copies of the template; `take` one for a test, `give_back` when the test is over."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stocks: dict[str, SimpleQueue[Future[str]]] = {}
        self._busy = asyncio.Lock()  # a connection does one statement at a time
        self._connection: asyncpg.Connection = self._run(_connect(server_url)).result(_WAIT_S)
        for template in (TEMPLATE, WORLD_TEMPLATE):
            self._order(template)

    def take(self, template: str = TEMPLATE) -> str:
        """Give the URL of a database that nobody else has, and have the next one made."""
        if template not in self._stocks:
            self._order(template)
        self._order(template)
        return at_database(self._server_url, self._stocks[template].get().result(_WAIT_S))

    def give_back(self, url: str) -> None:
        """Drop a database, and whatever is still connected to it, without waiting for it."""
        self._run(self._drop(name_of(url)))

    def forget(self, template: str) -> None:
        """Drop what is in stock of a template that is about to go."""
        stock = self._stocks.pop(template, None)
        while stock is not None and not stock.empty():
            self.give_back(at_database(self._server_url, stock.get().result(_WAIT_S)))

    def close(self) -> None:
        """End the thread after the work that was given to it."""
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
