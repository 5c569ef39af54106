"""A merchant's events in one order without gaps: nothing appears behind what was read.

An event has no number when it is committed, for transactions commit in another order than they
took their numbers in. A reader numbers what it finds committed and unnumbered, one reader of a
merchant at a time: the lock on the merchant's row is held until the numbers are visible.

Where a query says `merchant_id BETWEEN x AND x` and orders by it, only an index of each merchant's
events has that order: that of all events, read far where a merchant's are old or few, has not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from payintent.domain.event import FEED_DAYS
from payintent.encryption import EncryptionKeyError
from payintent.storage.database import Database, Executor
from payintent.storage.payer_sealing import PayerSealing, note_unreadable
from payintent.storage.rows import build

#: Events that one reader numbers, and looks through, at a time.
LOOKED_MAX = 1_000


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """A place in a feed: a number, and the event that had it when it was read."""

    number: int  # 0 is before the first event
    event_id: UUID


FEED_START = FeedPosition(0, UUID(int=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEvent:
    """An event with its body as it is sent, and how far its delivery is."""

    feed_position: int
    id: UUID
    body: str
    state: str
    attempts: int
    next_at: datetime  # of a pending delivery
    delivered_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPage:
    """Events in the order of their numbers, and the place up to which all were looked at."""

    events: Sequence[FeedEvent]
    position: FeedPosition
    has_more: bool


async def number_new_events(database: Database, merchant_id: int) -> bool:
    """Give the merchant's unnumbered events their numbers; True where there may be more of them."""
    if not await _has_unnumbered(database, merchant_id):
        return False
    async with database.transaction() as tx:
        await tx.fetch(
            """
            INSERT INTO event_feed (merchant_id, first_id)
            VALUES ($1, (lpad(to_hex((extract(epoch FROM clock() - $2 * interval '1 day')
                * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid)
            ON CONFLICT (merchant_id) DO NOTHING
            """,
            merchant_id,
            FEED_DAYS,
        )
        # A statement of its own: what the one below sees was committed when the lock was held.
        await tx.fetch(
            "SELECT last_position FROM event_feed WHERE merchant_id = $1 FOR NO KEY UPDATE",
            merchant_id,
        )
        rows = await tx.fetch(
            """
            WITH fresh AS (
                SELECT e.id, f.last_position + row_number() OVER (ORDER BY e.id) AS position
                FROM event_feed f
                CROSS JOIN LATERAL (
                    SELECT id
                    FROM event
                    WHERE merchant_id BETWEEN f.merchant_id AND f.merchant_id
                        AND feed_position IS NULL AND id >= f.first_id
                    ORDER BY merchant_id, id
                    LIMIT $2
                ) e
                WHERE f.merchant_id = $1
            ), numbered AS (
                UPDATE event e
                SET feed_position = n.position
                FROM fresh n
                WHERE e.id = n.id
            )
            UPDATE event_feed
            SET last_position = last_position + (SELECT count(*) FROM fresh)
            WHERE merchant_id = $1
            RETURNING (SELECT count(*) FROM fresh) AS numbered
            """,
            merchant_id,
            LOOKED_MAX,
        )
    return rows[0]["numbered"] == LOOKED_MAX


async def _has_unnumbered(database: Executor, merchant_id: int) -> bool:
    row = await database.row(
        """
        SELECT 1 AS found
        FROM event e
        WHERE e.merchant_id BETWEEN $1 AND $1 AND e.feed_position IS NULL AND e.id >= coalesce(
            (SELECT first_id FROM event_feed WHERE merchant_id = $1), $2)
        ORDER BY e.merchant_id, e.id
        LIMIT 1
        """,
        merchant_id,
        FEED_START.event_id,
    )
    return row is not None


async def is_position(database: Executor, merchant_id: int, position: FeedPosition) -> bool:
    """Tell whether the merchant's feed has this event at this place, or had it: it may be gone."""
    if position.number == 0:
        return True
    row = await database.row(
        """
        SELECT 1 AS found
        FROM event_feed
        WHERE merchant_id = $1 AND last_position >= $2 AND NOT EXISTS (
            SELECT FROM event WHERE merchant_id = $1 AND feed_position = $2 AND id <> $3)
        """,
        merchant_id,
        position.number,
        position.event_id,
    )
    return row is not None


async def first_position(database: Executor, merchant_id: int) -> FeedPosition:
    """Return the place before the merchant's numbered events of the last 30 days."""
    row = await database.row(
        """
        SELECT e.id, e.feed_position
        FROM event e
        WHERE e.merchant_id = $1 AND e.feed_position = coalesce((
            SELECT min(feed_position) - 1
            FROM (
                SELECT feed_position
                FROM event
                WHERE merchant_id = $1 AND feed_position IS NOT NULL
                    AND id >= (lpad(to_hex((extract(epoch FROM clock() - $2 * interval '1 day')
                        * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
                ORDER BY id
                LIMIT $3
            ) recent
        ), (SELECT last_position FROM event_feed WHERE merchant_id = $1))
        """,
        merchant_id,
        FEED_DAYS,
        LOOKED_MAX,
    )
    return FeedPosition(row["feed_position"], row["id"]) if row else FEED_START


async def page(
    database: Executor, merchant_id: int, after: FeedPosition, types: Sequence[str], limit: int
) -> FeedPage:
    """Read up to `limit` events of these types behind a place; looks through 1,000 at most.

    An event that is sealed and does not open is left out, and the log names it.
    """
    rows = await database.fetch(
        """
        WITH looked AS MATERIALIZED (
            SELECT id, type, feed_position
            FROM event
            WHERE merchant_id = $1 AND feed_position > $2
            ORDER BY feed_position
            LIMIT $5
        ), wanted AS (
            SELECT id, feed_position
            FROM looked
            WHERE type = ANY($3::text[])
            ORDER BY feed_position
            LIMIT $4
        )
        SELECT l.id AS looked_id, l.feed_position AS looked_to,
            (SELECT count(*) FROM looked) AS looked,
            w.feed_position, e.id, e.body, d.state, d.attempts, d.next_at, d.delivered_at
        FROM (SELECT id, feed_position FROM looked ORDER BY feed_position DESC LIMIT 1) l
        LEFT JOIN (
            wanted w
            JOIN event e ON e.id = w.id
            JOIN delivery d ON d.event_id = w.id
        ) ON true
        ORDER BY w.feed_position
        """,
        merchant_id,
        after.number,
        types,
        limit + 1,
        LOOKED_MAX,
    )
    if not rows:
        return FeedPage(events=(), position=after, has_more=False)
    wanted = [row for row in rows if row["id"] is not None]
    found = list(_readable(wanted[:limit], database.payer_sealing))
    if len(wanted) > limit:
        last = wanted[limit - 1]
        position = FeedPosition(last["feed_position"], last["id"])
        return FeedPage(events=found, position=position, has_more=True)
    position = FeedPosition(rows[0]["looked_to"], rows[0]["looked_id"])
    return FeedPage(events=found, position=position, has_more=rows[0]["looked"] == LOOKED_MAX)


async def change_markers(database: Executor, merchant_ids: Sequence[int]) -> dict[int, str]:
    """Return for each merchant a text that changes with every event that its feed gets."""
    rows = await database.fetch(
        """
        SELECT m.id, concat_ws('/', f.last_position, n.id) AS mark
        FROM unnest($1::bigint[]) AS m (id)
        LEFT JOIN event_feed f ON f.merchant_id = m.id
        LEFT JOIN LATERAL (
            SELECT id
            FROM event
            WHERE merchant_id BETWEEN m.id AND m.id AND feed_position IS NULL
            ORDER BY merchant_id DESC, id DESC
            LIMIT 1
        ) n ON true
        """,
        merchant_ids,
    )
    return {row["id"]: row["mark"] for row in rows}


def _readable(rows: Sequence[Any], payer_sealing: PayerSealing) -> Iterator[FeedEvent]:
    """Leave out an event that does not open: a reader goes on behind it."""
    for row in rows:
        try:
            event = _event(row, payer_sealing)
        except EncryptionKeyError as error:
            note_unreadable("event", row["id"], error)
        else:
            yield event


def _event(row: Any, payer_sealing: PayerSealing) -> FeedEvent:
    return build(FeedEvent, row, body=payer_sealing.body(row["id"], row["body"]))
