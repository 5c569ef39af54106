"""Cases as an operator lists them, and disputes with the time until they must be answered."""

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from payintent.domain.case import CaseKind
from payintent.storage.cases import COLUMNS, SOURCES, CaseRecord, from_row
from payintent.storage.database import Executor, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseListFilter:
    """Which cases to list, newest first; None means any, `before` ends the last page."""

    merchant_id: int | None = None
    status: str | None = None
    kind: str | None = None
    opened_from: datetime | None = None
    opened_before: datetime | None = None
    before: UUID | None = None


_NEW: LiteralString = """
    WITH first AS MATERIALIZED (
    SELECT id, merchant_id, status, kind, opened_at
    FROM money_case
    WHERE id < coalesce($4::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')"""
# Each begins at an index that holds its cases in order; of all the newest are looked through.
_OPEN: LiteralString = _NEW + " AND status = 'OPEN'"
_OF_MERCHANT: LiteralString = _NEW + " AND merchant_id = $1"
_WAITING: LiteralString = """
    WITH first AS MATERIALIZED (
    SELECT id, merchant_id, status, kind, opened_at
    FROM money_case
    WHERE id > coalesce($4::uuid, '00000000-0000-0000-0000-000000000000') AND status = 'OPEN'"""


def _shown(order: LiteralString) -> LiteralString:
    return (
        """
        ORDER BY id """
        + order
        + """
        LIMIT 10000
    ), chosen AS MATERIALIZED (
        SELECT id
        FROM first
        WHERE (merchant_id = $1 OR $1::bigint IS NULL) AND (status = $2 OR $2::text IS NULL)
            AND (kind = $3 OR $3::text IS NULL)
            AND (opened_at >= $6 OR $6::timestamptz IS NULL)
            AND (opened_at < $7 OR $7::timestamptz IS NULL)
        ORDER BY id """
        + order
        + """
        LIMIT $5
    )
    SELECT"""
        + COLUMNS
        + SOURCES
        + """
    JOIN chosen n ON n.id = m.id
    ORDER BY m.id """
        + order
        + """
    LIMIT $5
"""
    )


_NEWEST_SHOWN: LiteralString = _shown("DESC")
_OLDEST_SHOWN: LiteralString = _shown("ASC")


async def list_cases(database: Executor, wanted: CaseListFilter, limit: int) -> list[CaseRecord]:
    """List cases, newest first; where nothing holds them in order, of the newest 10,000."""
    values = (
        *(wanted.merchant_id, wanted.status, wanted.kind, wanted.before, limit),
        *(wanted.opened_from, wanted.opened_before),
    )
    if wanted.status == "OPEN":
        rows = await database.fetch(_OPEN + _NEWEST_SHOWN, *values)
    elif wanted.merchant_id is not None:
        rows = await database.fetch(_OF_MERCHANT + _NEWEST_SHOWN, *values)
    else:
        rows = await database.fetch(_NEW + _NEWEST_SHOWN, *values)
    return [from_row(row) for row in rows]


async def list_waiting_cases(
    database: Executor, wanted: CaseListFilter, after: UUID | None, limit: int
) -> list[CaseRecord]:
    """List open cases, what has waited longest first; `after` ended the last page."""
    values = (
        *(wanted.merchant_id, "OPEN", wanted.kind, after, limit),
        *(wanted.opened_from, wanted.opened_before),
    )
    rows = await database.fetch(_WAITING + _OLDEST_SHOWN, *values)
    return [from_row(row) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeFilter:
    """Which disputes to list, newest first; None means any, `before` ends the last page."""

    merchant_id: int | None = None
    running: bool = True  # the bank has not decided
    currency: str | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None
    before: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeRecord:
    """A dispute with its payment and its case."""

    id: UUID
    case_id: UUID
    case_status: str
    merchant_id: int | None
    payment_id: UUID | None
    account_id: int
    reference: str
    state: str
    funds: str
    amount_minor: str
    currency: str
    reason: str
    respond_by: datetime | None
    created_at: datetime
    updated_at: datetime


_EVERY: LiteralString = """
    WITH first AS (
        SELECT id
        FROM dispute
        WHERE id < coalesce($3::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')"""
_OF_STATE: LiteralString = " AND state IN ('inquiry', 'open', 'under_review')"
_RUNNING: LiteralString = _EVERY + _OF_STATE
_RUNNING_AFTER: LiteralString = (
    """
    WITH first AS (
        SELECT id
        FROM dispute
        WHERE id > coalesce($3::uuid, '00000000-0000-0000-0000-000000000000')"""
    + _OF_STATE
)


def _shown_disputes(order: LiteralString) -> LiteralString:
    return (
        """
        ORDER BY id """
        + order
        + """
        LIMIT 10000
    )
    SELECT d.id, d.case_id, m.status AS case_status, m.merchant_id, m.payment_id, d.account_id,
        d.reference, d.state, d.funds, d.amount_minor::text AS amount_minor, d.currency,
        d.reason, d.respond_by, d.created_at, d.updated_at
    FROM first n
    CROSS JOIN LATERAL (SELECT * FROM dispute WHERE id = n.id LIMIT 1) d
    CROSS JOIN LATERAL (
        SELECT status, merchant_id, payment_id FROM money_case WHERE id = d.case_id LIMIT 1
    ) m
    WHERE (m.merchant_id = $1 OR $1::bigint IS NULL)
        AND (d.currency = $4 OR $4::text IS NULL)
        AND (d.created_at >= $5 OR $5::timestamptz IS NULL)
        AND (d.created_at < $6 OR $6::timestamptz IS NULL)
    ORDER BY n.id """
        + order
        + """
    LIMIT $2
"""
    )


_NEWEST_DISPUTES: LiteralString = _shown_disputes("DESC")
_OLDEST_DISPUTES: LiteralString = _shown_disputes("ASC")


async def list_disputes(
    database: Executor, wanted: DisputeFilter, limit: int
) -> list[DisputeRecord]:
    """List disputes, newest first; of the newest 10,000 where they are chosen."""
    values = (
        *(wanted.merchant_id, limit, wanted.before),
        *(wanted.currency, wanted.created_from, wanted.created_before),
    )
    if wanted.running:
        rows = await database.fetch(_RUNNING + _NEWEST_DISPUTES, *values)
    else:
        rows = await database.fetch(_EVERY + _NEWEST_DISPUTES, *values)
    return [DisputeRecord(**row) for row in rows]


async def list_running_disputes(
    database: Executor, wanted: DisputeFilter, after: UUID | None, limit: int
) -> list[DisputeRecord]:
    """List disputes that run, what has waited longest first; `after` ended the last page."""
    values = (
        *(wanted.merchant_id, limit, after),
        *(wanted.currency, wanted.created_from, wanted.created_before),
    )
    rows = await database.fetch(_RUNNING_AFTER + _OLDEST_DISPUTES, *values)
    return [DisputeRecord(**row) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentCase:
    """A case of a payment as it is stored."""

    id: UUID
    kind: CaseKind
    merchant_id: int
    payment_id: UUID
    session_id: UUID | None
    capture_id: UUID | None
    status: str
    opened_at: datetime


async def list_for_payment(database: Executor, payment_id: UUID) -> list[PaymentCase]:
    """List the cases of a payment, oldest first."""
    rows = await database.fetch(
        """
        SELECT id, kind, merchant_id, payment_id, session_id, capture_id, status, opened_at
        FROM money_case
        WHERE payment_id = $1
        ORDER BY id
        LIMIT 1000
        """,
        payment_id,
    )
    return [_payment_case(row) for row in rows]


def _payment_case(row: Row) -> PaymentCase:
    values = dict(row)
    values["kind"] = CaseKind(row["kind"])
    return PaymentCase(**values)
