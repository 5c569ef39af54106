"""What is of a payer is taken out of payments; what the books are made of stays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from payintent.encryption import EncryptionKeyError
from payintent.storage.database import Executor, Tx
from payintent.storage.payer_sealing import PayerSealing

#: The payer of payments whose payer was erased.
ERASED = "(erased)"


@dataclass(frozen=True, slots=True)
class NeededPayment:
    """A payment whose payer is still needed, and what for, in words that follow its id."""

    payment_id: UUID
    why: str


async def list_payments(
    database: Executor, merchant_id: int, payer_uid: str, limit: int
) -> list[UUID]:
    """List the payments of a payer by their ids."""
    rows = await database.fetch(
        """
        SELECT id
        FROM payment
        WHERE merchant_id = $1 AND payer_uid = $2
        ORDER BY id
        LIMIT $3
        """,
        merchant_id,
        payer_uid,
        limit,
    )
    return [row["id"] for row in rows]


async def lock_payments(tx: Tx, payment_ids: Sequence[UUID]) -> None:
    """Lock payments in the order of their ids, so that nothing begins of what was not found."""
    await tx.fetch(
        "SELECT id FROM payment WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE", payment_ids
    )


async def find_needed(database: Executor, payment_ids: Sequence[UUID]) -> NeededPayment | None:
    """Find one of the payments whose payer is needed: it is open, or money may yet go back."""
    row = await database.row(
        """
        SELECT id, why
        FROM (
            SELECT p.id, CASE
                WHEN p.status IN ('PENDING', 'PROCESSING') THEN 'has not ended'
                WHEN EXISTS (SELECT FROM capture c JOIN refund f ON f.capture_id = c.id
                    WHERE c.payment_id = p.id AND f.status = 'PENDING')
                    THEN 'has a refund under way'
                WHEN EXISTS (SELECT FROM capture c JOIN refund f ON f.capture_id = c.id
                    WHERE c.payment_id = p.id AND f.destination IS NOT NULL
                        AND f.created_at > clock() - interval '1 day')
                    THEN 'has a refund of the last day, which counts for the threshold'
                WHEN EXISTS (SELECT FROM money_case m
                    WHERE m.payment_id = p.id AND m.status = 'OPEN') THEN 'has an open case'
                WHEN EXISTS (SELECT FROM capture c JOIN dispute q ON q.capture_id = c.id
                    WHERE c.payment_id = p.id AND q.state IN ('inquiry', 'open', 'under_review'))
                    THEN 'has a dispute that runs'
                WHEN EXISTS (SELECT FROM event e JOIN delivery d ON d.event_id = e.id
                    WHERE e.payment_id = p.id AND d.state = 'pending')
                    THEN 'has an event that is still to be delivered'
            END AS why
            FROM payment p
            WHERE p.id = ANY($1::uuid[])
        ) found
        WHERE why IS NOT NULL
        ORDER BY id
        LIMIT 1
        """,
        payment_ids,
    )
    return NeededPayment(row["id"], row["why"]) if row else None


async def read_events(tx: Tx, payment_ids: Sequence[UUID]) -> dict[UUID, str | None]:
    """Read the bodies of the payments' events, by the events' ids; None where one does not open."""
    rows = await tx.fetch(
        "SELECT id, body FROM event WHERE payment_id = ANY($1::uuid[])", payment_ids
    )
    return {row["id"]: _body(tx.payer_sealing, row["id"], row["body"]) for row in rows}


def _body(sealing: PayerSealing, event_id: UUID, stored: str) -> str | None:
    try:
        return sealing.body(event_id, stored)
    except EncryptionKeyError:
        return None


async def erase(tx: Tx, payment_ids: Sequence[UUID], bodies: Mapping[UUID, str]) -> None:
    """Erase the payer of locked payments; `bodies` are those that their events have from now on.

    Without any there are no events: a worker erases too, and may not change those.
    """
    await tx.fetch(_PAYMENTS, payment_ids, ERASED)
    await tx.fetch(_SESSIONS, payment_ids)
    await tx.fetch(_TEST_SESSIONS, payment_ids)
    await tx.fetch(_CALLBACKS, payment_ids)
    await tx.fetch(_RECEIPTS, payment_ids)
    await tx.fetch(_CHAIN_REFUNDS, payment_ids)
    await tx.fetch(_REFUNDS, payment_ids)
    if bodies:
        sealing = tx.payer_sealing
        stored = [sealing.body_to_store(event_id, body) for event_id, body in bodies.items()]
        await tx.fetch(_EVENTS, list(bodies), stored)
        await tx.fetch(_ATTEMPTS, list(bodies))
    await tx.fetch("DELETE FROM gateway_call WHERE payment_id = ANY($1::uuid[])", payment_ids)
    await tx.fetch("DELETE FROM fraud_decision WHERE payment_id = ANY($1::uuid[])", payment_ids)
    await tx.fetch("DELETE FROM mail WHERE payment_id = ANY($1::uuid[])", payment_ids)


_PAYMENTS: LiteralString = """
    UPDATE payment
    SET payer_uid = $2, payer_email = NULL, metadata = '{}'
    WHERE id = ANY($1::uuid[])
"""
_SESSIONS: LiteralString = """
    UPDATE session
    SET return_url = NULL, next_action = NULL
    WHERE payment_id = ANY($1::uuid[])
"""
# At the test gateway; an empty one leads nowhere, as of a session that was opened without one.
_TEST_SESSIONS: LiteralString = """
    UPDATE test_session
    SET return_url = ''
    WHERE session_id IN (SELECT id FROM session WHERE payment_id = ANY($1::uuid[]))
"""
_CALLBACKS: LiteralString = """
    UPDATE callback
    SET body = NULL
    WHERE body IS NOT NULL AND (
        session_id IN (SELECT id FROM session WHERE payment_id = ANY($1::uuid[]))
        OR refund_id IN (SELECT f.id FROM capture c JOIN refund f ON f.capture_id = c.id
            WHERE c.payment_id = ANY($1::uuid[])))
"""
_RECEIPTS: LiteralString = """
    UPDATE chain_receipt
    SET payer = NULL
    WHERE session_id IN (SELECT id FROM session WHERE payment_id = ANY($1::uuid[]))
"""
# Logs that settled a refund, or went to the same place again; others are not classified for good.
_CHAIN_REFUNDS: LiteralString = """
    UPDATE chain_refund
    SET destination = NULL
    WHERE disposition IN ('settles', 'twice') AND refund_ref IN (
        SELECT f.id FROM capture c JOIN refund f ON f.capture_id = c.id
        WHERE c.payment_id = ANY($1::uuid[]))
"""
_REFUNDS: LiteralString = """
    UPDATE refund
    SET reason = NULL, destination = NULL
    WHERE (reason IS NOT NULL OR destination IS NOT NULL)
        AND capture_id IN (SELECT id FROM capture WHERE payment_id = ANY($1::uuid[]))
"""
_EVENTS: LiteralString = """
    UPDATE event e
    SET body = n.body
    FROM unnest($1::uuid[], $2::text[]) AS n (id, body)
    WHERE e.id = n.id
"""
_ATTEMPTS: LiteralString = """
    UPDATE attempt
    SET detail = '', answer = ''
    WHERE event_id = ANY($1::uuid[])
"""
