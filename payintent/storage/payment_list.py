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


_KINDS: LiteralString = """
    CROSS JOIN unnest($6::text[]) AS c (currency)
    CROSS JOIN unnest($7::text[]) AS s (status)
"""
_OF_KIND: LiteralString = " AND currency = c.currency AND status = s.status"


class NewestPayments:
    """The newest payments of each of these merchants, merged in the order of the index that fits.

    One upper bound, never two: a scan can start at only one, and might pick the other. Each index
    of kinds holds one kind of one merchant in order: the newest of each are looked up and merged.
    Nothing is NULL: each index has an order of its own, and only one fits.
    """

    def __init__(self, merchants: LiteralString, limit: LiteralString = "$5") -> None:
        """Select from `merchants`, `limit` of each; $1 is for the caller."""
        self.all: LiteralString = _newest(merchants, "", "created_at DESC, id DESC", limit)
        kinds: LiteralString = merchants + _KINDS
        order: LiteralString = "created_at DESC NULLS LAST, id DESC"
        self.of_kinds: LiteralString = _newest(kinds, _OF_KIND, order, "$5")
        order = "created_at DESC, id DESC NULLS LAST"
        of_payer: LiteralString = " AND payer_uid = $8" + _OF_KIND
        self.of_payer: LiteralString = _newest(kinds, of_payer, order, "$5")

    def choose(
        self,
        currencies: Sequence[str],
        statuses: Sequence[PaymentStatus],
        payer_uid: str | None,
    ) -> tuple[LiteralString, Sequence[object]]:
        """Return a query, and its arguments from $6 on."""
        kinds = list(currencies), list(statuses)
        if payer_uid is not None:
            return self.of_payer, (*kinds, payer_uid)
        if len(currencies) == len(CURRENCIES) and len(statuses) == len(PaymentStatus):
            return self.all, ()
        return self.of_kinds, kinds


def _newest(
    source: LiteralString, condition: LiteralString, order: LiteralString, limit: LiteralString
) -> LiteralString:
    return (
        "SELECT one.created_at, one.id FROM "
        + source
        + """
    CROSS JOIN LATERAL (
        SELECT created_at, id
        FROM payment
        WHERE merchant_id = m.id"""
        + condition
        + """
            AND created_at >= $2::timestamptz
            AND (created_at, id) < ($3::timestamptz, $4::uuid)
        ORDER BY """
        + order
        + " LIMIT "
        + limit
        + """
    ) one
    ORDER BY one.created_at DESC, one.id DESC
    LIMIT $5
"""
    )


def bounds(
    created_from: datetime | None,
    created_before: datetime | None,
    before: tuple[datetime, UUID] | None,
) -> tuple[datetime, datetime, UUID]:
    """Return the values of $2 to $4: the lower bound, and the lower one of the upper bounds."""
    until = (created_before, UUID(int=0)) if created_before else _LAST
    return created_from or _FIRST, *min(until, before or _LAST)


# A limit that is no parameter, of a page of 100 and one more, tells the planner how few rows there
# will be: it then plans once for all calls, which is half of the cost of one.
NEWEST = NewestPayments("(SELECT $1::bigint AS id) m", "101")
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
    query, more = NEWEST.choose(wanted.currencies, wanted.statuses, wanted.payer_uid)
    rows = await database.fetch(
        "WITH page AS (" + query + ")" + _PAGE,
        wanted.merchant_id,
        *bounds(wanted.created_from, wanted.created_to, wanted.before),
        wanted.limit,
        *more,
    )
    return [payments.snapshot_of_many(row, database.payer_sealing) for row in rows]
