"""Every statement of a cell is planned by Citus: what the lint cannot know, this finds."""

import re
from collections.abc import Iterator

import asyncpg
import pytest

from tests.support.world import World
from tools.distributed_sql import is_of_cells, read_schema
from tools.sql_statements import STORAGE, Statement, statements

SCHEMA = read_schema((STORAGE / "schema.sql").read_text())
#: What joins temporary tables: reconciliation is not run in a cell of Citus (docs/scale.md).
RECONCILIATION = {path.stem for path in STORAGE.glob("reconciliation*.py")}
#: Said by EXPLAIN alone, of statements whose parts are run one by one; tests run those.
IN_PARTS = ("could not create distributed plan", "could not find valid entry for shard 0")


def _of_cells() -> Iterator[Statement]:
    for statement in statements():
        module = statement.function.partition(".")[0]
        is_query = re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", statement.query)
        if is_query and module not in RECONCILIATION and is_of_cells(statement.query, SCHEMA):
            yield statement


async def test_every_statement_of_a_cell_is_planned(world: World) -> None:
    connection = await world.other_connection()
    await connection.execute("SET plan_cache_mode = force_custom_plan")
    refused = {}
    for number, statement in enumerate(_of_cells()):
        name = f"statement_{number}"
        await connection.execute(f"PREPARE {name} AS {statement.query}")
        numbers = [int(each) for each in re.findall(r"\$(\d+)", statement.query)]
        nothing = ", ".join(["NULL"] * max(numbers, default=0))
        try:
            await connection.execute(f"EXPLAIN EXECUTE {name}{f'({nothing})' if nothing else ''}")
        except asyncpg.PostgresError as error:
            if not str(error).startswith(IN_PARTS):
                refused[statement.function] = str(error)
    await connection.close()
    assert refused == {}


@pytest.mark.parametrize("table", ["payment", "idempotency", "rate_state", "buyer_attempt"])
async def test_every_table_of_the_cell_is_on_one_node(world: World, table: str) -> None:
    rows = await world.database.fetch(
        "SELECT DISTINCT nodename, nodeport FROM citus_shards "  # type: ignore[arg-type]
        "WHERE table_name IN (SELECT oid FROM pg_class WHERE relnamespace = "
        f"current_schema()::regnamespace) OR table_name = '{table}'::regclass"
    )
    assert len(rows) == 1
    assert await world.database.is_distributed()
