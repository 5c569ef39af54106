"""The rows and blocks that PostgreSQL reads for a statement of the service."""

import json
import re
from collections.abc import Iterator
from typing import Any, LiteralString

import asyncpg

from payintent.db.database import Row
from payintent.db.sealing import PayerSealing
from payintent.runtime.encryption import Encryption

_PARAMETER = re.compile(r"\$(\d+)")


class Recorder:
    """Replaces the database, and records the statement instead of running it."""

    payer_sealing = PayerSealing(Encryption(bytes(32), {"a": bytes(32)}), is_on=False)

    async def fetch(self, query: LiteralString, *args: object) -> list[Row]:
        self.query, self.args = query, args
        return []

    async def row(self, query: LiteralString, *args: object) -> Row | None:
        await self.fetch(query, *args)
        return None

    async def value(self, query: LiteralString, *args: object) -> Any:
        await self.fetch(query, *args)


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    if isinstance(value, list | tuple):
        value = "{" + ",".join(map(str, value)) + "}"
    return "'" + str(value) + "'"


async def plan(raw: asyncpg.Connection, recorder: Recorder) -> Any:
    """Run a statement as a prepared statement, and return PostgreSQL's plan."""
    arguments = ", ".join(_literal(arg) for arg in recorder.args)
    await raw.execute(f"PREPARE asked AS {recorder.query}")
    try:
        plan_json = await raw.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE asked ({arguments})"
        )
    finally:
        await raw.execute("DEALLOCATE asked")
    return json.loads(plan_json)[0]["Plan"]


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for item in node.get("Plans", []):
        yield from nodes(item)


def pages_read(node: dict[str, Any]) -> int:
    return node["Shared Hit Blocks"] + node["Shared Read Blocks"]


async def generic_plan(raw: asyncpg.Connection, query: str) -> Any:
    """Return the generic plan of a prepared statement, which does not depend on its values."""
    await raw.execute("SET plan_cache_mode = force_generic_plan")
    await raw.execute(f"PREPARE asked AS {query}")
    nulls = ", ".join(["NULL"] * max((int(item) for item in _PARAMETER.findall(query)), default=0))
    try:
        plan_json = await raw.fetchval(
            f"EXPLAIN (FORMAT JSON) EXECUTE asked{f' ({nulls})' if nulls else ''}"
        )
    finally:
        await raw.execute("DEALLOCATE asked")
    return json.loads(plan_json)[0]["Plan"]
