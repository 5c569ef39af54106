"""Search the payments of all merchants, for operators.

Every query uses an index, and has a limit unless its index bounds the number of rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from payintent.core import ids
from payintent.db.database import Executor, Row
from payintent.db.lists import KeysetList
from payintent.db.sealing import PayerSealing, find_order_id, report_unreadable
from payintent.payments.list_store import NewestPayments, PaymentFilter, Position
from payintent.runtime.encryption import EncryptionKeyError

#: Maximum number of matches for an order id or a reference.
MATCHES_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentRecord:
    id: str
    merchant_id: int
    status: str
    amount: str
    currency: str
    payer_uid: str
    order_id: str | None
    provider: str | None  # the current session's, as are `chain`, `kind` and `country`
    chain: str | None
    kind: str | None
    country: str | None
    created_at: datetime
    expires_at: datetime
    updated_at: datetime
    found_by: str | None = None  # the property that matched; set only in search results


_NEWEST = NewestPayments(
    "(SELECT id FROM merchant WHERE id = $1 OR $1::bigint IS NULL LIMIT 100000) m"
)


async def list_positions(database: Executor, payment_filter: PaymentFilter) -> list[Position]:
    """List the positions of payments that match the indexed conditions, newest first.

    Unindexed filters (`has_unindexed_filters`) are not applied.
    """
    query, arguments = _NEWEST.build(payment_filter)
    rows = await database.fetch(query, *arguments)
    return [(row["created_at"], row["id"]) for row in rows]


async def find_by_address(
    database: Executor, address: bytes, merchant_id: int | None = None
) -> list[UUID]:
    """Find payments by the payer's chain address. `merchant_id` limits the search to a merchant."""
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
        MATCHES_MAX,
        merchant_id,
    )
    return [row["payment_id"] for row in rows]


async def find_by_reference(database: Executor, reference: str) -> list[UUID]:
    """Find payments by the gateway reference of a session, capture, refund or dispute."""
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
        MATCHES_MAX,
    )
    return [row["payment_id"] for row in rows]


async def find_by_transaction(database: Executor, tx_hash: bytes) -> list[UUID]:
    """Find payments by the hash of a transaction, confirmed or not, that pays or refunds them."""
    rows = await database.fetch(
        """
        WITH paying AS (
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
        SELECT s.payment_id FROM paying n JOIN session s ON s.id = n.session_id
        UNION
        SELECT f.payment_id FROM refunding r JOIN refund f ON f.id = r.refund_id
        WHERE f.payment_id IS NOT NULL
        LIMIT $2
        """,
        tx_hash,
        MATCHES_MAX,
    )
    return [row["payment_id"] for row in rows]


async def find_by_id(database: Executor, object_id: UUID) -> list[UUID]:
    """Find a payment by its id or by the id of its session, refund, case or event."""
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
        object_id,
    )
    return [row["payment_id"] for row in rows]


async def find_by_checkout(database: Executor, checkout_id: str) -> list[UUID]:
    rows = await database.fetch("SELECT payment_id FROM checkout WHERE id = $1", checkout_id)
    return [row["payment_id"] for row in rows]


_RECORDS = KeysetList(
    """
    SELECT p.id, p.merchant_id, p.status, p.amount_text AS amount, p.currency, p.payer_uid,
        payment_order_id(p.metadata) AS order_id,
        CASE json_typeof(p.metadata) WHEN 'string' THEN p.metadata END AS sealed,
        s.provider, s.chain, s.kind, s.country,
        p.created_at, p.expires_at, p.updated_at
    FROM unnest({payment_ids}::uuid[]) AS i (id)
    CROSS JOIN LATERAL (SELECT * FROM payment WHERE id = i.id LIMIT 1) p
    LEFT JOIN LATERAL (SELECT * FROM session WHERE id = p.session_id LIMIT 1) s ON true
    """,
    "p.created_at, p.id",
    "p.status = ANY({statuses}::text[]) AND p.currency = ANY({currencies}::text[])",
    merchant_id="p.merchant_id = {}",
    payer_uid="p.payer_uid = {}",
    created_from="p.created_at >= {}",
    amount_min="p.amount >= {}",
    amount_max="p.amount <= {}",
    provider="s.provider = {}",
    kind="s.kind = {}",
    country="s.country = {}",
    chain="s.chain = {}",
    token="s.token = {}",  # noqa: S106 - a token on a chain
    unselected="NOT {} OR s.id IS NULL",
    end="""CASE {}::text WHEN 'PAID' THEN p.paid_at WHEN 'FAILED' THEN p.failed_at
        WHEN 'EXPIRED' THEN p.expired_at ELSE p.cancelled_at END IS NOT NULL""",
    ended_from="coalesce(p.paid_at, p.failed_at, p.expired_at, p.cancelled_at) >= {}",
    ended_before="coalesce(p.paid_at, p.failed_at, p.expired_at, p.cancelled_at) < {}",
)


async def list_records(
    database: Executor, payment_ids: Sequence[UUID], payment_filter: PaymentFilter
) -> list[PaymentRecord]:
    """List the given payments that match a filter, newest first."""
    _, *cursor = payment_filter.get_bounds()
    rows = await _RECORDS.page(
        database, tuple(cursor), **asdict(payment_filter), payment_ids=payment_ids
    )
    return [_record_from_row(row, database.payer_sealing) for row in rows]


def _record_from_row(row: Row, sealing: PayerSealing) -> PaymentRecord:
    values = dict(row)
    values["id"] = ids.format_id(ids.PAYMENT, row["id"])
    values["order_id"] = _read_order_id(row, sealing)
    del values["sealed"]
    return PaymentRecord(**values)


def _read_order_id(row: Row, sealing: PayerSealing) -> str | None:
    if row["sealed"] is None:
        return row["order_id"]
    try:
        return find_order_id(sealing.unseal_metadata(row["id"], row["sealed"]))
    except EncryptionKeyError as error:  # list the payment without its order id
        report_unreadable("payment", row["id"], error)
        return None


_PAYMENTS: LiteralString = """
    SELECT id FROM payment WHERE (merchant_id = $5 OR $5::bigint IS NULL) AND """
_BY_ORDER: LiteralString = (
    _PAYMENTS
    + "hashtextextended(payment_order_id(metadata), 0) = hashtextextended($1, 0)"
    + " AND payment_order_id(metadata) = $1 UNION ALL "
    + _PAYMENTS
    + """json_typeof(metadata) = 'string'
        AND split_part(metadata #>> '{}', ':', 2) = ANY($3::text[])
        AND split_part(metadata #>> '{}', ':', 3) = ANY($4::text[])
    LIMIT $2
    """
)
_BY_EMAIL: LiteralString = (
    _PAYMENTS
    + "lower(payer_email) = lower($1) UNION ALL"
    + _PAYMENTS
    + """starts_with(payer_email, 'sealed:')
        AND split_part(payer_email, ':', 2) = ANY($3::text[])
        AND split_part(payer_email, ':', 3) = ANY($4::text[])
    LIMIT $2
    """
)


async def find_by_order(
    database: Executor, order_id: str, merchant_id: int | None = None, limit: int | None = None
) -> list[UUID]:
    """Return up to `limit` payments with the order id; `MATCHES_MAX` by default."""
    sealing = database.payer_sealing
    digests = sealing.list_order_digests(order_id)
    values = (order_id, limit or MATCHES_MAX, sealing.key_names, digests, merchant_id)
    return [row["id"] for row in await database.fetch(_BY_ORDER, *values)]


async def find_order_payments(
    database: Executor, order_id: str | None, merchant_id: int | None
) -> list[UUID] | None:
    """Return the ids of the payments with the order id; None if `order_id` is None."""
    if order_id is None:
        return None
    if "\x00" in order_id:  # PostgreSQL rejects NUL
        return []
    return await find_by_order(database, order_id, merchant_id)


async def list_order_ids(database: Executor, payment_ids: Iterable[str | None]) -> dict[str, str]:
    """Return the order ids of payments by payment id; payments without an order id are omitted."""
    payment_uuids = {
        ids.parse_id(ids.PAYMENT, payment_id) for payment_id in payment_ids if payment_id
    }
    rows = await database.fetch(
        """
        SELECT id, payment_order_id(metadata) AS order_id,
            CASE json_typeof(metadata) WHEN 'string' THEN metadata END AS sealed
        FROM payment
        WHERE id = ANY($1::uuid[])
        """,
        list(payment_uuids),
    )
    order_ids = {
        ids.format_id(ids.PAYMENT, row["id"]): _read_order_id(row, database.payer_sealing)
        for row in rows
    }
    return {payment_id: order_id for payment_id, order_id in order_ids.items() if order_id}


async def find_by_email(
    database: Executor, email: str, merchant_id: int | None = None
) -> list[UUID]:
    """Find payments by their payer's email address, case-insensitively."""
    sealing = database.payer_sealing
    digests = sealing.list_email_digests(email)
    values = (email, MATCHES_MAX, sealing.key_names, digests, merchant_id)
    return [row["id"] for row in await database.fetch(_BY_EMAIL, *values)]
