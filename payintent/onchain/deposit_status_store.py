"""Reads a payment's deposit addresses with their transfers and sweeps, for operators."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.core import ids
from payintent.core.money import format_smallest_units
from payintent.db.database import Executor, Row
from payintent.db.lists import build

_ADDRESSES_MAX = 100
_TRANSFERS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferStatus:
    tx_hash: str
    log_index: int
    block: int
    currency: str  # the token's symbol or, if the token is not supported, its address
    amount: str  # in tokens, or in the smallest unit if the token is not supported
    amount_smallest_unit: str
    state: str  # `pending`, `final`, or `counted` if a capture includes it
    is_mismatch: bool  # the token differs from the session's
    capture_reference: str | None
    credited: bool | None  # whether the capture completes the payment; None if there is no capture
    mined_at: datetime | None
    final_at: datetime | None
    sweep: str  # `none` while pending, `unswept`, `claimed` by an open batch, or `swept`
    sweep_tx_hash: str | None
    swept_at: datetime | None
    sweep_failures: int  # our failed sweeps of the token since the transfer


@dataclass(frozen=True, slots=True, kw_only=True)
class DepositStatus:
    """A session's deposit address. Amounts are in the session's token."""

    session_id: str
    chain: str
    address: bytes
    factory: bytes
    receiver: bytes  # receives the sweeps
    currency: str
    amount: str
    received: str  # the sum of final transfers
    pending: str
    remaining: str  # counts pending transfers as received
    transfers: list[TransferStatus]


async def list_deposits(database: Executor, payment_id: UUID) -> list[DepositStatus]:
    rows = await database.fetch(
        """
        SELECT a.session_id, k.chain, a.address, k.address AS factory, k.receiver,
            t.symbol AS currency, coalesce(s.token_decimals, t.decimals) AS decimals,
            s.total_minor::text AS total
        FROM session s
        JOIN deposit_address a ON a.session_id = s.id
        JOIN chain_contract k ON k.account_id = a.account_id
        JOIN chain_token t ON t.chain = s.chain AND t.symbol = s.token
        WHERE s.payment_id = $1
        ORDER BY a.id
        LIMIT $2
        """,
        payment_id,
        _ADDRESSES_MAX,
    )
    transfers: dict[UUID, list[TransferStatus]] = {}
    if rows:
        for row in await _list_transfers(database, payment_id):
            transfers.setdefault(row["session_id"], []).append(_to_transfer(row))
    return [_to_deposit(row, transfers.get(row["session_id"], [])) for row in rows]


async def _list_transfers(database: Executor, payment_id: UUID) -> list[Row]:
    return await database.fetch(
        """
        WITH sessions AS (
            SELECT id, chain, token_address, currency, token_decimals
            FROM session
            WHERE payment_id = $1 AND provider = 'onchain'
        ), transfers AS (
            SELECT r.session_id, r.chain, r.tx_hash, r.log_index, r.block, r.token, r.amount,
                r.mined_at, r.final_at, r.deposit_capture_id, r.deposit_sweep_id, true AS is_final
            FROM chain_receipt r
            WHERE r.session_id IN (SELECT id FROM sessions) AND r.disposition = 'deposit'
            UNION ALL
            SELECT g.session_id, g.chain, g.tx_hash, g.log_index, g.block, g.token, g.amount,
                NULL, NULL, NULL, NULL, false
            FROM chain_sighting g
            WHERE g.session_id IN (SELECT id FROM sessions) AND g.gone_at IS NULL
                AND g.token IS NOT NULL
        )
        SELECT r.session_id, r.tx_hash, r.log_index, r.block, r.amount::text AS units, r.mined_at,
            r.final_at, r.is_final, r.token IS DISTINCT FROM s.token_address AS is_mismatch,
            CASE WHEN r.token = s.token_address THEN s.currency
                ELSE coalesce(t.symbol, '0x' || encode(r.token, 'hex')) END AS currency,
            CASE WHEN r.token = s.token_address THEN coalesce(s.token_decimals, t.decimals)
                ELSE t.decimals END AS decimals,
            c.reference AS capture_reference, c.credited, w.tx_hash AS swept_in,
            w.final_at AS swept_at, b.id IS NOT NULL AS is_claimed, b.tx_hash AS claimed_in,
            (SELECT count(*) FROM deposit_sweep f
                WHERE f.session_id = r.session_id AND f.token = r.token AND NOT f.succeeded
                    AND (f.block, f.log_index) > (r.block, r.log_index)
                    AND EXISTS (SELECT FROM sweep_batch o WHERE o.tx_hash = f.tx_hash)
            ) AS sweep_failures
        FROM transfers r
        JOIN sessions s ON s.id = r.session_id
        LEFT JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
        LEFT JOIN capture c ON c.id = r.deposit_capture_id
        LEFT JOIN deposit_sweep w ON w.id = r.deposit_sweep_id
        LEFT JOIN sweep_item i ON i.session_id = r.session_id AND i.token = r.token
            AND NOT i.ended AND r.is_final AND r.deposit_sweep_id IS NULL
        LEFT JOIN sweep_batch b ON b.id = i.batch_id
        ORDER BY r.block, r.log_index
        LIMIT $2
        """,
        payment_id,
        _TRANSFERS_MAX,
    )


def _to_transfer(row: Row) -> TransferStatus:
    sweep_hash: bytes | None = row["swept_in"] or row["claimed_in"]
    is_counted = row["capture_reference"] is not None
    state = "counted" if is_counted else "final" if row["is_final"] else "pending"
    amount = format_smallest_units(
        int(row["units"]), row["currency"], row["decimals"], on_chain=True
    )
    return build(
        TransferStatus,
        row,
        tx_hash=f"0x{row['tx_hash'].hex()}",
        amount=amount or row["units"],
        amount_smallest_unit=row["units"],
        state=state,
        sweep=_describe_sweep(row),
        sweep_tx_hash=sweep_hash and f"0x{sweep_hash.hex()}",
    )


def _describe_sweep(row: Row) -> str:
    if row["swept_at"] is not None:
        return "swept"
    if row["is_final"]:
        return "claimed" if row["is_claimed"] else "unswept"
    return "none"


def _to_deposit(row: Row, transfers: list[TransferStatus]) -> DepositStatus:
    matching = [transfer for transfer in transfers if not transfer.is_mismatch]
    pending = sum(int(item.amount_smallest_unit) for item in matching if item.state == "pending")
    total = sum(int(item.amount_smallest_unit) for item in matching)
    expected = int(row["total"])

    def format_units(units: int) -> str:
        text = format_smallest_units(units, row["currency"], row["decimals"], on_chain=True)
        return text or str(units)

    return build(
        DepositStatus,
        row,
        session_id=ids.format_id(ids.SESSION, row["session_id"]),
        amount=format_units(expected),
        received=format_units(total - pending),
        pending=format_units(pending),
        remaining=format_units(max(0, expected - total)),
        transfers=transfers,
    )
