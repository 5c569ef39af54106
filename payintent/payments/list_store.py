"""List a merchant's payments, newest first, at a constant cost for every filter."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import LiteralString
from uuid import UUID

from payintent.core.money import CURRENCIES
from payintent.db.database import Executor
from payintent.payments import store as payment_store
from payintent.payments.model import PaymentStatus
from payintent.payments.store import PaymentSnapshot

_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = (datetime.max.replace(tzinfo=UTC), UUID(int=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentFilter:
    merchant_id: int
    statuses: tuple[PaymentStatus, ...] = tuple(PaymentStatus)
    currencies: tuple[str, ...] = tuple(CURRENCIES)
    payer_uid: str | None = None
    created_from: datetime | None = None  # inclusive
    created_to: datetime | None = None  # exclusive
    before: tuple[datetime, UUID] | None = None  # the end of the previous page
    limit: int = 20  # at most 101


_KINDS: LiteralString = """
    CROSS JOIN unnest($6::text[]) AS c (currency)
    CROSS JOIN unnest($7::text[]) AS s (status)
"""
_OF_KIND: LiteralString = " AND currency = c.currency AND status = s.status"


class NewestPayments:
    """Queries for the newest payments of each merchant in a list, with a query for each index.

    Each query has a single upper bound, because an index scan starts at a single bound and the
    planner might choose the wrong bound. The indexes by currency and status are sorted per currency
    and status, so the newest payments of each combination are looked up and merged. The NULLS order
    selects the index: no column is NULL, and each index has an order of its own.
    """

    def __init__(self, merchants: LiteralString, limit: LiteralString = "$5") -> None:
        """Select `limit` payments of each of `merchants`; $1 is a parameter of `merchants`."""
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
        """Return the query for a filter and its arguments from $6."""
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
        "SELECT n.created_at, n.id FROM "
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
    ) n
    ORDER BY n.created_at DESC, n.id DESC
    LIMIT $5
"""
    )


def bounds(
    created_from: datetime | None,
    created_before: datetime | None,
    before: tuple[datetime, UUID] | None,
) -> tuple[datetime, datetime, UUID]:
    """Return the values of $2 to $4: the lower bound, and the lower of the two upper bounds."""
    until = (created_before, UUID(int=0)) if created_before else _LAST
    return created_from or _FIRST, *min(until, before or _LAST)


# A literal limit (100 payments per page, and 1 more) tells the planner how few rows to expect. It
# then uses a generic plan, which halves the cost of a call.
NEWEST = NewestPayments("(SELECT $1::bigint AS id) m", "101")
# LATERAL lookups by id, because the planner may overestimate the length of a page.
_PAGE: LiteralString = (
    payment_store.SNAPSHOT
    + """
    FROM page
    CROSS JOIN LATERAL (SELECT * FROM payment WHERE id = page.id LIMIT 1) p
    LEFT JOIN LATERAL (SELECT * FROM session WHERE id = p.session_id LIMIT 1) s ON true
    ORDER BY p.created_at DESC, p.id DESC
    LIMIT $5
"""
)


async def list_payments(database: Executor, payment_filter: PaymentFilter) -> list[PaymentSnapshot]:
    """List payments; values that cannot be decrypted stay sealed."""
    query, arguments = NEWEST.choose(
        payment_filter.currencies, payment_filter.statuses, payment_filter.payer_uid
    )
    rows = await database.fetch(
        "WITH page AS (" + query + ")" + _PAGE,
        payment_filter.merchant_id,
        *bounds(payment_filter.created_from, payment_filter.created_to, payment_filter.before),
        payment_filter.limit,
        *arguments,
    )
    return [payment_store.snapshot_from_row(row, database.payer_sealing) for row in rows]
