"""Lists of a merchant's payments: newest first, at a constant cost whatever the filter."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import LiteralString
from uuid import UUID

from payintent.domain.currencies import CURRENCIES
from payintent.domain.payment import PaymentStatus
from payintent.storage import payments, sessions
from payintent.storage.database import Executor
from payintent.storage.payments import PaymentSnapshot

LISTED_MAX = 100
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = (datetime.max.replace(tzinfo=UTC), UUID(int=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentFilter:
    """Which of a merchant's payments to list; `before` is where the last page ended."""

    merchant_id: int
    statuses: tuple[PaymentStatus, ...] = tuple(PaymentStatus)
    currencies: tuple[str, ...] = tuple(CURRENCIES)
    payer_uid: str | None = None
    created_from: datetime | None = None  # inclusive
    created_to: datetime | None = None  # exclusive
    before: tuple[datetime, UUID] | None = None
    limit: int = 20  # at most 101


# One upper bound, never two: a scan can start at only one, and might pick the other. A limit that
# is no parameter, of a page of 100 and one more, tells the planner how few rows there will be: it
# then plans once for all calls, which is half of the cost of one.
_ALL: LiteralString = """
    WITH page AS (
        SELECT id
        FROM (
            SELECT created_at, id
            FROM payment
            WHERE merchant_id = $1
                AND created_at >= $2::timestamptz
                AND (created_at, id) < ($3::timestamptz, $4::uuid)
            ORDER BY created_at DESC, id DESC
            LIMIT 101
        ) most
        ORDER BY created_at DESC, id DESC
        LIMIT $5
    )
"""
# Each index holds one kind in order: the newest of each are looked up and merged. Nothing is
# NULL: each index has an order of its own, and only one fits.
_OF_KINDS: LiteralString = """
    WITH page AS (
        SELECT one.id
        FROM unnest($6::text[]) AS c (currency)
        CROSS JOIN unnest($7::text[]) AS s (status)
        CROSS JOIN LATERAL (
            SELECT created_at, id
            FROM payment
            WHERE merchant_id = $1
                AND currency = c.currency
                AND status = s.status
                AND created_at >= $2::timestamptz
                AND (created_at, id) < ($3::timestamptz, $4::uuid)
            ORDER BY created_at DESC NULLS LAST, id DESC
            LIMIT $5
        ) one
        ORDER BY one.created_at DESC, one.id DESC
        LIMIT $5
    )
"""
_OF_PAYER: LiteralString = """
    WITH page AS (
        SELECT one.id
        FROM unnest($6::text[]) AS c (currency)
        CROSS JOIN unnest($7::text[]) AS s (status)
        CROSS JOIN LATERAL (
            SELECT created_at, id
            FROM payment
            WHERE merchant_id = $1
                AND payer_uid = $8
                AND currency = c.currency
                AND status = s.status
                AND created_at >= $2::timestamptz
                AND (created_at, id) < ($3::timestamptz, $4::uuid)
            ORDER BY created_at DESC, id DESC NULLS LAST
            LIMIT $5
        ) one
        ORDER BY one.created_at DESC, one.id DESC
        LIMIT $5
    )
"""
# Looked up one by one: the planner may overestimate the length of a page.
_PAGE: LiteralString = (
    """
    SELECT clock() AS now,"""
    + payments.COLUMNS
    + ","
    + sessions.COLUMNS
    + """
    FROM page
    CROSS JOIN LATERAL (SELECT * FROM payment WHERE id = page.id LIMIT 1) p
    LEFT JOIN LATERAL (SELECT * FROM session WHERE id = p.session_id LIMIT 1) s ON true
    ORDER BY p.created_at DESC, p.id DESC
    LIMIT $5
"""
)


async def list_payments(database: Executor, wanted: PaymentFilter) -> list[PaymentSnapshot]:
    """List payments with their current sessions; what does not open as `payments.lock` gives it."""
    query, more = _choose(wanted)
    rows = await database.fetch(
        query + _PAGE,
        wanted.merchant_id,
        wanted.created_from or _FIRST,
        *_before(wanted),
        wanted.limit,
        *more,
    )
    return [payments.snapshot_of_many(row, database.payer_sealing) for row in rows]


def _before(wanted: PaymentFilter) -> tuple[datetime, UUID]:
    """Return the lower one of the two upper bounds."""
    until = (wanted.created_to, UUID(int=0)) if wanted.created_to else _LAST
    return min(until, wanted.before or _LAST)


def _choose(wanted: PaymentFilter) -> tuple[LiteralString, Sequence[object]]:
    """Choose the index whose order fits, and the further arguments of its query."""
    kinds = list(wanted.currencies), list(wanted.statuses)
    if wanted.payer_uid is not None:
        return _OF_PAYER, (*kinds, wanted.payer_uid)
    if len(wanted.currencies) == len(CURRENCIES) and len(wanted.statuses) == len(PaymentStatus):
        return _ALL, ()
    return _OF_KINDS, kinds
