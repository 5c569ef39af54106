"""Stores final transfers (table `chain_receipt`)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from payintent.chains.store import PROVIDER
from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import build
from payintent.evm.port import ContractLog, PaidLog
from payintent.gateways.port import Capture
from payintent.onchain.pending_store import MISMATCHES_MAX, POSTED_MAX
from payintent.onchain.settlement_rules import (
    ExpectedTransfer,
    MismatchedTransfer,
    OnchainEvidence,
    PostedTransaction,
    PostedTransactionState,
    TransferDisposition,
)
from payintent.payments.captures_store import MoneyOrigin

_TRANSFERS_MAX = 1_000
_Log = TypeVar("_Log", bound=ContractLog)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedSession:
    """A session that a log references by its uuid."""

    session_id: UUID
    payment_id: UUID
    merchant_id: int
    account_id: int
    expected: ExpectedTransfer | None  # None if the token had no address

    @property
    def origin(self) -> MoneyOrigin:
        return MoneyOrigin(
            merchant_id=self.merchant_id,
            payment_id=self.payment_id,
            session_id=self.session_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTransfer:
    id: UUID
    chain: str
    account_id: int
    log: PaidLog
    origin: MoneyOrigin
    disposition: TransferDisposition


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRecord:
    session_id: UUID
    disposition: str
    chain: str
    block: int
    tx_hash: bytes
    log_index: int
    payer: bytes | None  # None after its retention period
    token: bytes
    amount: str  # in the token's smallest unit
    final_at: datetime


async def find_referenced_sessions(
    database: Executor, uuids: Collection[bytes]
) -> dict[bytes, ReferencedSession]:
    rows = await database.fetch(
        """
        SELECT s.id, s.payment_id, p.merchant_id, s.account_id, s.reference,
            s.total_minor::text AS amount, c.receiver, s.token_address AS token
        FROM session s
        JOIN payment p ON p.id = s.payment_id
        JOIN chain_contract c ON c.account_id = s.account_id
        WHERE s.provider = 'gateway_contract' AND s.reference = ANY($1::text[])
        """,
        [session_reference(uuid) for uuid in uuids],
    )
    return {bytes.fromhex(row["reference"][2:]): _to_session(row) for row in rows}


def _to_session(row: Row) -> ReferencedSession:
    expected = None
    if row["token"] is not None:
        expected = ExpectedTransfer(
            token=row["token"], amount=int(row["amount"]), receiver=row["receiver"]
        )
    return ReferencedSession(
        session_id=row["id"],
        payment_id=row["payment_id"],
        merchant_id=row["merchant_id"],
        account_id=row["account_id"],
        expected=expected,
    )


def session_reference(uuid: bytes) -> str:
    """Format a uuid as in `session.reference`: `0x` and 32 hex digits."""
    return f"0x{uuid.hex()}"


async def filter_new(database: Executor, chain: str, logs: Sequence[_Log]) -> list[_Log]:
    """Return the logs that are not stored yet."""
    if not logs:
        return []
    rows = await database.fetch(
        """
        SELECT tx_hash, log_index
        FROM chain_receipt
        WHERE chain = $1 AND tx_hash = ANY($2::bytea[])
        UNION ALL
        SELECT tx_hash, log_index
        FROM chain_refund
        WHERE chain = $1 AND tx_hash = ANY($2::bytea[])
        """,
        chain,
        list({log.tx_hash for log in logs}),
    )
    stored = {(row["tx_hash"], row["log_index"]) for row in rows}
    return [log for log in logs if (log.tx_hash, log.log_index) not in stored]


async def add(tx: Tx, transfers: Sequence[NewTransfer], at: datetime) -> None:
    """Store transfers that have not been stored yet."""
    if not transfers:
        return
    logs = [transfer.log for transfer in transfers]
    await tx.fetch(
        """
        INSERT INTO chain_receipt (id, chain, account_id, block, block_hash, tx_hash, log_index,
            uuid, payer, token, receiver, amount, session_id, disposition, final_at)
        SELECT id, chain, account_id, block, block_hash, tx_hash, log_index, uuid, payer, token,
            receiver, amount::numeric, session_id, disposition, $15
        FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[],
            $7::int[], $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[], $12::text[],
            $13::uuid[], $14::text[]) AS r (id, chain, account_id, block, block_hash, tx_hash,
            log_index, uuid, payer, token, receiver, amount, session_id, disposition)
        """,
        [transfer.id for transfer in transfers],
        [transfer.chain for transfer in transfers],
        [transfer.account_id for transfer in transfers],
        [log.block_number for log in logs],
        [log.block_hash for log in logs],
        [log.tx_hash for log in logs],
        [log.log_index for log in logs],
        [log.uuid for log in logs],
        [log.payer for log in logs],
        [log.token for log in logs],
        [log.receiver for log in logs],
        [str(log.amount) for log in logs],
        [transfer.origin.session_id for transfer in transfers],
        [transfer.disposition for transfer in transfers],
        at,
    )


async def list_for_payment(database: Executor, payment_id: UUID) -> list[TransferRecord]:
    """List the final transfers of a payment's sessions, in chain order."""
    rows = await database.fetch(
        """
        SELECT r.session_id, r.disposition, r.chain, r.block, r.tx_hash, r.log_index, r.payer,
            r.token, r.amount::text AS amount, r.final_at
        FROM chain_receipt r
        JOIN session s ON s.id = r.session_id
        WHERE s.payment_id = $1
        ORDER BY r.final_at, r.block, r.log_index
        LIMIT $2
        """,
        payment_id,
        _TRANSFERS_MAX,
    )
    return [TransferRecord(**row) for row in rows]


async def get_evidence(database: Executor, session_id: UUID) -> OnchainEvidence | None:
    """Return a session's on-chain facts, or None if the session is not on a chain."""
    row = await database.row(
        """
        SELECT clock() AS now, p.expires_at AS deadline, c.window_at, c.at AS final_at,
            EXISTS (SELECT FROM chain_sighting g
                WHERE g.session_id = s.id AND g.exact AND g.gone_at IS NULL) AS is_exact_pending,
            EXISTS (SELECT FROM chain_sighting g
                WHERE g.session_id = s.id AND g.exact AND g.gone_at IS NOT NULL) AS is_exact_gone,
            k.reference AS capture_reference, k.amount_minor AS capture_amount_minor,
            k.currency AS capture_currency
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
    if row["capture_reference"] is not None:
        capture = Capture(
            reference=row["capture_reference"],
            amount_minor=int(row["capture_amount_minor"]),
            currency=row["capture_currency"],
        )
    return build(
        OnchainEvidence,
        row,
        capture=capture,
        posted_transactions=tuple(await _list_posted(database, session_id)),
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
        SELECT r.disposition, r.final_at, h.tx_hash IS NOT NULL AS was_posted
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
