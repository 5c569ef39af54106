"""Stored facts about an on-chain session or refund, read for a decision."""

from dataclasses import dataclass
from uuid import UUID

from payintent.domain.gateway import Capture, GatewayRefundRequest
from payintent.domain.onchain import (
    PROVIDER,
    MismatchedTransfer,
    OnchainEvidence,
    PostedTransaction,
    PostedTransactionState,
    TransferDisposition,
)
from payintent.domain.onchain_refund import OnchainRefundFacts
from payintent.storage.database import Database, Executor
from payintent.storage.onchain import chain_gas, refund_logs
from payintent.storage.onchain.pending_transfers import MISMATCHES_MAX, POSTED_MAX
from payintent.storage.rows import build


@dataclass(frozen=True, slots=True)
class DatabaseOnchainRecords:
    database: Database

    async def evidence(self, session_id: UUID) -> OnchainEvidence | None:
        return await get_evidence(self.database, session_id)

    async def get_refund_facts(
        self, account_id: int, request: GatewayRefundRequest
    ) -> OnchainRefundFacts | None:
        return await refund_logs.get_refund_facts(self.database, account_id, request)

    async def claim_for_sender(self, refund_id: UUID, sender: bytes) -> bool:
        return await refund_logs.claim_for_sender(self.database, refund_id, sender)

    async def spend_automatic_gas(self, chain: str, gas: int) -> bool:
        return await chain_gas.spend(self.database, chain, gas)

    async def set_transaction_hash(self, refund_id: UUID, tx_hash: bytes) -> None:
        await refund_logs.set_transaction_hash(self.database, refund_id, tx_hash)

    async def note_reverted(self, refund_id: UUID, tx_hash: bytes) -> int:
        return await refund_logs.note_reverted(self.database, refund_id, tx_hash)


async def get_evidence(database: Executor, session_id: UUID) -> OnchainEvidence | None:
    row = await database.row(
        """
        SELECT clock() AS now, p.expires_at AS deadline, c.window_at, c.at AS final_at,
            EXISTS (SELECT FROM chain_sighting g
                WHERE g.session_id = s.id AND g.exact AND g.gone_at IS NULL) AS exact_sighted,
            EXISTS (SELECT FROM chain_sighting g
                WHERE g.session_id = s.id AND g.exact AND g.gone_at IS NOT NULL) AS exact_gone,
            k.reference AS k_reference, k.amount_minor AS k_amount_minor, k.currency AS k_currency
        FROM session s
        JOIN payment p ON p.id = s.payment_id
        LEFT JOIN chain_cursor c ON c.chain = s.chain
        LEFT JOIN capture k ON k.session_id = s.id AND k.credited
        WHERE s.id = $1 AND s.provider = $2
        """,
        session_id,
        PROVIDER,
    )
    if row is None:
        return None
    capture = None
    if row["k_reference"] is not None:
        capture = Capture(
            reference=row["k_reference"],
            amount_minor=int(row["k_amount_minor"]),
            currency=row["k_currency"],
        )
    return build(
        OnchainEvidence,
        row,
        captured=capture,
        posted=tuple(await _list_posted(database, session_id)),
        mismatches=tuple(await _list_mismatches(database, session_id)),
    )


async def _list_posted(database: Executor, session_id: UUID) -> list[PostedTransaction]:
    rows = await database.fetch(
        """
        SELECT state, reason, final, posted_at, settled_at
        FROM chain_hint
        WHERE session_id = $1 AND step = 'pay' AND state NOT IN ('foreign', 'duplicate')
        ORDER BY posted_at
        LIMIT $2
        """,
        session_id,
        POSTED_MAX,
    )
    return [
        build(PostedTransaction, row, state=PostedTransactionState(row["state"])) for row in rows
    ]


async def _list_mismatches(database: Executor, session_id: UUID) -> list[MismatchedTransfer]:
    rows = await database.fetch(
        """
        SELECT r.disposition, r.final_at, h.tx_hash IS NOT NULL AS posted
        FROM chain_receipt r
        LEFT JOIN chain_hint h ON h.session_id = r.session_id AND h.tx_hash = r.tx_hash
        WHERE r.session_id = $1 AND r.disposition IN ('underpaid', 'overpaid', 'wrong_token')
        ORDER BY r.final_at, r.block, r.log_index
        LIMIT $2
        """,
        session_id,
        MISMATCHES_MAX,
    )
    return [
        build(MismatchedTransfer, row, disposition=TransferDisposition(row["disposition"]))
        for row in rows
    ]
