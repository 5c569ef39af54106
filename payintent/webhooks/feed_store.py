"""The event feed: a merchant's events in a stable order, numbered without gaps.

A new event never appears before a position that a client has already read. Events cannot be
numbered when they are inserted, because transactions may commit in a different order. Instead,
readers number committed events. Only one reader per merchant does so at a time, because it locks
the merchant's `event_feed` row until the numbers are committed.

The condition `merchant_id BETWEEN x AND x` with `ORDER BY merchant_id` makes the planner use the
index on the merchant. The index on all events is slow for merchants with few or old events.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from payintent.db.database import Database, Executor
from payintent.db.lists import build, make_first_id_sql
from payintent.runtime.settings import FEED_DAYS
from payintent.webhooks.outbox_store import decrypt_bodies

#: Maximum number of events that one call numbers or scans.
SCANNED_MAX = 1_000
_IDS_SINCE = make_first_id_sql("clock() - $2 * interval '1 day'")


@dataclass(frozen=True, slots=True)
class FeedCursor:
    """A position in a feed, and the event that was read at this position."""

    number: int  # 0: before the first event
    event_id: UUID


FEED_START = FeedCursor(0, UUID(int=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEvent:
    """An event with its webhook body and delivery state."""

    feed_position: int
    id: UUID
    body: str
    state: str
    attempts: int
    next_at: datetime  # only meaningful if the delivery is pending
    delivered_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPage:
    """Events in feed order, and the cursor of the last scanned event."""

    events: Sequence[FeedEvent]
    cursor: FeedCursor
    has_more: bool


async def number_new_events(database: Database, merchant_id: int) -> bool:
    """Assign numbers to up to 1,000 of the merchant's events; return True if more may remain."""
    if not await _has_unnumbered_events(database, merchant_id):
        return False
    async with database.transaction() as tx:
        await tx.fetch(
            f"""
            INSERT INTO event_feed (merchant_id, first_id)
            VALUES ($1, {_IDS_SINCE})
            ON CONFLICT (merchant_id) DO NOTHING
            """,
            merchant_id,
            FEED_DAYS,
        )
        # Lock in a separate statement, so that the next statement's snapshot is taken afterwards.
        await tx.fetch(
            "SELECT last_position FROM event_feed WHERE merchant_id = $1 FOR NO KEY UPDATE",
            merchant_id,
        )
        rows = await tx.fetch(
            """
            WITH unnumbered AS (
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
                FROM unnumbered n
                WHERE e.id = n.id
            )
            UPDATE event_feed
            SET last_position = last_position + (SELECT count(*) FROM unnumbered)
            WHERE merchant_id = $1
            RETURNING (SELECT count(*) FROM unnumbered) AS numbered
            """,
            merchant_id,
            SCANNED_MAX,
        )
    return rows[0]["numbered"] == SCANNED_MAX


async def _has_unnumbered_events(database: Executor, merchant_id: int) -> bool:
    row = await database.row(
        """
        SELECT 1 AS exists
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


async def is_valid_cursor(database: Executor, merchant_id: int, cursor: FeedCursor) -> bool:
    """Return whether a cursor matches the feed. Cursors of deleted events are also valid."""
    if cursor.number == 0:
        return True
    row = await database.row(
        """
        SELECT 1 AS exists
        FROM event_feed
        WHERE merchant_id = $1 AND last_position >= $2 AND NOT EXISTS (
            SELECT FROM event WHERE merchant_id = $1 AND feed_position = $2 AND id <> $3)
        """,
        merchant_id,
        cursor.number,
        cursor.event_id,
    )
    return row is not None


async def get_first_cursor(database: Executor, merchant_id: int) -> FeedCursor:
    """Return the cursor just before the merchant's first numbered event from the last 30 days."""
    row = await database.row(
        f"""
        SELECT e.id, e.feed_position
        FROM event e
        WHERE e.merchant_id = $1 AND e.feed_position = coalesce((
            SELECT min(feed_position) - 1
            FROM (
                SELECT feed_position
                FROM event
                WHERE merchant_id = $1 AND feed_position IS NOT NULL
                    AND id >= {_IDS_SINCE}
                ORDER BY id
                LIMIT $3
            ) recent
        ), (SELECT last_position FROM event_feed WHERE merchant_id = $1))
        """,
        merchant_id,
        FEED_DAYS,
        SCANNED_MAX,
    )
    return FeedCursor(row["feed_position"], row["id"]) if row else FEED_START


#: `$1` merchant, `$2` position, `$3` types, `$4` page limit, `$5` scan limit.
_SELECT_PAGE: LiteralString = """
    WITH scanned AS MATERIALIZED (
        SELECT id, type, feed_position
        FROM event
        WHERE merchant_id = $1 AND feed_position > $2
        ORDER BY feed_position
        LIMIT $5
    ), matching AS (
        SELECT id, feed_position
        FROM scanned
        WHERE type = ANY($3::text[])
        ORDER BY feed_position
        LIMIT $4
    )
    SELECT l.id AS last_id, l.feed_position AS last_position,
        (SELECT count(*) FROM scanned) AS scanned,
        m.feed_position, e.id, e.body, d.state, d.attempts, d.next_at, d.delivered_at
    FROM (SELECT id, feed_position FROM scanned ORDER BY feed_position DESC LIMIT 1) l
    LEFT JOIN (
        matching m
        JOIN event e ON e.id = m.id
        JOIN delivery d ON d.event_id = m.id
    ) ON true
    ORDER BY m.feed_position
"""


async def read_page(
    database: Executor, merchant_id: int, after: FeedCursor, types: Sequence[str], limit: int
) -> FeedPage:
    """Read up to `limit` events of the given types after a cursor.

    At most 1,000 events are scanned. Events that cannot be decrypted are logged and skipped.
    """
    rows = await database.fetch(
        _SELECT_PAGE,
        merchant_id,
        after.number,
        types,
        limit + 1,
        SCANNED_MAX,
    )
    if not rows:
        return FeedPage(events=(), cursor=after, has_more=False)
    matching_rows = [row for row in rows if row["id"] is not None]
    events = [
        build(FeedEvent, row, body=body)
        for row, body in decrypt_bodies(matching_rows[:limit], "id", database.payer_sealing)
    ]
    if len(matching_rows) > limit:
        last_row = matching_rows[limit - 1]
        cursor = FeedCursor(last_row["feed_position"], last_row["id"])
        return FeedPage(events=events, cursor=cursor, has_more=True)
    cursor = FeedCursor(rows[0]["last_position"], rows[0]["last_id"])
    return FeedPage(events=events, cursor=cursor, has_more=rows[0]["scanned"] == SCANNED_MAX)


async def get_change_markers(database: Executor, merchant_ids: Sequence[int]) -> dict[int, str]:
    """Return an opaque marker per merchant that changes with each new event."""
    rows = await database.fetch(
        """
        SELECT m.id, concat_ws('/', f.last_position, n.id) AS marker
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
    return {row["id"]: row["marker"] for row in rows}
