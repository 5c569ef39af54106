"""The audit log. Entries are only ever added."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from payintent.db.database import Executor, Tx
from payintent.db.lists import KeysetList


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAuditEntry:
    id: UUID
    who: str
    why: str
    action: str
    merchant_id: int | None
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    id: UUID
    at: datetime
    who: str
    why: str
    action: str
    merchant_id: int | None
    details: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditScope:
    """A filter; None matches every entry. `before` is the last id of a page."""

    merchant_id: int | None
    action: str | None
    who: str | None
    since: datetime | None
    until: datetime | None
    before: UUID | None
    limit: int


async def add(tx: Tx, entry: NewAuditEntry) -> None:
    """Record a change in the same transaction."""
    await tx.fetch(
        """
        INSERT INTO audit (id, who, why, action, merchant_id, details)
        VALUES ($1, $2, $3, $4, $5, $6)
        """,
        entry.id,
        entry.who,
        entry.why,
        entry.action,
        entry.merchant_id,
        msgspec.json.encode(entry.details).decode(),
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


async def list_entries(database: Executor, scope: AuditScope) -> list[AuditEntry]:
    rows = await _ENTRIES.page(database, scope.before, **asdict(scope))
    return [AuditEntry(**{**row, "details": msgspec.json.decode(row["details"])}) for row in rows]


async def is_writable(database: Executor) -> bool:
    """Return True if PostgreSQL lets the role of this connection change or delete entries."""
    return await database.value(
        "SELECT has_table_privilege('audit', 'UPDATE, DELETE, TRUNCATE') AS writable"
    )


async def has_merchant(database: Executor, merchant_id: int) -> bool:
    return await database.row("SELECT FROM merchant WHERE id = $1", merchant_id) is not None
