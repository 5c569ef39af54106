"""The append-only audit log."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from payintent.db.database import Executor, Tx
from payintent.db.lists import KeysetList


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    id: UUID
    at: datetime
    who: str
    why: str
    action: str
    merchant_id: int | None
    details: Any


async def add(
    tx: Tx,
    *,
    actor_name: str,
    reason: str,
    action: str,
    merchant_id: int | None,
    details: Mapping[str, Any],
) -> None:
    """Add an entry. `tx` must be the transaction that makes the change."""
    await tx.fetch(
        """
        INSERT INTO audit (id, who, why, action, merchant_id, details)
        VALUES ($1, $2, $3, $4, $5, $6)
        """,
        tx.id_generator.new_id(),
        actor_name,
        reason,
        action,
        merchant_id,
        msgspec.json.encode(details).decode(),
    )


_ENTRIES = KeysetList(
    "SELECT id, at, who, why, action, merchant_id, details FROM audit",
    "id",
    merchant_id="merchant_id = {}",
    action="action = {0} OR starts_with(action, {0} || '.')",
    who="who = {}",
    since="at >= {}",
    until="at < {}",
)


async def list_entries(
    database: Executor, before: UUID | None, limit: int, **filters: object
) -> list[AuditEntry]:
    """List entries, newest first. `before` is the last id on the previous page.

    `filters` are values for the conditions of `_ENTRIES`. None disables a condition.
    """
    rows = await _ENTRIES.page(database, before, limit, **filters)
    return [AuditEntry(**{**row, "details": msgspec.json.decode(row["details"])}) for row in rows]


async def may_rewrite(database: Executor) -> bool:
    """Return whether the connection's database role may change or delete entries."""
    return await database.value("SELECT has_table_privilege('audit', 'UPDATE, DELETE, TRUNCATE')")


async def merchant_exists(database: Executor, merchant_id: int) -> bool:
    return await database.row("SELECT FROM merchant WHERE id = $1", merchant_id) is not None
