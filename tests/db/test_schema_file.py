"""The schema file matches the schema that the migrations create."""

import asyncpg
import pytest

from tools.schema import TARGET, dump


async def test_the_schema_file_matches_the_migrated_schema(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    version = connection.get_server_version().major
    await connection.close()
    if version < 18:
        pytest.skip("the file was written by PostgreSQL 18, which dumps NOT NULL differently")
    assert dump(database_url) == TARGET.read_text()
