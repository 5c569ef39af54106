"""Read all data stored about a merchant's payer, payment by payment."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

import msgspec

from payintent.domain import ids
from payintent.encryption import EncryptionKeyError
from payintent.storage.database import Executor, Row
from payintent.storage.payer_sealing import PayerSealing

#: Stands in for a sealed value that cannot be decrypted.
_UNREADABLE = "(sealed, and does not open)"
_UNREADABLE_JSON = f'"{_UNREADABLE}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPayment:
    """A payment with the data stored about its payer; it omits everything that opens a checkout."""

    id: str
    status: str
    currency: str
    amount: str
    payer_email: str | None
    metadata: msgspec.Raw
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


async def list_payments_of_payer(
    database: Executor, merchant_id: int, payer_uid: str, after: UUID | None, limit: int
) -> list[ExportedPayment]:
    """List a payer's payments by id, starting after the payment `after`."""
    rows = await database.fetch(_PAYMENTS, merchant_id, payer_uid, after, limit)
    return [_to_exported_payment(row, database.payer_sealing) for row in rows]


def _to_exported_payment(row: Row, sealing: PayerSealing) -> ExportedPayment:
    payment_id, email = row["id"], row["payer_email"]
    events = msgspec.json.decode(row["events"], type=list[_StoredEvent])
    bodies = [_unseal(sealing.body, event.id, event.body, _UNREADABLE_JSON) for event in events]
    return ExportedPayment(
        id=ids.format_id(ids.PAYMENT, payment_id),
        status=row["status"],
        currency=row["currency"],
        amount=f"{row['amount'].normalize():f}",
        payer_email=email and _unseal(sealing.email, payment_id, email, _UNREADABLE),
        metadata=_json(_unseal(sealing.metadata, payment_id, row["metadata"], _UNREADABLE_JSON)),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        sessions=_json(row["sessions"]),
        callbacks=_json(row["callbacks"]),
        transfers=_json(row["transfers"]),
        refunds=_json(row["refunds"]),
        denials=_json(row["denials"]),
        events=_json(f"[{', '.join(bodies)}]"),
    )


def _unseal(
    decrypt: Callable[[UUID, str], str | None], row_id: UUID, stored: str, unreadable: str
) -> str:
    """Decrypt a sealed value; an unreadable value must not hide the readable values."""
    try:
        return decrypt(row_id, stored) or ""
    except EncryptionKeyError:
        return unreadable


def _json(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


_PAYMENTS: LiteralString = """
    SELECT p.id, p.status, p.currency, p.amount, p.payer_email, p.metadata, p.created_at,
        p.updated_at,
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
