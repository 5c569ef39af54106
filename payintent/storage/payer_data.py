"""What is stored of one payer of a merchant, payment by payment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, LiteralString
from uuid import UUID

import msgspec

from payintent.encryption import EncryptionKeyError
from payintent.storage.database import Executor, Row
from payintent.storage.payer_sealing import PayerSealing


@dataclass(frozen=True, slots=True, kw_only=True)
class PayerPaymentRecord:
    """A payment of a payer; lists are JSON, without what opens the checkout."""

    id: UUID
    status: str
    currency: str
    amount: Decimal
    payer_email: str | None
    metadata: str
    created_at: datetime
    updated_at: datetime
    sessions: str
    callbacks: str
    transfers: str
    refunds: str
    denials: str
    events: str


#: A JSON text in the place of what is sealed and does not open.
_UNREADABLE = '"(sealed, and does not open)"'


class _StoredEvent(msgspec.Struct):
    id: UUID
    body: str


async def list_payments_of_payer(
    database: Executor, merchant_id: int, payer_uid: str, after: UUID | None, limit: int
) -> Sequence[PayerPaymentRecord]:
    """List a payer's payments with what is stored of each, by their ids, after one of them."""
    rows = await database.fetch(
        _OF_PAYER,
        merchant_id,
        payer_uid,
        after,
        limit,
    )
    return [_record(row, database.payer_sealing) for row in rows]


def _record(row: Row, sealing: PayerSealing) -> PayerPaymentRecord:
    events = msgspec.json.decode(row["events"], type=list[_StoredEvent])
    bodies = [_opened(sealing.body, event.id, event.body, _UNREADABLE) for event in events]
    opened: dict[str, Any] = {
        "payer_email": row["payer_email"]
        and _opened(sealing.email, row["id"], row["payer_email"], msgspec.json.decode(_UNREADABLE)),
        "metadata": _opened(sealing.metadata, row["id"], row["metadata"], _UNREADABLE),
        "events": f"[{', '.join(bodies)}]",
    }
    return PayerPaymentRecord(**{**row, **opened})


def _opened(
    opens: Callable[[UUID, str], str | None], row_id: UUID, stored: str, instead: str
) -> str:
    """Open what is sealed; what does not open is named in its place, and hides nothing else."""
    try:
        return opens(row_id, stored) or ""
    except EncryptionKeyError:
        return instead


_OF_PAYER: LiteralString = """
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
