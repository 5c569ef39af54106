"""List a merchant's payments. The cost of a page does not depend on the filters."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import LiteralString
from uuid import UUID

from payintent.core.money import CURRENCIES
from payintent.db.database import Executor
from payintent.payments import store as payment_store
from payintent.payments.model import PaymentStatus
from payintent.payments.store import PaymentSnapshot

#: A payment's sort key in lists: `created_at` and id.
Position = tuple[datetime, UUID]
_MIN_TIME = datetime.min.replace(tzinfo=UTC)
_MAX_POSITION = (datetime.max.replace(tzinfo=UTC), UUID(int=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentFilter:
    """Filters and page of a payment list, which is sorted newest first.

    The fields from `amount_min` to `ended_before` are only for operators. They are not indexed, so
    payments must be read to apply them (see `has_unindexed_filters`).
    """

    merchant_id: int | None = None
    statuses: tuple[PaymentStatus, ...] = tuple(PaymentStatus)
    currencies: tuple[str, ...] = tuple(CURRENCIES)
    payer_uid: str | None = None
    created_from: datetime | None = None  # inclusive
    created_before: datetime | None = None
    amount_min: Decimal | None = None
    amount_max: Decimal | None = None
    provider: str | None = None  # of the current session, like `kind` and `country`
    kind: str | None = None
    country: str | None = None
    chain: str | None = None
    token: str | None = None
    unselected: bool = False  # only payments without a session
    end: str | None = None  # the final status; PAID includes refunded payments
    ended_from: datetime | None = None
    ended_before: datetime | None = None
    before: Position | None = None  # position of the last payment on the previous page
    limit: int = 20  # at most 101 for a merchant's list

    @property
    def has_unindexed_filters(self) -> bool:
        session_fields = (self.provider, self.kind, self.country, self.chain, self.token)
        end_fields = (self.end, self.ended_from, self.ended_before)
        properties = (self.amount_min, self.amount_max, *session_fields, *end_fields)
        return self.unselected or any(value is not None for value in properties)

    def get_bounds(self) -> tuple[datetime, datetime, UUID]:
        """Return the earliest creation time, and the earlier of `created_before` and `before`."""
        until = (self.created_before, UUID(int=0)) if self.created_before else _MAX_POSITION
        return self.created_from or _MIN_TIME, *min(until, self.before or _MAX_POSITION)


_COMBINATIONS: LiteralString = """
    CROSS JOIN unnest($6::text[]) AS c (currency)
    CROSS JOIN unnest($7::text[]) AS s (status)
"""
_MATCHES: LiteralString = " AND currency = c.currency AND status = s.status"


class NewestPayments:
    """Queries for the newest payments of each merchant, with one query per index.

    Each query has a single upper bound, because an index scan starts at a single bound, and the
    planner might choose the wrong bound if there were two. The indexes on currency and status are
    sorted within each combination of the two, so the newest payments of each combination are read
    and merged. The NULLS order selects the index: no column is NULL, but each index has a different
    NULLS order.
    """

    def __init__(self, merchants: LiteralString, limit: LiteralString = "$5") -> None:
        """`merchants` is a FROM item aliased as `m`; `limit` is the maximum per merchant."""
        self.unfiltered_query: LiteralString = _build_newest_query(
            merchants, "", "created_at DESC, id DESC", limit
        )
        combinations: LiteralString = merchants + _COMBINATIONS
        order: LiteralString = "created_at DESC NULLS LAST, id DESC"
        self.status_query: LiteralString = _build_newest_query(combinations, _MATCHES, order, "$5")
        order = "created_at DESC, id DESC NULLS LAST"
        condition: LiteralString = " AND payer_uid = $8" + _MATCHES
        self.payer_query: LiteralString = _build_newest_query(combinations, condition, order, "$5")

    def build(self, payment_filter: PaymentFilter) -> tuple[LiteralString, tuple[object, ...]]:
        """Return the query and arguments for a filter."""
        arguments = (payment_filter.merchant_id, *payment_filter.get_bounds(), payment_filter.limit)
        codes, statuses = list(payment_filter.currencies), list(payment_filter.statuses)
        if payment_filter.payer_uid is not None:
            return self.payer_query, (
                *arguments,
                codes,
                statuses,
                payment_filter.payer_uid,
            )
        if (len(codes), len(statuses)) == (len(CURRENCIES), len(PaymentStatus)):
            return self.unfiltered_query, arguments
        return self.status_query, (*arguments, codes, statuses)


def _build_newest_query(
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


# Because the limit (100 payments per page, plus 1) is a literal, the planner expects few rows and
# uses a generic plan, which halves the cost of a call.
NEWEST = NewestPayments("(SELECT $1::bigint AS id) m", "101")
# Payments are looked up by id with LATERAL, because the planner may overestimate the page size.
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
    """List a merchant's payments. Values that cannot be decrypted stay sealed."""
    query, arguments = NEWEST.build(payment_filter)
    rows = await database.fetch("WITH page AS (" + query + ")" + _PAGE, *arguments)
    return [payment_store.snapshot_from_row(row, database.payer_sealing) for row in rows]
