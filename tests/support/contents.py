"""The contents of a database by table, to detect changes."""

from collections.abc import Collection

from tests.support.world import World

_TABLES = """
    SELECT c.relname AS name
    FROM pg_class c
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
        AND NOT c.relispartition
    ORDER BY c.relname
"""


async def contents(world: World, but: Collection[str] = ()) -> dict[str, str]:
    """Return a hash of each table's rows, except for these tables."""
    names = [row["name"] for row in await world.rows(_TABLES)]
    hashes = " UNION ALL ".join(
        f"SELECT '{name}' AS name, md5(string_agg(t::text, ',' ORDER BY t::text)) AS hash "
        f'FROM "{name}" t'
        for name in names
        if name not in but
    )
    return {row["name"]: row["hash"] for row in await world.rows(hashes)}
