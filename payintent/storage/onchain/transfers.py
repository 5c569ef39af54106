"""Final transfers and the captures that they make: many at a time, each once."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.domain.case import MoneyOrigin
from payintent.domain.evm import PaidLog
from payintent.domain.onchain import ExpectedTransfer, TransferDisposition
from payintent.domain.session import Session
from payintent.storage import sessions
from payintent.storage.database import Executor, Row, Tx

_SHOWN_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledSession:
    """A session that a log names: whose it is and what it must say."""

    session_id: UUID
    payment_id: UUID
    merchant_id: int
    account_id: int
    bill: ExpectedTransfer | None  # None: its token had no address

    @property
    def origin(self) -> MoneyOrigin:
        """Name its money."""
        return MoneyOrigin(
            merchant_id=self.merchant_id,
            payment_id=self.payment_id,
            session_id=self.session_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTransfer:
    """A finalized log and what it is to us."""

    id: UUID
    account_id: int
    log: PaidLog
    session_id: UUID | None
    disposition: TransferDisposition


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTransferCapture:
    """Money that a receipt brought, of a known session or of none."""

    id: UUID
    receipt: NewTransfer
    payment_id: UUID | None
    currency: str
    credited: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRecord:
    """A receipt of a known session, as it is kept."""

    session_id: UUID
    disposition: str
    chain: str
    block: int
    tx_hash: bytes
    log_index: int
    payer: bytes
    token: bytes
    amount: str  # in the smallest unit
    final_at: datetime


async def find_billed_sessions(
    database: Executor, uuids: Sequence[bytes]
) -> dict[bytes, BilledSession]:
    """Find the sessions that logs name by their uuid, and what their logs must say."""
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
    return {bytes.fromhex(row["reference"][2:]): _named(row) for row in rows}


def _named(row: Row) -> BilledSession:
    bill = None
    if row["token"] is not None:
        bill = ExpectedTransfer(
            token=row["token"], amount=int(row["amount"]), receiver=row["receiver"]
        )
    return BilledSession(
        session_id=row["id"],
        payment_id=row["payment_id"],
        merchant_id=row["merchant_id"],
        account_id=row["account_id"],
        bill=bill,
    )


def session_reference(uuid: bytes) -> str:
    """Write a uuid as sessions keep it: `0x` and 32 hex digits."""
    return f"0x{uuid.hex()}"


async def lock_sessions(tx: Tx, session_ids: Sequence[UUID]) -> list[Session]:
    """Lock sessions in the order of their ids; their payments must be locked before."""
    rows = await tx.fetch(
        "SELECT"
        + sessions.COLUMNS
        + """
        FROM session s
        WHERE s.id = ANY($1::uuid[])
        ORDER BY s.id
        LIMIT 10000
        FOR UPDATE
        """,
        session_ids,
    )
    return [sessions.from_row(row) for row in rows]


async def list_known(tx: Executor, chain: str, logs: Sequence[PaidLog]) -> set[tuple[bytes, int]]:
    """Tell which logs are kept already."""
    rows = await tx.fetch(
        """
        SELECT tx_hash, log_index
        FROM chain_receipt
        WHERE chain = $1 AND tx_hash = ANY($2::bytea[])
        """,
        chain,
        list({log.tx_hash for log in logs}),
    )
    return {(row["tx_hash"], row["log_index"]) for row in rows}


async def pick_unknown(database: Executor, chain: str, logs: Sequence[PaidLog]) -> list[PaidLog]:
    """Pick the logs that nobody has kept."""
    before = await list_known(database, chain, logs) if logs else set[tuple[bytes, int]]()
    return [log for log in logs if (log.tx_hash, log.log_index) not in before]


async def add(tx: Tx, chain: str, receipts: Sequence[NewTransfer], at: datetime) -> None:
    """Keep receipts that nobody has kept before."""
    logs = [transfer.log for transfer in receipts]
    await tx.fetch(
        """
        INSERT INTO chain_receipt (id, chain, account_id, block, block_hash, tx_hash, log_index,
            uuid, payer, token, receiver, amount, session_id, disposition, final_at)
        SELECT id, $1, account_id, block, block_hash, tx_hash, log_index, uuid, payer, token,
            receiver, amount::numeric, session_id, disposition, $15
        FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[], $7::int[],
            $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[], $12::text[], $13::uuid[],
            $14::text[]) AS r (id, account_id, block, block_hash, tx_hash, log_index, uuid, payer,
            token, receiver, amount, session_id, disposition)
        """,
        chain,
        [transfer.id for transfer in receipts],
        [transfer.account_id for transfer in receipts],
        [log.block_number for log in logs],
        [log.block_hash for log in logs],
        [log.tx_hash for log in logs],
        [log.log_index for log in logs],
        [log.uuid for log in logs],
        [log.payer for log in logs],
        [log.token for log in logs],
        [log.receiver for log in logs],
        [str(log.amount) for log in logs],
        [transfer.session_id for transfer in receipts],
        [transfer.disposition for transfer in receipts],
        at,
    )


async def add_captures(tx: Tx, captures: Sequence[NewTransferCapture], at: datetime) -> None:
    """Keep the money that came, to be refunded from."""
    if not captures:
        return
    await tx.fetch(
        """
        INSERT INTO capture (id, account_id, reference, session_id, payment_id, currency,
            amount_minor, credited, captured_at, receipt_id)
        SELECT id, account_id, reference, session_id, payment_id, currency, amount::numeric,
            credited, $9, receipt_id
        FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::uuid[], $5::uuid[], $6::text[],
            $7::text[], $8::boolean[], $10::uuid[]) AS c (id, account_id, reference, session_id,
            payment_id, currency, amount, credited, receipt_id)
        """,
        [capture.id for capture in captures],
        [capture.receipt.account_id for capture in captures],
        [
            f"0x{capture.receipt.log.tx_hash.hex()}:{capture.receipt.log.log_index}"
            for capture in captures
        ],
        [capture.receipt.session_id for capture in captures],
        [capture.payment_id for capture in captures],
        [capture.currency for capture in captures],
        [str(capture.receipt.log.amount) for capture in captures],
        [capture.credited for capture in captures],
        at,
        [capture.receipt.id for capture in captures],
    )


async def end_sessions(tx: Tx, session_ids: Sequence[UUID], outcome: str, now: datetime) -> None:
    """End sessions on the chain's word."""
    await tx.fetch(
        """
        UPDATE session
        SET life = 'ended', outcome = $2, ended_at = $3, inquire_at = NULL
        WHERE id = ANY($1::uuid[]) AND life <> 'ended'
        """,
        session_ids,
        outcome,
        now,
    )


async def list_for_payment(database: Executor, payment_id: UUID) -> list[TransferRecord]:
    """List what finalized blocks said of a payment's sessions, in the order of the chain."""
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
        _SHOWN_MAX,
    )
    return [TransferRecord(**row) for row in rows]
