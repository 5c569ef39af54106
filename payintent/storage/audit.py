"""The audit log: who changed what, and why; entries are only ever added."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from payintent.storage.database import Executor, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAuditEntry:
    """The audit entry of a change that is being made."""

    id: UUID
    who: str
    why: str
    action: str
    merchant_id: int | None
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """The audit entry of a change that was made."""

    id: UUID
    at: datetime
    who: str
    why: str
    action: str
    merchant_id: int | None
    details: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditScope:
    """Which entries are listed; None means all, and `before` is the last entry of a page."""

    merchant_id: int | None
    action: str | None
    who: str | None
    since: datetime | None
    until: datetime | None
    before: UUID | None
    limit: int


async def add(tx: Tx, entry: NewAuditEntry) -> None:
    """Record a change in the transaction that makes it."""
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


async def list_entries(database: Executor, scope: AuditScope) -> list[AuditEntry]:
    """List the changes of a scope, newest first."""
    rows = await database.fetch(
        """
        SELECT id, at, who, why, action, merchant_id, details
        FROM audit
        WHERE (merchant_id = $1 OR $1::bigint IS NULL)
            AND (action = $2 OR starts_with(action, $2 || '.') OR $2::text IS NULL)
            AND (who = $3 OR $3::text IS NULL)
            AND (at >= $4 OR $4::timestamptz IS NULL)
            AND (at < $5 OR $5::timestamptz IS NULL)
            AND (id < $6 OR $6::uuid IS NULL)
        ORDER BY id DESC
        LIMIT $7
        """,
        scope.merchant_id,
        scope.action,
        scope.who,
        scope.since,
        scope.until,
        scope.before,
        scope.limit,
    )
    return [AuditEntry(**{**row, "details": msgspec.json.decode(row["details"])}) for row in rows]


async def is_writable(database: Executor) -> bool:
    """Tell whether PostgreSQL lets the role of this connection change or delete entries."""
    row = await database.row(
        "SELECT has_table_privilege('audit', 'UPDATE, DELETE, TRUNCATE') AS writable"
    )
    return row is not None and row["writable"]
