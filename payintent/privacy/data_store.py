"""Read and erase the data stored about a merchant's payer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import LiteralString, TypeVar
from uuid import UUID

import msgspec

from payintent.core import ids
from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import build
from payintent.db.sealing import PayerSealing
from payintent.runtime.encryption import EncryptionKeyError
from payintent.runtime.json_format import format_timestamp

ERASED = "(erased)"  # replaces `payer_uid`
_UNREADABLE = "(cannot be decrypted)"
_UNREADABLE_JSON = f'"{_UNREADABLE}"'
_JSON_COLUMNS = ("sessions", "callbacks", "transfers", "refunds", "denials")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPayment:
    """A payment and its payer's data, without data that grants access to the checkout."""

    id: str
    status: str
    currency: str
    amount: str
    payer_email: str | None
    metadata: msgspec.Raw
    return_url: str | None
    cancel_url: str | None
    created_at: datetime
    updated_at: datetime
    sessions: msgspec.Raw
    callbacks: msgspec.Raw
    transfers: msgspec.Raw
    refunds: msgspec.Raw
    denials: msgspec.Raw
    events: msgspec.Raw


class _StoredEvent(msgspec.Struct):
    id: UUID
    body: str


async def export_payments(
    database: Executor, merchant_id: int, payer_uid: str, after: UUID | None, limit: int
) -> list[ExportedPayment]:
    """Return up to `limit` of a payer's payments in id order, starting after `after`."""
    rows = await database.fetch(_EXPORT_PAYMENTS, merchant_id, payer_uid, after, limit)
    return [_to_exported_payment(row, database.payer_sealing) for row in rows]


def _to_exported_payment(row: Row, sealing: PayerSealing) -> ExportedPayment:
    payment_id, email = row["id"], row["payer_email"]
    events = msgspec.json.decode(row["events"], type=list[_StoredEvent])
    bodies = [
        _unseal(sealing.unseal_body, event.id, event.body, _UNREADABLE_JSON) for event in events
    ]
    return build(
        ExportedPayment,
        row,
        id=ids.format_id(ids.PAYMENT, payment_id),
        payer_email=email and _unseal(sealing.unseal_email, payment_id, email, _UNREADABLE),
        metadata=_to_raw_json(
            _unseal(sealing.unseal_metadata, payment_id, row["metadata"], _UNREADABLE_JSON)
        ),
        events=_to_raw_json(f"[{', '.join(bodies)}]"),
        **{name: _format_times(row[name]) for name in _JSON_COLUMNS},
    )


def _unseal(
    decrypt: Callable[[UUID, str], str | None], row_id: UUID, sealed_value: str, fallback: T
) -> str | T:
    """Decrypt a value; return `fallback` if it cannot be decrypted."""
    try:
        return decrypt(row_id, sealed_value) or ""
    except EncryptionKeyError:
        return fallback


def _format_times(records: str) -> msgspec.Raw:
    """Replace PostgreSQL's time format, with an offset and up to six decimals, by the API's."""
    fields = msgspec.json.decode(records, type=list[dict[str, msgspec.Raw]])
    return msgspec.Raw(
        msgspec.json.encode(
            [
                {
                    name: _format_time(value) if name.endswith("_at") else value
                    for name, value in record.items()
                }
                for record in fields
            ]
        )
    )


def _format_time(value: msgspec.Raw) -> str | None:
    moment = msgspec.json.decode(value, type=datetime | None)
    return moment and format_timestamp(moment.astimezone(UTC))


def _to_raw_json(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


_EXPORT_PAYMENTS: LiteralString = """
    SELECT p.id, p.status, p.currency, p.amount_text AS amount, p.payer_email, p.metadata,
        p.return_url, p.cancel_url, p.created_at, p.updated_at,
        coalesce((
            SELECT json_agg(json_build_object('provider', provider, 'kind', kind,
                'label', label, 'country', country, 'chain', chain, 'token', token,
                'total', total_amount,
                'currency', currency, 'reference', reference, 'return_url', return_url,
                'opened_at', opened_at, 'ended_at', ended_at) ORDER BY opened_at)
            FROM session
            WHERE payment_id = p.id
        ), '[]') AS sessions,
        coalesce((
            SELECT json_agg(json_build_object('id', c.callback_id, 'report', c.report,
                'received_at', c.received_at) ORDER BY c.received_at)
            FROM session s
            JOIN callback c ON c.session_id = s.id
            WHERE s.payment_id = p.id
        ), '[]') AS callbacks,
        coalesce((
            SELECT json_agg(json_build_object('chain', r.chain,
                'payer', '0x' || encode(r.payer, 'hex'),
                'transaction', '0x' || encode(r.tx_hash, 'hex'),
                'final_at', r.final_at) ORDER BY r.final_at)
            FROM session s
            JOIN chain_receipt r ON r.session_id = s.id
            WHERE s.payment_id = p.id
        ), '[]') AS transfers,
        coalesce((
            SELECT json_agg(json_build_object('amount', amount_text, 'status', status,
                'reason', reason, 'destination', destination, 'reference', reference,
                'note', note, 'created_at', created_at) ORDER BY id)
            FROM refund
            WHERE payment_id = p.id
        ), '[]') AS refunds,
        coalesce((
            SELECT json_agg(json_build_object('code', code, 'level', level, 'score', score,
                'decided_at', decided_at) ORDER BY decided_at)
            FROM fraud_decision
            WHERE payment_id = p.id
        ), '[]') AS denials,
        coalesce((
            SELECT json_agg(json_build_object('id', id, 'body', body) ORDER BY id)
            FROM event
            WHERE payment_id = p.id
        ), '[]') AS events
    FROM payment p
    WHERE p.merchant_id = $1 AND p.payer_uid = $2 AND ($3::uuid IS NULL OR p.id > $3)
    ORDER BY p.id
    LIMIT $4
"""


@dataclass(frozen=True, slots=True)
class BlockingPayment:
    """A payment whose payer cannot be erased yet."""

    payment_id: UUID
    reason: str  # a predicate such as "has an open case"


async def list_payment_ids(
    database: Executor, merchant_id: int, payer_uid: str, limit: int
) -> list[UUID]:
    """List the ids of a payer's payments in ascending order."""
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
    """Lock payments in id order, to prevent new refunds, cases and disputes during an erasure."""
    await tx.fetch(
        "SELECT id FROM payment WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE", payment_ids
    )


async def find_blocking_payment(
    database: Executor, payment_ids: Sequence[UUID]
) -> BlockingPayment | None:
    row = await database.row(
        """
        SELECT id, reason
        FROM (
            SELECT p.id, CASE
                WHEN p.status IN ('PENDING', 'PROCESSING') THEN 'has not ended'
                WHEN EXISTS (SELECT FROM capture c JOIN refund f ON f.capture_id = c.id
                    WHERE c.payment_id = p.id AND f.status = 'PENDING')
                    THEN 'has a pending refund'
                WHEN EXISTS (SELECT FROM capture c JOIN refund f ON f.capture_id = c.id
                    WHERE c.payment_id = p.id AND f.destination IS NOT NULL
                        AND f.created_at > clock() - interval '1 day')
                    THEN 'has a refund from the last 24 hours, which counts towards a refund limit'
                WHEN EXISTS (SELECT FROM money_case m
                    WHERE m.payment_id = p.id AND m.status = 'OPEN') THEN 'has an open case'
                WHEN EXISTS (SELECT FROM capture c JOIN dispute q ON q.capture_id = c.id
                    WHERE c.payment_id = p.id AND q.state IN ('inquiry', 'open', 'under_review'))
                    THEN 'has an open dispute'
                WHEN EXISTS (SELECT FROM event e JOIN delivery d ON d.event_id = e.id
                    WHERE e.payment_id = p.id AND d.state = 'pending')
                    THEN 'has an undelivered event'
            END AS reason
            FROM payment p
            WHERE p.id = ANY($1::uuid[])
        ) checked
        WHERE reason IS NOT NULL
        ORDER BY id
        LIMIT 1
        """,
        payment_ids,
    )
    return BlockingPayment(row["id"], row["reason"]) if row else None


async def read_event_bodies(tx: Tx, payment_ids: Sequence[UUID]) -> dict[UUID, str | None]:
    """Return the payments' event bodies by event id; None if a body cannot be decrypted."""
    rows = await tx.fetch(
        "SELECT id, body FROM event WHERE payment_id = ANY($1::uuid[])", payment_ids
    )
    decrypt = tx.payer_sealing.unseal_body
    return {row["id"]: _unseal(decrypt, row["id"], row["body"], None) for row in rows}


async def erase(tx: Tx, payment_ids: Sequence[UUID], bodies: Mapping[UUID, str]) -> None:
    """Erase the payer's data from payments, and replace the event bodies in `bodies`.

    The payments must be locked. A worker must pass empty `bodies`, because its database role cannot
    update events.
    """
    await tx.fetch(_ERASE_PAYMENTS, payment_ids, ERASED)
    await tx.fetch(_ERASE_SESSIONS, payment_ids)
    await tx.fetch(_ERASE_TEST_SESSIONS, payment_ids)
    await tx.fetch(_ERASE_CALLBACKS, payment_ids)
    await tx.fetch(_ERASE_RECEIPTS, payment_ids)
    await tx.fetch(_ERASE_CHAIN_REFUNDS, payment_ids)
    await tx.fetch(_ERASE_REFUNDS, payment_ids)
    if bodies:
        sealing = tx.payer_sealing
        new_bodies = [sealing.seal_body(event_id, body) for event_id, body in bodies.items()]
        await tx.fetch(_ERASE_EVENTS, list(bodies), new_bodies)
        await tx.fetch(_ERASE_ATTEMPTS, list(bodies))
    await tx.fetch("DELETE FROM gateway_call WHERE payment_id = ANY($1::uuid[])", payment_ids)
    await tx.fetch("DELETE FROM fraud_decision WHERE payment_id = ANY($1::uuid[])", payment_ids)
    await tx.fetch("DELETE FROM mail WHERE payment_id = ANY($1::uuid[])", payment_ids)


_ERASE_PAYMENTS: LiteralString = """
    UPDATE payment
    SET payer_uid = $2, payer_email = NULL, metadata = '{}', return_url = NULL, cancel_url = NULL
    WHERE id = ANY($1::uuid[])
"""
_ERASE_SESSIONS: LiteralString = """
    UPDATE session
    SET return_url = NULL, next_action = NULL
    WHERE payment_id = ANY($1::uuid[])
"""
# The test gateway treats an empty `return_url` as missing.
_ERASE_TEST_SESSIONS: LiteralString = """
    UPDATE test_session
    SET return_url = ''
    WHERE session_id IN (SELECT id FROM session WHERE payment_id = ANY($1::uuid[]))
"""
_ERASE_CALLBACKS: LiteralString = """
    UPDATE callback
    SET body = NULL
    WHERE body IS NOT NULL AND (
        session_id IN (SELECT id FROM session WHERE payment_id = ANY($1::uuid[]))
        OR refund_id IN (SELECT f.id FROM capture c JOIN refund f ON f.capture_id = c.id
            WHERE c.payment_id = ANY($1::uuid[])))
"""
_ERASE_RECEIPTS: LiteralString = """
    UPDATE chain_receipt
    SET payer = NULL
    WHERE session_id IN (SELECT id FROM session WHERE payment_id = ANY($1::uuid[]))
"""
# Only logs that settled or repeated a refund are erased; other logs may still be reclassified.
_ERASE_CHAIN_REFUNDS: LiteralString = """
    UPDATE chain_refund
    SET destination = NULL
    WHERE disposition IN ('settles', 'twice') AND refund_ref IN (
        SELECT f.id FROM capture c JOIN refund f ON f.capture_id = c.id
        WHERE c.payment_id = ANY($1::uuid[]))
"""
_ERASE_REFUNDS: LiteralString = """
    UPDATE refund
    SET reason = NULL, destination = NULL
    WHERE (reason IS NOT NULL OR destination IS NOT NULL)
        AND capture_id IN (SELECT id FROM capture WHERE payment_id = ANY($1::uuid[]))
"""
_ERASE_EVENTS: LiteralString = """
    UPDATE event e
    SET body = n.body
    FROM unnest($1::uuid[], $2::text[]) AS n (id, body)
    WHERE e.id = n.id
"""
_ERASE_ATTEMPTS: LiteralString = """
    UPDATE attempt
    SET detail = '', answer = ''
    WHERE event_id = ANY($1::uuid[])
"""
