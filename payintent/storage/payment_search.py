"""Payments as an operator looks for them: of any merchant, by whatever an operator knows of them.

Every lookup begins at an index; what an index cannot bound, a limit does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import LiteralString
from uuid import UUID

from payintent.domain.currencies import CURRENCIES
from payintent.domain.payment import PaymentStatus
from payintent.encryption import EncryptionKeyError
from payintent.storage.database import Executor, Row
from payintent.storage.payer_sealing import PayerSealing, note_unreadable, order_id_of

#: Payments that share an order number or a reference; of more, some are left out.
SHARED_MAX = 10_000
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = (datetime.max.replace(tzinfo=UTC), UUID(int=0))
#: Where a payment stands in the order of lists: when it was made, and its id.
Position = tuple[datetime, UUID]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentRecord:
    """A payment as a list shows it to an operator."""

    id: UUID
    merchant_id: int
    status: str
    amount: str
    currency: str
    payer_uid: str
    order_id: str | None
    provider: str | None  # of the current session
    chain: str | None
    kind: str | None
    country: str | None
    created_at: datetime
    expires_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentScope:
    """Which payments to list, newest first; `before` is where the last page ended.

    No index holds the amount, the end or what the current session says: `is_narrow` tells whether
    payments have to be read to see whether they are in the scope.
    """

    merchant_id: int | None = None
    statuses: tuple[PaymentStatus, ...] = tuple(PaymentStatus)
    currencies: tuple[str, ...] = tuple(CURRENCIES)
    created_from: datetime | None = None
    created_before: datetime | None = None
    amount_min: Decimal | None = None
    amount_max: Decimal | None = None
    provider: str | None = None  # of the current session, as `kind` and `country` are
    kind: str | None = None
    country: str | None = None
    chain: str | None = None
    token: str | None = None
    unselected: bool = False  # without a session
    end: str | None = None  # how it ended: PAID whether it was refunded or not
    ended_from: datetime | None = None
    ended_before: datetime | None = None
    before: Position | None = None
    limit: int = 20

    @property
    def is_narrow(self) -> bool:
        """Tell whether more is compared than an index holds."""
        of_session = (self.provider, self.kind, self.country, self.chain, self.token)
        of_end = (self.end, self.ended_from, self.ended_before)
        compared = (self.amount_min, self.amount_max, *of_session, *of_end)
        return self.unselected or any(value is not None for value in compared)

    @property
    def start(self) -> datetime:
        """Return the lower bound of the time."""
        return self.created_from or _FIRST

    @property
    def last(self) -> Position:
        """Return the lower one of the two upper bounds; a scan can start at only one."""
        until = (self.created_before, UUID(int=0)) if self.created_before else _LAST
        return min(until, self.before or _LAST)


_MERCHANTS: LiteralString = """
    FROM (SELECT id FROM merchant WHERE id = $1 OR $1::bigint IS NULL LIMIT 100000) m
"""
# As in `payment_list`, each index holds one kind of one merchant in order; nothing is NULL.
_ALL: LiteralString = (
    """
    SELECT one.created_at, one.id"""
    + _MERCHANTS
    + """
    CROSS JOIN LATERAL (
        SELECT created_at, id
        FROM payment
        WHERE merchant_id = m.id
            AND (created_at, id) < ($2::timestamptz, $3::uuid)
            AND created_at >= $5::timestamptz
        ORDER BY created_at DESC, id DESC
        LIMIT $4
    ) one
    ORDER BY one.created_at DESC, one.id DESC
    LIMIT $4
"""
)
_OF_STATUSES: LiteralString = (
    """
    SELECT one.created_at, one.id"""
    + _MERCHANTS
    + """
    CROSS JOIN unnest($6::text[]) AS c (currency)
    CROSS JOIN unnest($7::text[]) AS s (status)
    CROSS JOIN LATERAL (
        SELECT created_at, id
        FROM payment
        WHERE merchant_id = m.id
            AND currency = c.currency
            AND status = s.status
            AND (created_at, id) < ($2::timestamptz, $3::uuid)
            AND created_at >= $5::timestamptz
        ORDER BY created_at DESC NULLS LAST, id DESC
        LIMIT $4
    ) one
    ORDER BY one.created_at DESC, one.id DESC
    LIMIT $4
"""
)
_OF_PAYER: LiteralString = (
    """
    SELECT one.created_at, one.id"""
    + _MERCHANTS
    + """
    CROSS JOIN unnest($6::text[]) AS c (currency)
    CROSS JOIN unnest($7::text[]) AS s (status)
    CROSS JOIN LATERAL (
        SELECT created_at, id
        FROM payment
        WHERE merchant_id = m.id
            AND payer_uid = $8
            AND currency = c.currency
            AND status = s.status
            AND (created_at, id) < ($2::timestamptz, $3::uuid)
            AND created_at >= $5::timestamptz
        ORDER BY created_at DESC, id DESC NULLS LAST
        LIMIT $4
    ) one
    ORDER BY one.created_at DESC, one.id DESC
    LIMIT $4
"""
)


async def list_positions(
    database: Executor, scope: PaymentScope, payer_uid: str | None
) -> list[Position]:
    """List where payments of all merchants or one stand, newest first; a narrow scope's too."""
    bounds = (scope.merchant_id, *scope.last, scope.limit, scope.start)
    kinds = (list(scope.currencies), list(scope.statuses))
    is_every_kind = kinds == (list(CURRENCIES), list(PaymentStatus))
    if payer_uid is not None:
        rows = await database.fetch(_OF_PAYER, *bounds, *kinds, payer_uid)
    elif is_every_kind:
        rows = await database.fetch(_ALL, *bounds)
    else:
        rows = await database.fetch(_OF_STATUSES, *bounds, *kinds)
    return [(row["created_at"], row["id"]) for row in rows]


async def list_ids(database: Executor, scope: PaymentScope, payer_uid: str | None) -> list[UUID]:
    """List the ids of payments of all merchants or one, newest first."""
    return [payment_id for _, payment_id in await list_positions(database, scope, payer_uid)]


async def find_by_address(
    database: Executor, address: bytes, merchant_id: int | None = None
) -> list[UUID]:
    """Find payments, of one merchant or all, by the address on a chain that money came from."""
    rows = await database.fetch(
        """
        SELECT s.payment_id
        FROM chain_receipt r
        JOIN session s ON s.id = r.session_id
        CROSS JOIN LATERAL (SELECT merchant_id FROM payment WHERE id = s.payment_id LIMIT 1) p
        WHERE r.payer = $1 AND (p.merchant_id = $3 OR $3::bigint IS NULL)
        LIMIT $2
        """,
        address,
        SHARED_MAX,
        merchant_id,
    )
    return [row["payment_id"] for row in rows]


async def find_by_reference(database: Executor, reference: str) -> list[UUID]:
    """Find payments by a gateway's reference of a session, a capture, a refund or a dispute."""
    rows = await database.fetch(
        """
        SELECT payment_id
        FROM session
        WHERE reference = $1
        UNION
        SELECT c.payment_id
        FROM provider_account a
        CROSS JOIN LATERAL (
            SELECT payment_id FROM capture WHERE account_id = a.id AND reference = $1 LIMIT 1
        ) c
        WHERE c.payment_id IS NOT NULL
        UNION
        SELECT payment_id
        FROM refund
        WHERE reference = $1 AND payment_id IS NOT NULL
        UNION
        SELECT c.payment_id
        FROM provider_account a
        CROSS JOIN LATERAL (
            SELECT capture_id FROM dispute WHERE account_id = a.id AND reference = $1 LIMIT 1
        ) d
        JOIN capture c ON c.id = d.capture_id
        WHERE c.payment_id IS NOT NULL
        LIMIT $2
        """,
        reference,
        SHARED_MAX,
    )
    return [row["payment_id"] for row in rows]


async def find_by_transaction(database: Executor, tx_hash: bytes) -> list[UUID]:
    """Find payments by a transaction that paid, was seen or posted for one, or refunded it."""
    rows = await database.fetch(
        """
        WITH named AS (
            SELECT r.session_id
            FROM chain h
            CROSS JOIN LATERAL (
                SELECT session_id FROM chain_receipt
                WHERE chain = h.slug AND tx_hash = $1 LIMIT 1000
            ) r
            UNION
            SELECT g.session_id
            FROM chain h
            CROSS JOIN LATERAL (
                SELECT session_id FROM chain_sighting
                WHERE chain = h.slug AND tx_hash = $1 LIMIT 1000
            ) g
            UNION
            SELECT session_id FROM chain_hint WHERE tx_hash = $1
        ), refunding AS (
            SELECT l.refund_id
            FROM chain h
            CROSS JOIN LATERAL (
                SELECT refund_id FROM chain_refund
                WHERE chain = h.slug AND tx_hash = $1 LIMIT 1000
            ) l
            UNION
            SELECT refund_id FROM chain_refund_try WHERE tx_hash = $1
        )
        SELECT s.payment_id FROM named n JOIN session s ON s.id = n.session_id
        UNION
        SELECT f.payment_id FROM refunding r JOIN refund f ON f.id = r.refund_id
        WHERE f.payment_id IS NOT NULL
        LIMIT $2
        """,
        tx_hash,
        SHARED_MAX,
    )
    return [row["payment_id"] for row in rows]


async def find_by_id(database: Executor, some_id: UUID) -> list[UUID]:
    """Find a payment by its own id, or by that of its session, refund, case or event."""
    rows = await database.fetch(
        """
        SELECT id AS payment_id FROM payment WHERE id = $1
        UNION
        SELECT payment_id FROM session WHERE id = $1
        UNION
        SELECT payment_id FROM refund WHERE id = $1 AND payment_id IS NOT NULL
        UNION
        SELECT payment_id FROM money_case WHERE id = $1 AND payment_id IS NOT NULL
        UNION
        SELECT payment_id FROM event WHERE id = $1
        LIMIT 10
        """,
        some_id,
    )
    return [row["payment_id"] for row in rows]


async def find_by_checkout(database: Executor, checkout_id: str) -> list[UUID]:
    """Find the payment of a checkout."""
    rows = await database.fetch("SELECT payment_id FROM checkout WHERE id = $1", checkout_id)
    return [row["payment_id"] for row in rows]


_RECORDS: LiteralString = """
    SELECT p.id, p.merchant_id, p.status, p.amount_text AS amount, p.currency, p.payer_uid,
        payment_order_id(p.metadata) AS order_id,
        CASE json_typeof(p.metadata) WHEN 'string' THEN p.metadata END AS sealed,
        s.provider, s.chain, s.kind, s.country,
        p.created_at, p.expires_at, p.updated_at
    FROM unnest($1::uuid[]) AS i (id)
    CROSS JOIN LATERAL (SELECT * FROM payment WHERE id = i.id LIMIT 1) p
    LEFT JOIN LATERAL (SELECT * FROM session WHERE id = p.session_id LIMIT 1) s ON true
    WHERE (p.merchant_id = $2 OR $2::bigint IS NULL)
        AND p.status = ANY($3::text[])
        AND (p.created_at, p.id) < ($4::timestamptz, $5::uuid)
        AND p.created_at >= $7::timestamptz
        AND p.currency = ANY($8::text[])
        AND (p.amount >= $9::numeric OR $9::numeric IS NULL)
        AND (p.amount <= $10::numeric OR $10::numeric IS NULL)
        AND (s.provider = $11 OR $11::text IS NULL)
        AND (s.kind = $12 OR $12::text IS NULL)
        AND (s.country = $13 OR $13::text IS NULL)
        AND ($14::text IS NULL OR CASE
            WHEN $14 = 'PAID' THEN p.paid_at
            WHEN $14 = 'FAILED' THEN p.failed_at
            WHEN $14 = 'EXPIRED' THEN p.expired_at
            ELSE p.cancelled_at
        END IS NOT NULL)
        AND ($15::timestamptz IS NULL
            OR coalesce(p.paid_at, p.failed_at, p.expired_at, p.cancelled_at) >= $15)
        AND ($16::timestamptz IS NULL
            OR coalesce(p.paid_at, p.failed_at, p.expired_at, p.cancelled_at) < $16)
        AND (s.chain = $17 OR $17::text IS NULL)
        AND (s.token = $18 OR $18::text IS NULL)
        AND (s.id IS NULL OR NOT $19::boolean)
    ORDER BY p.created_at DESC, p.id DESC
    LIMIT $6
"""


async def list_records(
    database: Executor, payment_ids: Sequence[UUID], scope: PaymentScope
) -> list[PaymentRecord]:
    """List those of these payments that are in a scope, newest first."""
    rows = await database.fetch(
        _RECORDS,
        payment_ids,
        scope.merchant_id,
        list(scope.statuses),
        *scope.last,
        scope.limit,
        scope.start,
        list(scope.currencies),
        scope.amount_min,
        scope.amount_max,
        scope.provider,
        scope.kind,
        scope.country,
        scope.end,
        scope.ended_from,
        scope.ended_before,
        scope.chain,
        scope.token,
        scope.unselected,
    )
    return [_record(row, database.payer_sealing) for row in rows]


def _record(row: Row, sealing: PayerSealing) -> PaymentRecord:
    values = dict(row)
    sealed = values.pop("sealed")
    if sealed is not None:
        values["order_id"] = _order_id(values["id"], sealed, sealing)
    return PaymentRecord(**values)


def _order_id(payment_id: UUID, sealed: str, sealing: PayerSealing) -> str | None:
    try:
        return order_id_of(sealing.metadata(payment_id, sealed))
    except EncryptionKeyError as error:  # the payment is listed without
        note_unreadable("payment", payment_id, error)
        return None
