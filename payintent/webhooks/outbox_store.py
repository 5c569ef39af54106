"""Queries on the outbox: events, their deliveries to merchants, and delivery attempts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import build
from payintent.db.sealing import PayerSealing, report_unreadable
from payintent.runtime.encryption import EncryptionKeyError
from payintent.webhooks.model import OutgoingDelivery

#: Delivery states. Operators can resend `dead` and `skipped` deliveries.
STATES = ("pending", "delivered", "dead", "skipped")
_ATTEMPTS_MAX = 1_000
_RELEASED_MAX = 1_000
#: CTE `waiting (merchant_id, next_at)`: merchants with pending deliveries, and when the earliest is
#: due. It needs one index probe per merchant, regardless of backlog size.
WAITING_MERCHANTS = """
    WITH RECURSIVE waiting AS (
        (
            SELECT merchant_id, next_at
            FROM delivery
            WHERE state = 'pending'
            ORDER BY merchant_id, next_at
            LIMIT 1
        )
        UNION ALL
        SELECT next_merchant.merchant_id, next_merchant.next_at
        FROM waiting w
        CROSS JOIN LATERAL (
            SELECT merchant_id, next_at
            FROM delivery
            WHERE state = 'pending' AND merchant_id > w.merchant_id
            ORDER BY merchant_id, next_at
            LIMIT 1
        ) next_merchant
    )
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    id: UUID
    payment_id: UUID
    merchant_id: int
    type: str
    body: str  # sent byte for byte
    occurred_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    id: UUID
    event_id: UUID
    number: int  # starts at 1
    url: str
    outcome: str
    status: int | None
    detail: str
    answer: str
    duration_ms: int
    delivered: bool
    next_wait_s: float | None  # None: not retried, so a failed delivery becomes dead


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAttempt:
    number: int  # numbering continues across replays
    started_at: datetime
    url: str | None  # None: stored before this column existed
    outcome: str
    status: int | None
    detail: str
    answer: str
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRecord:
    """An event and its delivery state."""

    event_id: UUID
    type: str
    payment_id: str  # in the API's format
    merchant_id: int
    state: str
    attempts: int  # since the last replay
    next_at: datetime
    occurred_at: datetime


async def add(tx: Tx, events: Sequence[EventRecord]) -> None:
    """Store events in the same transaction as the changes that they report.

    A delivery is skipped if the merchant has no callback URL. A completed payment also queues a
    receipt by email if the merchant has enabled receipts.
    """
    if not events:
        return
    tx.has_new_events = True
    await tx.fetch(
        """
        WITH stored AS (
            INSERT INTO event (id, payment_id, merchant_id, type, body, occurred_at)
            SELECT *
            FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[],
                $6::timestamptz[])
            RETURNING id, payment_id, merchant_id, type, occurred_at
        ), receipt_payments AS MATERIALIZED (
            SELECT t.payment_id
            FROM stored t
            JOIN merchant m ON m.id = t.merchant_id AND m.mail_receipts
            JOIN payment p ON p.id = t.payment_id AND p.payer_email IS NOT NULL
            WHERE t.type = 'payment.completed'
        ), receipts AS (
            INSERT INTO mail (kind, payment_id)
            SELECT 'receipt', payment_id
            FROM receipt_payments
        )
        INSERT INTO delivery (event_id, merchant_id, state, next_at)
        SELECT t.id, t.merchant_id,
            CASE WHEN m.callback_url IS NULL THEN 'skipped' ELSE 'pending' END, t.occurred_at
        FROM stored t
        JOIN merchant m ON m.id = t.merchant_id
        """,
        [event.id for event in events],
        [event.payment_id for event in events],
        [event.merchant_id for event in events],
        [event.type for event in events],
        [tx.payer_sealing.seal_body(event.id, event.body) for event in events],
        [event.occurred_at for event in events],
    )


async def list_due_endpoints(database: Executor, limit: int) -> list[tuple[int, str | None]]:
    """List merchants with due deliveries and their callback URLs, longest-waiting first."""
    rows = await database.fetch(
        WAITING_MERCHANTS
        + """
        SELECT w.merchant_id, m.callback_url
        FROM waiting w
        CROSS JOIN LATERAL (
            SELECT callback_url FROM merchant WHERE id = w.merchant_id LIMIT 1
        ) m
        WHERE w.next_at <= clock()
        ORDER BY w.next_at
        LIMIT $1
        """,
        limit,
    )
    return [(row["merchant_id"], row["callback_url"]) for row in rows]


async def claim_due(
    database: Executor, limits: Sequence[tuple[int, int]], lease_s: float
) -> list[OutgoingDelivery]:
    """Claim up to 500 due deliveries; `limits` are `(merchant_id, limit)` pairs.

    Deliveries are returned without secrets. If this process dies or a sealed body cannot be
    decrypted, the delivery becomes due again when the lease expires. If the merchant's callback URL
    has been removed, the delivery is skipped. The limit of 500 is a literal, because the planner
    would scan the whole backlog if it were a parameter.
    """
    rows = await database.fetch(
        """
        WITH claimed AS (
            UPDATE delivery d
            SET state = CASE WHEN m.callback_url IS NULL THEN 'skipped' ELSE 'pending' END,
                next_at = clock() + $3 * interval '1 second',
                lease_until = clock() + $3 * interval '1 second'
            FROM merchant m
            WHERE m.id = d.merchant_id AND d.event_id IN (
                SELECT due.event_id
                FROM unnest($1::bigint[], $2::int[]) AS w (merchant_id, limit_count)
                CROSS JOIN LATERAL (
                    SELECT event_id
                    FROM delivery
                    WHERE state = 'pending' AND merchant_id = w.merchant_id AND next_at <= clock()
                    ORDER BY next_at
                    LIMIT w.limit_count
                    FOR UPDATE SKIP LOCKED
                ) due
                LIMIT 500
            )
            RETURNING d.event_id, d.merchant_id, d.attempts, m.callback_url AS url,
                m.callback_by_member AS is_public_only
        )
        SELECT t.event_id, e.payment_id, t.merchant_id, t.attempts, t.url, t.is_public_only, e.body
        FROM claimed t
        JOIN event e ON e.id = t.event_id
        WHERE t.url IS NOT NULL
        ORDER BY e.id
        LIMIT 500
        """,
        [merchant_id for merchant_id, _ in limits],
        [limit for _, limit in limits],
        lease_s,
    )
    return [
        build(OutgoingDelivery, row, body=body.encode(), secrets=())
        for row, body in decrypt_bodies(rows, "event_id", database.payer_sealing)
    ]


def decrypt_bodies(
    rows: Sequence[Row], id_column: str, sealing: PayerSealing
) -> Iterator[tuple[Row, str]]:
    """Decrypt the event bodies of rows. Rows that cannot be decrypted are logged and skipped."""
    for row in rows:
        try:
            body = sealing.unseal_body(row[id_column], row["body"])
        except EncryptionKeyError as error:
            report_unreadable("event", row[id_column], error)
        else:
            yield row, body


async def release(database: Executor, merchant_id: int) -> bool:
    """Make up to 1,000 of a merchant's delayed retries due now; return True if more may remain.

    Leased deliveries are not affected.
    """
    rows = await database.fetch(
        """
        UPDATE delivery
        SET next_at = clock()
        WHERE event_id IN (
            SELECT event_id
            FROM delivery
            WHERE merchant_id = $1 AND state = 'pending' AND next_at > clock()
                AND lease_until <= clock()
            ORDER BY next_at
            LIMIT 1000
            FOR UPDATE SKIP LOCKED
        )
        RETURNING 1 AS released
        """,
        merchant_id,
    )
    return len(rows) == _RELEASED_MAX


async def record(database: Executor, attempts: Sequence[AttemptRecord]) -> None:
    """Store attempts and update their deliveries.

    An attempt does not change its delivery if the delivery has been replayed, or another attempt
    has been recorded, since it was claimed.
    """
    await database.fetch(
        """
        WITH finished AS (
            SELECT *, clock() AS now,
                clock() + coalesce(next_wait_s, 0) * interval '1 second' AS next_at
            FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::text[], $5::int[], $6::text[],
                $7::text[], $8::int[], $9::boolean[], $10::float8[], $11::text[])
                AS a (id, event_id, number, outcome, status, detail, answer, duration_ms,
                    delivered, next_wait_s, url)
        ), written AS (
            INSERT INTO attempt
                (id, event_id, number, outcome, status, detail, answer, duration_ms, started_at,
                 url)
            SELECT id, event_id, number, outcome, status, detail, answer, duration_ms,
                now - duration_ms * interval '1 millisecond', url
            FROM finished
        )
        UPDATE delivery d
        SET attempts = m.number,
            state = CASE
                WHEN m.delivered THEN 'delivered'
                WHEN m.next_wait_s IS NULL THEN 'dead'
                ELSE 'pending'
            END,
            delivered_at = CASE WHEN m.delivered THEN m.now END,
            next_at = m.next_at,
            lease_until = '-infinity'
        FROM finished m
        WHERE d.event_id = m.event_id AND d.state = 'pending' AND d.attempts = m.number - 1
        """,
        [attempt.id for attempt in attempts],
        [attempt.event_id for attempt in attempts],
        [attempt.number for attempt in attempts],
        [attempt.outcome for attempt in attempts],
        [attempt.status for attempt in attempts],
        [attempt.detail for attempt in attempts],
        [attempt.answer for attempt in attempts],
        [attempt.duration_ms for attempt in attempts],
        [attempt.delivered for attempt in attempts],
        [attempt.next_wait_s for attempt in attempts],
        [attempt.url for attempt in attempts],
    )


async def get_event(
    database: Executor, event_id: UUID, merchant_id: int | None = None
) -> EventRecord | None:
    """Return an event; None if it does not exist or belongs to a different merchant."""
    row = await database.row(
        """
        SELECT id, payment_id, merchant_id, type, body, occurred_at
        FROM event
        WHERE id = $1 AND (merchant_id = $2 OR $2::bigint IS NULL)
        """,
        event_id,
        merchant_id,
    )
    if row is None:
        return None
    return build(EventRecord, row, body=database.payer_sealing.unseal_body(row["id"], row["body"]))


async def list_attempts(database: Executor, event_id: UUID) -> list[StoredAttempt]:
    """List the last 1,000 attempts to deliver an event, oldest first."""
    rows = await database.fetch(
        """
        SELECT number, started_at, url, outcome, status, detail, answer, duration_ms
        FROM (
            SELECT row_number() OVER (ORDER BY started_at, id) AS number, started_at, url, outcome,
                status, detail, answer, duration_ms
            FROM attempt
            WHERE event_id = $1
            ORDER BY started_at DESC, id DESC
            LIMIT $2
        ) numbered
        ORDER BY number
        """,
        event_id,
        _ATTEMPTS_MAX,
    )
    return [StoredAttempt(**row) for row in rows]


async def is_fully_delivered(database: Executor, payment_id: UUID) -> bool:
    """Return whether a payment has no pending delivery. Dead deliveries are not pending."""
    row = await database.row(
        """
        SELECT 1 AS pending
        FROM event e
        JOIN delivery d ON d.event_id = e.id
        WHERE e.payment_id = $1 AND d.state = 'pending'
        """,
        payment_id,
    )
    return row is None
