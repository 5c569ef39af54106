"""Array parameters: the driver does not query built-in element types for each connection."""

from collections.abc import AsyncIterator

import pytest

from payintent.db.driver import Connection, connect, connect_as

NUMBERS = "SELECT $1::bigint[] AS numbers"
COLOURS = "SELECT ARRAY['red', 'blue']::colour[] AS colours"


@pytest.fixture(params=[False, True], ids=["prepared", "behind a pooler"])
async def connections(
    request: pytest.FixtureRequest, database_url: str
) -> AsyncIterator[list[Connection]]:
    """Two connections. The second is used only after the first."""
    first, second = [await connect_as(database_url, {}, pooled=request.param) for _ in "ab"]
    yield [first, second]
    await second.close()
    await first.close()


async def test_a_second_connection_does_not_query_the_type_of_a_number_array(
    connections: list[Connection],
) -> None:
    first, second = connections
    assert await first.fetchval(NUMBERS, [1, 2**40]) == [1, 2**40]

    before = second.get_statement_count()
    assert await second.fetchval("SELECT 7") == 7
    plain = second.get_statement_count() - before
    assert await second.fetchval(NUMBERS, [3, 2**40]) == [3, 2**40]
    assert second.get_statement_count() - before == 2 * plain


async def test_each_connection_queries_the_types_defined_in_its_database(
    connections: list[Connection], database_url: str
) -> None:
    owner = await connect(database_url)
    await owner.execute("CREATE TYPE colour AS ENUM ('red', 'blue')")
    await owner.close()
    counts = list[int]()
    for connection in connections:
        before = connection.get_statement_count()
        assert await connection.fetchval(COLOURS) == ["red", "blue"]
        counts.append(connection.get_statement_count() - before)
    assert counts[0] == counts[1] > 2
