"""Lists of a merchant's payments: newest first, at a flat cost whatever is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import LiteralString
from uuid import UUID

from payintent.domain.market import CURRENCIES
from payintent.domain.payment import Status
from payintent.storage import payments, sessions
from payintent.storage.database import Executor
from payintent.storage.payments import Seen

LISTED_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which of a merchant's payments to list; `before` is where the last page ended."""

    merchant_id: int
    statuses: tuple[Status, ...] = tuple(Status)
    currencies: tuple[str, ...] = tuple(CURRENCIES)
    payer_uid: str | None = None
    created_from: datetime | None = None  # that moment included
    created_to: datetime | None = None  # that moment left out
    before: tuple[datetime, UUID] | None = None
    limit: int = 20


# Bounds are always given, so that one prepared plan can use them all in the index.
_BOUNDS: LiteralString = """
    created_at >= coalesce($2::timestamptz, '-infinity')
    AND created_at < coalesce($3::timestamptz, 'infinity')
    AND (created_at, id) < (coalesce($4::timestamptz, 'infinity'),
        coalesce($5::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
    ORDER BY created_at DESC, id DESC
    LIMIT $6
"""
_ALL: LiteralString = (
    """
    WITH page AS (
        SELECT id
        FROM payment
        WHERE merchant_id = $1 AND"""
    + _BOUNDS
    + ")"
)
_OF_PAYER: LiteralString = (
    """
    WITH page AS (
        SELECT id
        FROM payment
        WHERE merchant_id = $1 AND currency = ANY($7::text[]) AND status = ANY($8::text[])
            AND payer_uid = $9 AND"""
    + _BOUNDS
    + ")"
)
# The index holds each kind in order: the newest of each are looked up, and merged.
_OF_KINDS: LiteralString = (
    """
    WITH page AS (
        SELECT one.id
        FROM unnest($7::text[], $8::text[]) AS kind (currency, status)
        CROSS JOIN LATERAL (
            SELECT created_at, id
            FROM payment
            WHERE merchant_id = $1 AND currency = kind.currency AND status = kind.status AND"""
    + _BOUNDS
    + """
        ) one
        ORDER BY one.created_at DESC, one.id DESC
        LIMIT $6
    )"""
)
_PAGE: LiteralString = (
    """
    SELECT clock() AS now,"""
    + payments.COLUMNS
    + ","
    + sessions.COLUMNS
    + """
    FROM page
    JOIN payment p ON p.id = page.id
    LEFT JOIN session s ON s.id = p.session_id
    ORDER BY p.created_at DESC, p.id DESC
    LIMIT $6
"""
)


async def listed(database: Executor, wanted: Wanted) -> list[Seen]:
    """List payments with their current sessions."""
    query, more = _choose(wanted)
    before_at, before_id = wanted.before or (None, None)
    rows = await database.fetch(
        query + _PAGE,
        wanted.merchant_id,
        wanted.created_from,
        wanted.created_to,
        before_at,
        before_id,
        wanted.limit,
        *more,
    )
    return [payments.seen(row) for row in rows]


def _choose(wanted: Wanted) -> tuple[LiteralString, Sequence[object]]:
    """Choose the index whose order fits, and the values that its query takes on top."""
    if wanted.payer_uid is not None:
        return _OF_PAYER, (list(wanted.currencies), list(wanted.statuses), wanted.payer_uid)
    kinds = list(product(wanted.currencies, wanted.statuses))
    if len(kinds) == len(CURRENCIES) * len(Status):
        return _ALL, ()
    return _OF_KINDS, ([currency for currency, _ in kinds], [status for _, status in kinds])
