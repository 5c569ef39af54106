"""Store deposit addresses and the transfers to them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.chains.store import DEPOSIT_PROVIDER
from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import build
from payintent.evm.port import NATIVE, TransferLog
from payintent.onchain.deposit_rules import DepositCapture, DepositEvidence, FinalDeposit
from payintent.onchain.sweeps import store as sweeps_store

_ADDRESSES_MAX = 50_000


@dataclass(frozen=True, slots=True)
class OpenAddresses:
    """The deposit addresses of a chain's unfinished sessions."""

    addresses: list[bytes]
    new_session_ids: list[UUID]  # sessions whose addresses have not been read yet
    from_block: int | None  # transfers to these addresses are read after this block


@dataclass(frozen=True, slots=True)
class DepositAddress:
    """The deposit address of a session."""

    session_id: UUID
    account_id: int
    uuid: bytes
    address: bytes


@dataclass(frozen=True, slots=True)
class DepositCursor:
    """The last block whose deposits were read; `at` is None until a block has been read."""

    block: int
    at: datetime | None


@dataclass(frozen=True, slots=True)
class NewDeposit:
    id: UUID
    address: DepositAddress
    log: TransferLog
    mined_at: datetime


async def add_address(
    database: Executor, session_id: UUID, account_id: int, uuid: bytes, address: bytes
) -> bytes:
    """Store a session's deposit address unless it already has one, and return the uuid."""
    return await database.value(
        """
        INSERT INTO deposit_address (session_id, account_id, uuid, address, from_block)
        SELECT $1, $2, $3, $4, coalesce(k.deposit_block, k.block)
        FROM chain_contract c
        JOIN chain_cursor k ON k.chain = c.chain
        WHERE c.account_id = $2
        ON CONFLICT (session_id) DO UPDATE SET uuid = deposit_address.uuid
        RETURNING uuid
        """,
        session_id,
        account_id,
        uuid,
        address,
    )


async def get_open_addresses(database: Executor, chain: str) -> OpenAddresses:
    """Return the addresses in a stable order, in one row, because they are read at every poll."""
    row = await database.row(
        """
        SELECT coalesce(array_agg(address ORDER BY id), '{}') AS addresses,
            coalesce(array_agg(session_id) FILTER (WHERE NOT covered), '{}') AS new_session_ids,
            min(from_block) FILTER (WHERE NOT covered) AS from_block
        FROM (
            SELECT a.*
            FROM session s
            CROSS JOIN LATERAL (
                SELECT id, session_id, address, from_block, covered
                FROM deposit_address
                WHERE session_id = s.id
                OFFSET 0  -- without it, a join may read the addresses of all ended sessions
            ) a
            WHERE s.chain = $1 AND s.life <> 'ended'
            ORDER BY a.id
            LIMIT $2
        ) a
        """,
        chain,
        _ADDRESSES_MAX,
    )
    assert row is not None  # noqa: S101 - an aggregate has one row
    return OpenAddresses(**row)


async def list_tokens(database: Executor, chain: str) -> list[bytes]:
    """List the addresses of the chain's tokens and of the tokens in which open sessions are quoted.

    An operator can change a token's address while buyers still pay to the previous token.
    """
    rows = await database.fetch(
        """
        SELECT address FROM chain_token WHERE chain = $1
        UNION
        SELECT token_address FROM session
        WHERE chain = $1 AND life <> 'ended' AND provider = $2
        """,
        chain,
        DEPOSIT_PROVIDER,
    )
    return [row["address"] for row in rows if row["address"] not in (None, NATIVE)]


async def find_addresses(
    database: Executor, chain: str, addresses: Collection[bytes]
) -> dict[bytes, DepositAddress]:
    """Return those of the given addresses that are deposit addresses on the chain."""
    if not addresses:
        return {}
    rows = await database.fetch(
        """
        SELECT a.session_id, a.account_id, a.uuid, a.address
        FROM deposit_address a
        JOIN chain_contract c ON c.account_id = a.account_id
        WHERE c.chain = $1 AND a.address = ANY($2::bytea[])
        """,
        chain,
        list(addresses),
    )
    return {row["address"]: DepositAddress(**row) for row in rows}


async def get_addresses(database: Executor, session_ids: Sequence[UUID]) -> list[bytes]:
    rows = await database.fetch(
        "SELECT address FROM deposit_address WHERE session_id = ANY($1::uuid[]) ORDER BY id",
        session_ids,
    )
    return [row["address"] for row in rows]


async def get_deposit_cursor(database: Executor, chain: str) -> DepositCursor | None:
    row = await database.row(
        """
        SELECT coalesce(deposit_block, block) AS block, deposit_at AS at
        FROM chain_cursor
        WHERE chain = $1
        """,
        chain,
    )
    return DepositCursor(**row) if row else None


async def advance_deposit_cursor(
    tx: Tx, chain: str, cursor: DepositCursor, block: int, at: datetime
) -> bool:
    """Advance the cursor. Returns False if another process has advanced it since it was read."""
    row = await tx.row(
        """
        UPDATE chain_cursor
        SET deposit_block = $3, deposit_at = $4
        WHERE chain = $1 AND coalesce(deposit_block, block) = $2 AND halted IS NULL
        RETURNING chain
        """,
        chain,
        cursor.block,
        block,
        at,
    )
    return row is not None


async def list_addresses(
    database: Executor, chain: str, after: int, limit: int
) -> tuple[list[bytes], int | None]:
    """List a chain's addresses with ids above `after`, and the last id if there may be more."""
    rows = await database.fetch(
        """
        SELECT a.id, a.address
        FROM deposit_address a
        JOIN session s ON s.id = a.session_id
        WHERE a.id > $2 AND s.chain = $1
        ORDER BY a.id
        LIMIT $3
        """,
        chain,
        after,
        limit,
    )
    return [row["address"] for row in rows], rows[-1]["id"] if len(rows) == limit else None


async def mark_covered(tx: Tx, session_ids: Sequence[UUID]) -> None:
    if session_ids:
        await tx.fetch(
            "UPDATE deposit_address SET covered = true WHERE session_id = ANY($1::uuid[])",
            session_ids,
        )


async def filter_new(
    database: Executor, chain: str, logs: Sequence[TransferLog]
) -> list[TransferLog]:
    """Return the transfers that are not stored yet.

    A transfer that a reorganisation moved to another block has arrived only once, although its log
    index has usually changed.
    """
    if not logs:
        return []
    rows = await database.fetch(
        """
        SELECT tx_hash, log_index, block_hash, receiver, token
        FROM chain_receipt
        WHERE chain = $1 AND tx_hash = ANY($2::bytea[])
        """,
        chain,
        list({log.tx_hash for log in logs}),
    )
    stored = {(row["tx_hash"], row["log_index"]) for row in rows}
    block_hashes = {
        (row["tx_hash"], row["receiver"], row["token"]): row["block_hash"] for row in rows
    }
    return [
        log
        for log in logs
        if (log.tx_hash, log.log_index) not in stored
        and block_hashes.get((log.tx_hash, log.recipient, log.token), log.block_hash)
        == log.block_hash
    ]


async def add_deposits(tx: Tx, chain: str, deposits: Sequence[NewDeposit]) -> None:
    """Store final transfers, and link them to sweeps. They must not be stored already."""
    if not deposits:
        return
    logs = [deposit.log for deposit in deposits]
    await tx.fetch(
        """
        INSERT INTO chain_receipt (id, chain, account_id, block, block_hash, tx_hash, log_index,
            uuid, payer, token, receiver, amount, session_id, disposition, final_at, mined_at)
        SELECT id, $2, account_id, block, block_hash, tx_hash, log_index, uuid, payer, token,
            receiver, amount::numeric, session_id, 'deposit', clock(), mined_at
        FROM unnest($1::uuid[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[], $7::int[],
            $8::bytea[], $9::bytea[], $10::bytea[], $11::bytea[], $12::text[], $13::uuid[],
            $14::timestamptz[]) AS r (id, account_id, block, block_hash, tx_hash, log_index, uuid,
            payer, token, receiver, amount, session_id, mined_at)
        """,
        [deposit.id for deposit in deposits],
        chain,
        [deposit.address.account_id for deposit in deposits],
        [log.block_number for log in logs],
        [log.block_hash for log in logs],
        [log.tx_hash for log in logs],
        [log.log_index for log in logs],
        [deposit.address.uuid for deposit in deposits],
        [log.sender for log in logs],
        [log.token for log in logs],
        [log.recipient for log in logs],
        [str(log.amount) for log in logs],
        [deposit.address.session_id for deposit in deposits],
        [deposit.mined_at for deposit in deposits],
    )
    # Deposits that an endpoint omitted can be older than a known sweep.
    await sweeps_store.link_deposits(tx, {deposit.address.session_id for deposit in deposits})


async def list_decidable_sessions(database: Executor, chain: str, until: datetime) -> list[UUID]:
    """List sessions with uncaptured deposits, if they or their payments end before `until`."""
    rows = await database.fetch(
        """
        SELECT s.id
        FROM session s
        JOIN payment p ON p.id = s.payment_id
        WHERE s.chain = $1 AND (s.life = 'ended' OR p.expires_at < $2)
            AND s.id IN (SELECT session_id FROM chain_receipt
                WHERE disposition = 'deposit' AND deposit_capture_id IS NULL)
        ORDER BY s.id
        LIMIT $3
        """,
        chain,
        until,
        _ADDRESSES_MAX,
    )
    return [row["id"] for row in rows]


async def link_captures(tx: Tx, captures: Sequence[tuple[int, DepositCapture]]) -> None:
    """Link captures to the deposits that completed them and the deposits that they include."""
    if not captures:
        return
    await tx.fetch(
        """
        WITH linked AS (
            UPDATE capture c
            SET receipt_id = n.last_id
            FROM unnest($1::bigint[], $2::text[], $3::uuid[])
                AS n (account_id, reference, last_id)
            WHERE c.account_id = n.account_id AND c.reference = n.reference
            RETURNING c.id, c.account_id, c.reference
        )
        UPDATE chain_receipt r
        SET deposit_capture_id = linked.id
        FROM unnest($4::bigint[], $5::text[], $6::uuid[]) AS d (account_id, reference, id)
        JOIN linked ON linked.account_id = d.account_id AND linked.reference = d.reference
        WHERE r.id = d.id
        """,
        [account_id for account_id, _ in captures],
        [_reference(capture) for _, capture in captures],
        [capture.last_id for _, capture in captures],
        [account_id for account_id, capture in captures for _ in capture.deposit_ids],
        [_reference(capture) for _, capture in captures for _ in capture.deposit_ids],
        [deposit_id for _, capture in captures for deposit_id in capture.deposit_ids],
    )


def _reference(capture: DepositCapture) -> str:
    assert capture.report.capture is not None  # noqa: S101 - a deposit capture reports money
    return capture.report.capture.reference


@dataclass(frozen=True, slots=True)
class SessionDeposits:
    """A session's payment and account, and the evidence about its deposits."""

    session_id: UUID
    payment_id: UUID
    account_id: int
    evidence: DepositEvidence


async def get_deposits(
    database: Executor, session_ids: Collection[UUID]
) -> dict[UUID, SessionDeposits]:
    """Return the evidence about sessions with a deposit address, by session."""
    if not session_ids:
        return {}
    rows = await database.fetch(
        """
        SELECT s.id AS session_id, s.payment_id, s.account_id, clock() AS now,
            p.expires_at AS deadline, s.currency, s.total_minor::text AS amount,
            trunc(s.total_minor * m.deposit_tolerance / 100)::text AS tolerance,
            ceil(t.surplus_from * 10::numeric ^ coalesce(s.token_decimals, t.decimals))::text
                AS surplus_min,
            p.session_id = s.id AND p.status = 'PROCESSING' AS is_current,
            CASE WHEN a.covered THEN k.deposit_at END AS read_until,
            EXISTS (SELECT FROM chain_sighting g
                WHERE g.session_id = s.id AND g.gone_at IS NULL) AS has_pending,
            EXISTS (SELECT FROM chain_sighting g
                WHERE g.session_id = s.id AND g.gone_at IS NULL
                    AND g.block <= k.deposit_block) AS has_unproven,
            EXISTS (SELECT FROM chain_sighting g
                WHERE g.session_id = s.id AND g.gone_at IS NOT NULL) AS was_pending
        FROM deposit_address a
        JOIN session s ON s.id = a.session_id
        JOIN payment p ON p.id = s.payment_id
        JOIN merchant m ON m.id = p.merchant_id
        JOIN chain_token t ON t.chain = s.chain AND t.symbol = s.token
        JOIN chain_cursor k ON k.chain = s.chain
        WHERE a.session_id = ANY($1::uuid[])
        """,
        list(session_ids),
    )
    deposits = await _list_uncaptured(database, session_ids)
    return {
        row["session_id"]: SessionDeposits(
            row["session_id"],
            row["payment_id"],
            row["account_id"],
            _build_evidence(row, tuple(deposits.get(row["session_id"], ()))),
        )
        for row in rows
    }


def _build_evidence(row: Row, deposits: tuple[FinalDeposit, ...]) -> DepositEvidence:
    return build(
        DepositEvidence,
        row,
        amount=int(row["amount"]),
        tolerance=int(row["tolerance"]),
        surplus_min=int(row["surplus_min"]),
        deposits=deposits,
    )


async def _list_uncaptured(
    database: Executor, session_ids: Collection[UUID]
) -> Mapping[UUID, list[FinalDeposit]]:
    rows = await database.fetch(
        """
        SELECT r.id, r.session_id, r.tx_hash, r.log_index, r.amount::text AS amount, r.mined_at,
            CASE WHEN r.token = s.token_address THEN s.currency
                ELSE coalesce((SELECT max(symbol) FROM chain_token t
                        WHERE t.chain = r.chain AND t.address = r.token
                            AND t.symbol <> s.currency),
                    '0x' || encode(r.token, 'hex'))
            END AS currency
        FROM chain_receipt r
        JOIN session s ON s.id = r.session_id
        WHERE r.session_id = ANY($1::uuid[]) AND r.disposition = 'deposit'
            AND r.deposit_capture_id IS NULL
        ORDER BY r.block, r.log_index
        """,
        list(session_ids),
    )
    deposits: dict[UUID, list[FinalDeposit]] = {}
    for row in rows:
        deposits.setdefault(row["session_id"], []).append(_to_final_deposit(row))
    return deposits


def _to_final_deposit(row: Row) -> FinalDeposit:
    reference = f"0x{row['tx_hash'].hex()}:{row['log_index']}"
    return FinalDeposit(row["id"], reference, row["currency"], int(row["amount"]), row["mined_at"])
