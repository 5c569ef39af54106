"""Events, their deliveries to the merchant, and every attempt at a delivery."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from payintent.encryption import EncryptionKeyError
from payintent.storage.database import Executor, Row, Tx
from payintent.storage.payer_sealing import PayerSealing, note_unreadable

#: The states of a delivery; `dead` and `skipped` ones are sent again on demand.
STATES = ("pending", "delivered", "dead", "skipped")
_ATTEMPTS_MAX = 1_000
_RELEASED_MAX = 1_000
#: The merchants that wait for deliveries, `waiting (merchant_id, next_at)`, each with its first
#: one: one index probe for each merchant, however long its backlog is.
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
        SELECT following.merchant_id, following.next_at
        FROM waiting w
        CROSS JOIN LATERAL (
            SELECT merchant_id, next_at
            FROM delivery
            WHERE state = 'pending' AND merchant_id > w.merchant_id
            ORDER BY merchant_id, next_at
            LIMIT 1
        ) following
    )
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """An event as it is stored: exactly the bytes that are sent."""

    id: UUID
    payment_id: UUID
    merchant_id: int
    type: str
    body: str
    occurred_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDelivery:
    """A delivery that this process has claimed, until its lease ends."""

    event_id: UUID
    payment_id: UUID
    merchant_id: int
    attempts: int  # attempts made before this one
    callback_url: str | None
    body: str
    occurred_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt and what follows from it."""

    id: UUID
    event_id: UUID
    number: int  # 1 is the first
    url: str
    outcome: str
    status: int | None
    detail: str
    answer: str
    duration_ms: int
    delivered: bool
    next_wait_s: float | None  # None with `delivered` False: dead


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAttempt:
    """One attempt as it is stored, numbered on through replays."""

    number: int
    started_at: datetime
    url: str | None  # None: stored before addresses were
    outcome: str
    status: int | None
    detail: str
    answer: str
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRecord:
    """An event and the state of its delivery."""

    event_id: UUID
    type: str
    payment_id: UUID
    merchant_id: int
    state: str
    attempts: int
    next_at: datetime
    occurred_at: datetime


def event_from_row(row: Row, sealing: PayerSealing) -> EventRecord:
    """Build an event from a row with its columns."""
    return EventRecord(**_opened(row, row["id"], sealing))


def _opened(row: Row, event_id: UUID, sealing: PayerSealing) -> dict[str, Any]:
    return {**row, "body": sealing.body(event_id, row["body"])}


async def add(tx: Tx, events: Sequence[EventRecord]) -> None:
    """Store events in the transaction of their change; without a callback URL they are skipped.

    A payment's completion also leaves a receipt to be mailed, where its merchant has that on.
    """
    if not events:
        return
    tx.wakes_delivery = True
    await tx.fetch(
        """
        WITH told AS (
            INSERT INTO event (id, payment_id, merchant_id, type, body, occurred_at)
            SELECT *
            FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[],
                $6::timestamptz[])
            RETURNING id, payment_id, merchant_id, type, occurred_at
        ), mailed AS MATERIALIZED (
            SELECT t.payment_id
            FROM told t
            JOIN merchant m ON m.id = t.merchant_id AND m.mail_receipts
            JOIN payment p ON p.id = t.payment_id AND p.payer_email IS NOT NULL
            WHERE t.type = 'payment.completed'
        ), receipts AS (
            INSERT INTO mail (kind, payment_id)
            SELECT 'receipt', payment_id
            FROM mailed
        )
        INSERT INTO delivery (event_id, merchant_id, state, next_at)
        SELECT t.id, t.merchant_id,
            CASE WHEN m.callback_url IS NULL THEN 'skipped' ELSE 'pending' END, t.occurred_at
        FROM told t
        JOIN merchant m ON m.id = t.merchant_id
        """,
        [event.id for event in events],
        [event.payment_id for event in events],
        [event.merchant_id for event in events],
        [event.type for event in events],
        [tx.payer_sealing.body_to_store(event.id, event.body) for event in events],
        [event.occurred_at for event in events],
    )


async def list_due_merchants(database: Executor, limit: int) -> list[int]:
    """List the merchants with due deliveries, the longest waiting first; one index probe each."""
    rows = await database.fetch(
        WAITING_MERCHANTS
        + """
        SELECT merchant_id
        FROM waiting
        WHERE next_at <= clock()
        ORDER BY next_at
        LIMIT $1
        """,
        limit,
    )
    return [row["merchant_id"] for row in rows]


async def claim_due(
    database: Executor, limits: Sequence[tuple[int, int]], lease_s: float
) -> list[ClaimedDelivery]:
    """Claim due deliveries, of each merchant at most its limit, `(merchant_id, limit)`, 500 in all.

    A claimed delivery is due again when its lease ends, should this process die, or should its body
    be sealed and not open, which the log says. A limit that is no
    parameter tells the planner how few rows there will be, so that it reads no backlog through.
    """
    rows = await database.fetch(
        """
        WITH taken AS (
            UPDATE delivery d
            SET next_at = clock() + $3 * interval '1 second',
                lease_until = clock() + $3 * interval '1 second'
            WHERE d.event_id IN (
                SELECT one.event_id
                FROM unnest($1::bigint[], $2::int[]) AS w (merchant_id, most)
                CROSS JOIN LATERAL (
                    SELECT event_id
                    FROM delivery
                    WHERE state = 'pending' AND merchant_id = w.merchant_id AND next_at <= clock()
                    ORDER BY next_at
                    LIMIT w.most
                    FOR UPDATE SKIP LOCKED
                ) one
                LIMIT 500
            )
            RETURNING d.event_id, d.merchant_id, d.attempts
        )
        SELECT t.event_id, e.payment_id, t.merchant_id, t.attempts, m.callback_url, e.body,
            e.occurred_at
        FROM taken t
        JOIN event e ON e.id = t.event_id
        JOIN merchant m ON m.id = t.merchant_id
        ORDER BY e.id
        LIMIT 500
        """,
        [merchant_id for merchant_id, _ in limits],
        [limit for _, limit in limits],
        lease_s,
    )
    return list(_readable(rows, database.payer_sealing))


def _readable(rows: Sequence[Row], sealing: PayerSealing) -> Iterator[ClaimedDelivery]:
    """Leave out an event that does not open: it is due again after its lease, others go on."""
    for row in rows:
        try:
            opened = _opened(row, row["event_id"], sealing)
        except EncryptionKeyError as error:
            note_unreadable("event", row["event_id"], error)
        else:
            yield ClaimedDelivery(**opened)


async def release(database: Executor, merchant_id: int) -> bool:
    """Make 1,000 of a merchant's failed deliveries due now; True where there may be more.

    Those under way keep their lease.
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


async def record(database: Executor, made: Sequence[AttemptRecord]) -> None:
    """Store attempts and their effect on deliveries; an outdated attempt has no effect."""
    await database.fetch(
        """
        WITH made AS (
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
            FROM made
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
        FROM made m
        WHERE d.event_id = m.event_id AND d.state = 'pending' AND d.attempts = m.number - 1
        """,
        [item.id for item in made],
        [item.event_id for item in made],
        [item.number for item in made],
        [item.outcome for item in made],
        [item.status for item in made],
        [item.detail for item in made],
        [item.answer for item in made],
        [item.duration_ms for item in made],
        [item.delivered for item in made],
        [item.next_wait_s for item in made],
        [item.url for item in made],
    )


async def get_event(database: Executor, event_id: UUID) -> EventRecord | None:
    """Read an event; None where there is none of this id."""
    row = await database.row(
        """
        SELECT id, payment_id, merchant_id, type, body, occurred_at
        FROM event
        WHERE id = $1
        """,
        event_id,
    )
    return event_from_row(row, database.payer_sealing) if row else None


async def list_attempts(database: Executor, event_id: UUID) -> list[StoredAttempt]:
    """List the last attempts to deliver an event, oldest first.

    A replay begins with the first wait again, but its attempts are numbered on.
    """
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
        ) made
        ORDER BY number
        """,
        event_id,
        _ATTEMPTS_MAX,
    )
    return [StoredAttempt(**row) for row in rows]


async def is_fully_delivered(database: Executor, payment_id: UUID) -> bool:
    """Tell whether no delivery of an ended payment is pending; dead ones count as done."""
    row = await database.row(
        """
        SELECT 1 AS open
        FROM event e
        JOIN delivery d ON d.event_id = e.id
        WHERE e.payment_id = $1 AND d.state = 'pending'
        """,
        payment_id,
    )
    return row is None
