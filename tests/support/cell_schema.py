"""A second cell, where all merchants of a run have their payments.

Any test can be run so: what reads cell 0 where it should read the merchant's cell finds nothing
there. With `TESTS_CELLS=2` the cell is a schema of the test's own database. What is copied into
each cell the schema does not have: it is found in that of control, as a copy that is never late.
With `TESTS_CELLS=databases` it is a database of a second server, with copies of its own, and with
`TESTS_CELLS=citus` a schema of the cluster that `CITUS_URL` names, with copies of its own, too.
"""

import os
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

import payintent.app
from payintent.config import Settings
from payintent.domain import ids
from payintent.service import Service
from payintent.storage.copied_tables import COPIED
from payintent.storage.migrations_runner import migrate
from payintent.storage.table_homes import TABLE_HOMES, TableHome
from tests.support.cells import with_cells

NUMBER = 1  # of the second cell
SCHEMA = f"cell_{NUMBER}"
ENV = "TESTS_CELLS"
SERVER_ENV = "TESTS_POSTGRES_URL"
CITUS_ENV = "CITUS_URL"  # of the coordinator's database
CELL_SERVER_ENV = "TESTS_CELL_POSTGRES_URL"  # of the second server, where the cell is there
#: What the schema does not have. Of what each database has it is the version alone: it says that a
#: copy has changed.
_COPIED = [name for name, home in TABLE_HOMES.items() if home is TableHome.COPIED]
_COPIED.append("configuration_version")
#: The copies are those of control's newest change, always: a view that no copier finds late.
_NEVER_LATE = f"""
    DROP TABLE {SCHEMA}.configuration_copy;
    CREATE VIEW {SCHEMA}.configuration_copy AS
    SELECT number, token, NULL::timestamptz AS copied_at,
        (SELECT count(*) FROM public.schema_migration) || ' '
            || (SELECT count(*) FROM {SCHEMA}.schema_migration) || ' {len(COPIED)}' AS made_as
    FROM public.configuration_version;
"""
_REFERENCES = f"""
    SELECT conrelid::regclass::text AS owner, conname,
        replace(pg_get_constraintdef(c.oid), '{SCHEMA}.', 'public.') AS definition
    FROM pg_constraint AS c
    WHERE contype = 'f' AND connamespace = '{SCHEMA}'::regnamespace
        AND confrelid = ANY($1::text[]::regclass[]) AND conrelid <> ALL($1::text[]::regclass[])
"""
PLACE = f"""
    CREATE FUNCTION place_test_merchant() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO merchant_cell (merchant_id, cell) VALUES (NEW.id, {NUMBER});
        RETURN NULL;
    END $$;
    CREATE TRIGGER place_test_merchant AFTER INSERT ON merchant
    FOR EACH ROW EXECUTE FUNCTION place_test_merchant();
    INSERT INTO cell (number) VALUES ({NUMBER});
    INSERT INTO installation DEFAULT VALUES;
"""
_PLACE_SCHEMA = f"""
    INSERT INTO {SCHEMA}.installation (id, cell) SELECT id, {NUMBER} FROM installation;
"""
#: A transfer has the same id in both of its cells.
_OF_NO_CELL = {"installation", "cell_transfer"}
#: Rows whose ids name another cell than that whose table they are in: by time, and of sessions.
_BY_TIME = """
    SELECT id
    FROM (SELECT id, replace(id::text, '-', '') AS hex FROM {table}) AS rows
    WHERE substr(hex, 13, 1) = '8' AND ('x' || substr(hex, 14, 3))::bit(12)::int >> 2 <> $1
    LIMIT $2
"""
_OF_SESSIONS = """
    SELECT id
    FROM (
        SELECT id, ('x' || right(replace(id::text, '-', ''), 10))::bit(40)::bigint AS low
        FROM {table}
    ) AS rows
    WHERE low >> 10 & ((1 << 28) - 1) = x'9C3E51B'::int AND low & 1023 <> $1
    LIMIT $2
"""


def are_wanted() -> bool:
    """Tell whether this run has merchants in a second cell."""
    return os.environ.get(ENV) in {"2", "databases", "citus"}


def is_database() -> bool:
    """Tell whether the second cell of this run is of another server, with copies of its own."""
    return os.environ.get(ENV) in {"databases", "citus"}


def is_citus() -> bool:
    """Tell whether the second cell of this run is a schema of a Citus cluster."""
    return os.environ.get(ENV) == "citus"


def citus_url() -> str:
    """Give the address of the Citus cluster that is given."""
    return os.environ[CITUS_ENV]


def in_schema(name: str) -> str:
    """Give the address of a schema of that cluster."""
    url = citus_url()
    separator = "&" if "?" in url else "?"
    return f"{url}{separator}search_path={name}&citus.propagate_set_commands=local"


def one_cell(reason: str) -> pytest.MarkDecorator:
    """Leave a test out of runs with a second cell, and say why."""
    return pytest.mark.skipif(are_wanted(), reason=reason)


def not_on_citus(reason: str) -> pytest.MarkDecorator:
    """Leave a test out of runs with a cell on Citus, and say why."""
    return pytest.mark.skipif(is_citus(), reason=reason)


def cell_url(url: str) -> str:
    """Give the address of the second cell of an installation whose control is a database."""
    if is_citus():
        return in_schema(urlsplit(url).path[1:])
    if is_database():
        server = urlsplit(os.environ[CELL_SERVER_ENV])
        return urlunsplit(server._replace(path=urlsplit(url).path))
    return f"{url}{'&' if '?' in url else '?'}search_path={SCHEMA},public"


def with_second_cell(settings: Settings) -> Settings:
    """Give settings the second cell of their installation, where the run has one."""
    return (
        with_cells(settings, {NUMBER: cell_url(settings.database_url)})
        if are_wanted()
        else settings
    )


async def add_cell_schema(url: str) -> None:
    """Make the second cell in a migrated database, before any merchant is there."""
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE SCHEMA {SCHEMA}")
    await migrate(f"{url}{'&' if '?' in url else '?'}search_path={SCHEMA}")
    copies = [f"{SCHEMA}.{name}" for name in _COPIED]
    references = await connection.fetch(_REFERENCES, copies)
    await connection.execute(f"DROP TABLE {', '.join(copies)} CASCADE")
    for row in references:
        await connection.execute(
            f"ALTER TABLE {row['owner']} ADD CONSTRAINT {row['conname']} {row['definition']}"
        )
    for name in COPIED:  # what is not there needs no guard, and a merchant's cell is asked by all
        await connection.execute(f"DROP TRIGGER copied_only ON public.{name}")
    await connection.execute(PLACE + _PLACE_SCHEMA + _NEVER_LATE)
    await connection.close()


def keep_copiers_out() -> None:
    """Let no application copy: the tables are the same, and an older moment would come back."""
    payintent.app.open_copiers = lambda _: []  # type: ignore[attr-defined]


async def find_strange_ids(service: Service) -> list[str]:
    """Find ids in each cell's tables that name another cell: made by the wrong generator.

    It has connections of its own, past the proxy that a test may have: an application that has
    stopped has closed the service's pools.
    """
    assert ids.CELL_BITS == 10, "the bits that the statement looks at"
    found: list[str] = []
    for cell in service.cells.numbers():
        path = urlsplit(service.settings.database_url).path
        url = urlunsplit(urlsplit(os.environ[SERVER_ENV])._replace(path=path))
        connection = await asyncpg.connect(cell_url(url) if cell and is_database() else url)
        try:
            found += await _strange_ids_of(connection, cell)
        finally:
            await connection.close()
    return found


async def _strange_ids_of(connection: asyncpg.Connection, cell: int) -> list[str]:
    schema = "public"
    if cell == NUMBER:
        schema = await connection.fetchval("SELECT current_schema()") if is_database() else SCHEMA
    columns = await connection.fetch(
        """
        SELECT table_name AS name
        FROM information_schema.columns
        WHERE table_schema = $1 AND column_name = 'id' AND data_type = 'uuid'
        """,
        schema,
    )
    homes = {TableHome.CELL, TableHome.EACH} if cell else set(TableHome)
    found: list[str] = []
    for row in columns:
        if TABLE_HOMES.get(row["name"]) in homes and row["name"] not in _OF_NO_CELL:
            table = f"{schema}.{row['name']}"
            query = _OF_SESSIONS if row["name"] == "session" else _BY_TIME
            strange = await connection.fetch(query.format(table=table), cell, 5)
            found += [f"{table} {item['id']}" for item in strange]
    return found


#: For tests of cells, which arrange their own.
OF_CELLS = pytest.mark.skipif(are_wanted(), reason="this run has a second cell already")
