"""Store payment sessions: attempts to pay at a gateway or on a chain, with their quotes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString, cast
from uuid import UUID

import msgspec

from payintent.chains.watch_store import IS_WATCHED
from payintent.db.database import Executor, Row, Tx
from payintent.merchants.model import FeeMode, Price, Quote
from payintent.payments.model import RETRY_GRACE, Session, SessionStatus

_SESSIONS_MAX = 1_000
_INQUIRIES_MAX = 1_000  # sessions per chain and pass
_COLUMN_NAMES = (
    *("id", "payment_id", "life", "outcome", "reference", "next_action", "return_url", "inquiries"),
    *("declines", "opened_at", "closing_at", "account_id", "payment_method_id", "provider"),
    *("provider_name", "kind", "label", "country", "chain", "token", "total_minor", "currency"),
    *("amount", "fee_mode", "fee_rate", "fee_amount", "estimated_tax", "total_amount"),
    "label_translations",
)
# Columns are prefixed, so that a row can also contain a payment's columns.
COLUMNS = cast("LiteralString", f" {', '.join(f's.{name} AS s_{name}' for name in _COLUMN_NAMES)} ")


@dataclass(frozen=True, slots=True, kw_only=True)
class DueSession:
    """A session claimed for a gateway inquiry."""

    session: Session
    now: datetime
    buyer_has_returned: bool  # the buyer has returned from the gateway's page


async def find_account_id(database: Executor, session_id: UUID) -> int | None:
    return await database.value("SELECT account_id FROM session WHERE id = $1", session_id)


async def find_unfinished_id(database: Executor, account_id: int, reference: str) -> UUID | None:
    """Return the id of the account's unfinished session with this gateway reference."""
    return await database.value(
        """
        SELECT id
        FROM session
        WHERE reference = $2 AND account_id = $1 AND life <> 'ended'
        LIMIT 1
        """,
        account_id,
        reference,
    )


async def get(database: Executor, session_id: UUID) -> Session | None:
    row = await database.row("SELECT" + COLUMNS + "FROM session s WHERE id = $1", session_id)
    return from_row(row) if row else None


async def list_for_payment(database: Executor, payment_id: UUID) -> list[Session]:
    """List a payment's sessions, oldest first."""
    rows = await database.fetch(
        "SELECT"
        + COLUMNS
        + """
        FROM session s
        WHERE s.payment_id = $1
        ORDER BY s.opened_at, s.id
        LIMIT $2
        """,
        payment_id,
        _SESSIONS_MAX,
    )
    return [from_row(row) for row in rows]


async def lock(tx: Tx, session_id: UUID) -> Session:
    """Lock a session. Its payment must be locked."""
    row = await tx.row("SELECT" + COLUMNS + "FROM session s WHERE id = $1 FOR UPDATE", session_id)
    assert row is not None  # noqa: S101 - sessions are never deleted
    return from_row(row)


async def mark_open(tx: Tx, sessions: Sequence[Session]) -> None:
    """Mark sessions as open and store the reference and next action that each gateway returned."""
    await tx.fetch(
        """
        UPDATE session s
        SET life = CASE s.life WHEN 'opening' THEN 'open' ELSE s.life END,
            reference = coalesce(a.reference, s.reference),
            next_action = coalesce(a.next_action, s.next_action)
        FROM unnest($1::uuid[], $2::text[], $3::json[]) AS a (id, reference, next_action)
        WHERE s.id = a.id
        """,
        [session.id for session in sessions],
        [session.reference for session in sessions],
        [session.next_action for session in sessions],
    )


async def mark_closing(tx: Tx, session_ids: Sequence[UUID], now: datetime) -> None:
    """Mark sessions as closing and due, so that the inquiry loop closes them at the gateway."""
    await tx.fetch(
        """
        UPDATE session
        SET life = 'closing', closing_at = $2, inquire_at = $2, inquiries = 0, silent_since = NULL
        WHERE id = ANY($1::uuid[]) AND life IN ('opening', 'open')
        """,
        session_ids,
        now,
    )


async def increment_declines(tx: Tx, session_ids: Sequence[UUID]) -> None:
    await tx.fetch(
        "UPDATE session SET declines = declines + 1 WHERE id = ANY($1::uuid[])", session_ids
    )


async def mark_ended(tx: Tx, outcomes: Mapping[UUID, str], now: datetime) -> None:
    """End sessions with the outcomes reported by a gateway or chain."""
    await tx.fetch(
        """
        UPDATE session s
        SET life = 'ended', outcome = e.outcome, ended_at = $3, inquire_at = NULL
        FROM unnest($1::uuid[], $2::text[]) AS e (id, outcome)
        WHERE s.id = e.id AND s.life <> 'ended'
        """,
        list(outcomes),
        list(outcomes.values()),
        now,
    )


async def claim_due(
    database: Executor, limit: int, lease_s: float, busy_accounts: Sequence[int]
) -> list[DueSession]:
    """Claim sessions that are due for inquiry. They become due again when the lease expires."""
    rows = await database.fetch(
        """
        UPDATE session s
        SET inquire_at = clock() + $2 * interval '1 second'
        FROM (SELECT clock() AS now) t
        WHERE s.id IN (
            SELECT id
            FROM session
            WHERE life <> 'ended' AND inquire_at <= clock() AND account_id <> ALL($3::bigint[])
            ORDER BY inquire_at
            LIMIT $1
            FOR UPDATE SKIP LOCKED
        )
        RETURNING t.now, s.returned_at IS NOT NULL AS has_returned,"""
        + COLUMNS,
        limit,
        lease_s,
        busy_accounts,
    )
    return [
        DueSession(session=from_row(row), now=row["now"], buyer_has_returned=row["has_returned"])
        for row in rows
    ]


async def schedule_inquiry(database: Executor, session: Session, delay_s: float | None) -> None:
    """Schedule the next inquiry in `delay_s` seconds; None stops the inquiries.

    Does nothing if the session has since changed. A session that is due again stays due, because
    an inquiry was requested during the last one.
    """
    await database.fetch(
        """
        UPDATE session
        SET inquiries = inquiries + 1,
            inquire_at = CASE WHEN inquire_at <= clock() THEN inquire_at
                ELSE clock() + $3 * interval '1 second' END
        WHERE id = $1 AND life = $2 AND inquiries = $4
        """,
        session.id,
        session.status,
        delay_s,
        session.inquiries,
    )


async def mark_responsive(database: Executor, session_id: UUID) -> None:
    await database.fetch(
        """
        UPDATE session
        SET silent_since = NULL
        WHERE id = $1 AND silent_since IS NOT NULL
        """,
        session_id,
    )


async def mark_unresponsive(database: Executor, session_id: UUID) -> None:
    """Record that the gateway did not respond to a request to close the session."""
    await database.fetch(
        """
        UPDATE session
        SET silent_since = clock()
        WHERE id = $1 AND life = 'closing' AND silent_since IS NULL
        """,
        session_id,
    )


async def is_chain_read_past(
    database: Executor, chain: str, session_id: UUID, time: datetime
) -> bool:
    """Return whether a session's chain is watched and has been read past the given time.

    A block is considered read if it is final or two endpoints agree on it. For a deposit session,
    only final blocks that were searched for its address count.
    """
    row = await database.row(
        """
        SELECT k.chain
        FROM chain_cursor k
        LEFT JOIN deposit_address a ON a.session_id = $3
        WHERE k.chain = $1 AND CASE WHEN a.id IS NULL THEN k.window_at > $2 OR k.at > $2
                ELSE a.covered AND k.deposit_at > $2 END AND"""
        + IS_WATCHED,
        chain,
        time,
        session_id,
    )
    return row is not None


async def record_return(database: Executor, session_id: UUID, interval_s: float) -> bool:
    """Record the buyer's return. Returns False if the last return was within `interval_s`."""
    row = await database.row(
        """
        UPDATE session
        SET returned_at = clock()
        WHERE id = $1 AND life <> 'ended'
            AND (returned_at IS NULL OR returned_at <= clock() - $2 * interval '1 second')
        RETURNING id
        """,
        session_id,
        interval_s,
    )
    return row is not None


async def record_form_display(database: Executor, session_id: UUID) -> bool:
    """Record that the gateway's form is displayed. Returns False if it was displayed before."""
    row = await database.row(
        """
        UPDATE session
        SET form_shown_at = clock()
        WHERE id = $1 AND form_shown_at IS NULL
        RETURNING id
        """,
        session_id,
    )
    return row is not None


async def request_inquiry(database: Executor, session_id: UUID) -> None:
    await database.fetch(
        "UPDATE session SET inquire_at = clock() WHERE id = $1 AND life <> 'ended'", session_id
    )


async def request_chain_inquiries(database: Executor, chain: str) -> None:
    """Request inquiries for a chain's sessions that can be decided now. Skips locked sessions.

    After its deadline, a session can be decided once final blocks past the deadline have been read.
    If no transfer for the session has been seen, blocks on which two endpoints agree are enough.
    Before its deadline, a session can be decided if the buyer's transactions have failed.
    """
    await database.fetch(
        """
        UPDATE session
        SET inquire_at = clock()
        WHERE id IN (
            SELECT s.id
            FROM session s
            JOIN payment p ON p.id = s.payment_id
            JOIN chain_cursor c ON c.chain = s.chain
            WHERE s.chain = $1 AND s.life IN ('open', 'closing') AND s.inquire_at > clock()
                AND (s.life = 'closing' AND c.at > p.expires_at
                    OR s.life = 'closing' AND c.window_at > p.expires_at AND p.session_id = s.id
                        AND NOT EXISTS (SELECT FROM chain_sighting g WHERE g.session_id = s.id)
                        AND NOT EXISTS (SELECT FROM chain_hint h WHERE h.session_id = s.id)
                        AND NOT EXISTS (SELECT FROM chain_receipt r WHERE r.session_id = s.id)
                    OR EXISTS (SELECT FROM chain_hint h
                        LEFT JOIN chain_receipt r
                            ON r.session_id = h.session_id AND r.tx_hash = h.tx_hash
                        WHERE h.session_id = s.id AND h.step = 'pay'
                            AND (h.state = 'reverted' AND h.final AND (h.reason = 'expired'
                                    OR h.settled_at <= clock() - $2::interval)
                                OR r.disposition IN ('underpaid', 'overpaid', 'wrong_token')
                                    AND r.final_at <= clock() - $2::interval)))
            LIMIT $3
            FOR NO KEY UPDATE OF s SKIP LOCKED
        )
        """,
        chain,
        RETRY_GRACE,
        _INQUIRIES_MAX,
    )


def from_row(row: Row) -> Session:
    """Build a session from a row with `COLUMNS`."""
    return Session(
        id=row["s_id"],
        payment_id=row["s_payment_id"],
        status=SessionStatus(row["s_life"]),
        outcome=row["s_outcome"],
        quote=_quote_from_row(row),
        reference=row["s_reference"],
        next_action=row["s_next_action"],
        return_url=row["s_return_url"],
        inquiries=row["s_inquiries"],
        declines=row["s_declines"],
        opened_at=row["s_opened_at"],
        closing_at=row["s_closing_at"],
    )


def _quote_from_row(row: Row) -> Quote:
    price = Price(
        currency=row["s_currency"],
        amount=row["s_amount"],
        fee_mode=FeeMode(row["s_fee_mode"]),
        fee_rate=row["s_fee_rate"],
        fee_amount=row["s_fee_amount"],
        estimated_tax=row["s_estimated_tax"],
        total_amount=row["s_total_amount"],
    )
    return Quote(
        payment_method_id=row["s_payment_method_id"],
        account_id=row["s_account_id"],
        provider=row["s_provider"],
        provider_name=row["s_provider_name"],
        kind=row["s_kind"],
        label=row["s_label"],
        country=row["s_country"],
        chain=row["s_chain"],
        token=row["s_token"],
        price=price,
        total_minor=int(row["s_total_minor"]),
        label_translations=msgspec.json.decode(row["s_label_translations"], type=dict[str, str]),
    )


_ADD: LiteralString = """
    WITH new AS MATERIALIZED (
        SELECT n.*, n.opened_at + $26 * interval '1 second',
            (SELECT count(*) FROM session e WHERE e.payment_id = n.payment_id) + 1 AS number
        FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::text[], $6::text[],
            $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[],
            $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[],
            $19::numeric[], $20::text[], $21::timestamptz[], $22::bytea[], $23::int[],
            $24::boolean[], $25::jsonb[])
            AS n (id, payment_id, account_id, payment_method_id, provider, provider_name, kind,
                label, country, chain, token, currency, amount, fee_mode, fee_rate, fee_amount,
                estimated_tax, total_amount, total_minor, return_url, opened_at, token_address,
                token_decimals, token_zero_first, label_translations)
    ), added AS (
        INSERT INTO session
            (id, payment_id, account_id, payment_method_id, provider, provider_name, kind,
             label, country, chain, token, currency, amount, fee_mode, fee_rate, fee_amount,
             estimated_tax, total_amount, total_minor, return_url, opened_at, token_address,
             token_decimals, token_zero_first, label_translations, inquire_at, number)
        SELECT * FROM new WHERE number <= $27
        ON CONFLICT (payment_id) WHERE life = 'opening' DO NOTHING
        RETURNING id
    )
    SELECT new.payment_id, new.number - 1 AS earlier, added.id IS NOT NULL AS is_stored
    FROM new
    LEFT JOIN added USING (id)
"""


@dataclass(frozen=True, slots=True)
class AddedSession:
    payment_id: UUID
    earlier_count: int  # sessions that the payment already had
    is_stored: bool


async def add(
    tx: Tx, sessions: Sequence[Session], first_inquiry_s: float, sessions_max: int
) -> list[AddedSession]:
    """Store sessions as `opening`, at most one per payment. The payments must be locked.

    A session is not stored if its payment has a session that is opening, or already has
    `sessions_max` sessions.
    """
    quotes = [session.quote for session in sessions]
    prices = [quote.price for quote in quotes]
    tokens = [quote.expected_token for quote in quotes]
    rows = await tx.fetch(
        _ADD,
        [session.id for session in sessions],
        [session.payment_id for session in sessions],
        [quote.account_id for quote in quotes],
        [quote.payment_method_id for quote in quotes],
        [quote.provider for quote in quotes],
        [quote.provider_name for quote in quotes],
        [quote.kind for quote in quotes],
        [quote.label for quote in quotes],
        [quote.country for quote in quotes],
        [quote.chain for quote in quotes],
        [quote.token for quote in quotes],
        [price.currency for price in prices],
        [price.amount for price in prices],
        [price.fee_mode for price in prices],
        [price.fee_rate for price in prices],
        [price.fee_amount for price in prices],
        [price.estimated_tax for price in prices],
        [price.total_amount for price in prices],
        [quote.total_minor for quote in quotes],
        [session.return_url for session in sessions],
        [session.opened_at for session in sessions],
        [token and token.address for token in tokens],
        [token and token.decimals for token in tokens],
        [token and token.approve_zero_first for token in tokens],
        [msgspec.json.encode(quote.label_translations).decode() for quote in quotes],
        first_inquiry_s,
        sessions_max,
    )
    return [AddedSession(row["payment_id"], row["earlier"], row["is_stored"]) for row in rows]


async def count_batch(database: Executor, payment_ids: Sequence[UUID]) -> list[int]:
    """Count the sessions of each payment, in the order of `payment_ids`."""
    rows = await database.fetch(
        """
        SELECT payment_id, count(*)
        FROM session
        WHERE payment_id = ANY($1::uuid[])
        GROUP BY payment_id
        LIMIT 10000
        """,
        payment_ids,
    )
    counts = {row["payment_id"]: row["count"] for row in rows}
    return [counts.get(payment_id, 0) for payment_id in payment_ids]
