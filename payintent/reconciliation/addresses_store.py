"""Compare the balances of deposit addresses with stored deposits, sweeps and the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from payintent.db.database import Executor, Tx
from payintent.evm.port import TransferLog
from payintent.reconciliation.compare_store import DECIMALS, ReconciliationScope

_LOOKED_AT_DAYS = 30  # the deposit watcher rechecks younger addresses for deposits
_NEW_HOURS = 1  # a new address may not have been read yet

#: The expected balance of token `k.token` at block $4 at the deposit address of session `l.our_id`:
#: the deposits minus the sweeps.
_EXPECTED: LiteralString = """
    coalesce((
        SELECT sum(r.amount)
        FROM chain_receipt r
        WHERE r.session_id = l.our_id AND r.disposition = 'deposit' AND r.token = k.token
            AND r.block <= $4
    ), 0) - coalesce((
        SELECT sum(w.amount)
        FROM deposit_sweep w
        WHERE w.session_id = l.our_id AND w.token = k.token AND w.succeeded AND w.block <= $4
    ), 0)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedAddress:
    id: int
    session_id: UUID
    address: bytes
    is_looked_at: bool  # the deposit watcher still rechecks the address for deposits


@dataclass(frozen=True, slots=True)
class ReadBlocks:
    """The last blocks for which deposits and sweeps have been read and rechecked."""

    last: int
    looked_at: int


async def find_read_blocks(database: Executor, chain: str) -> ReadBlocks | None:
    row = await database.row(
        """
        SELECT least(block, deposit_block, sweep_block) AS last,
            coalesce(long_look_block, (SELECT min(from_block) FROM deposit_address), 0) AS looked_at
        FROM chain_cursor
        WHERE chain = $1 AND halted IS NULL AND deposit_block IS NOT NULL
            AND sweep_block IS NOT NULL
        """,
        chain,
    )
    return ReadBlocks(**row) if row else None


async def list_addresses(
    database: Executor, account_id: int, after: int, limit: int
) -> list[ComparedAddress]:
    """List a factory's addresses with ids greater than `after`, in id order."""
    rows = await database.fetch(
        """
        SELECT id, session_id, address,
            created_at > clock() - make_interval(days => $4) AS is_looked_at
        FROM deposit_address
        WHERE account_id = $1 AND id > $2
            AND (covered OR created_at < clock() - make_interval(hours => $5))
        ORDER BY id
        LIMIT $3
        """,
        account_id,
        after,
        limit,
        _LOOKED_AT_DAYS,
        _NEW_HOURS,
    )
    return [ComparedAddress(**row) for row in rows]


async def list_expected(
    database: Executor, session_ids: Sequence[UUID], token: bytes, block: int
) -> dict[UUID, int]:
    """Return the expected balances of the sessions' addresses, in the token's smallest unit."""
    rows = await database.fetch(
        f"""
        SELECT l.our_id AS session_id, ({_EXPECTED})::text AS amount
        FROM unnest($1::uuid[]) AS l (our_id)
        CROSS JOIN unnest($2::bytea[], $3::text[]) AS k (token, currency)
        """,
        session_ids,
        [token],
        [""],
        block,
    )
    return {row["session_id"]: int(row["amount"]) for row in rows}


async def filter_new(tx: Tx, chain: str, logs: Sequence[TransferLog]) -> list[TransferLog]:
    """Return the transfers that are not stored as deposits."""
    rows = await tx.fetch(
        """
        SELECT tx_hash, log_index
        FROM chain_receipt
        WHERE chain = $1 AND tx_hash = ANY($2::bytea[])
        """,
        chain,
        [log.tx_hash for log in logs],
    )
    stored = {(row["tx_hash"], row["log_index"]) for row in rows}
    return [log for log in logs if (log.tx_hash, log.log_index) not in stored]


async def find_differing(
    tx: Tx, scope: ReconciliationScope, tokens: Mapping[str, bytes], block: int
) -> None:
    """Compare loaded balances, by currency, with the stored deposits and sweeps up to `block`."""
    currencies = list(tokens)
    await tx.fetch(
        _COMPARE_BALANCES,
        [tokens[currency] for currency in currencies],
        currencies,
        [scope.decimals[currency] for currency in currencies],
        block,
    )


_COMPARE_BALANCES: LiteralString = f"""
    WITH matches AS MATERIALIZED (
        SELECT l.*, ({_EXPECTED}) * 10::numeric ^ -k.decimals AS our_amount
        FROM provider_line l
        JOIN unnest($1::bytea[], $2::text[], $3::int[]) AS k (token, currency, decimals)
            ON k.currency = l.currency
        WHERE l.type = 'deposit'
    ), ours AS (
        INSERT INTO provider_record (fact_id, type, currency, amount)
        SELECT our_id, 'deposit', currency, our_amount FROM matches
    )
    INSERT INTO provider_difference (type, kind, reference, their_amount, their_currency,
        our_amount, our_currency, at, merchant_id, payment_id, session_id)
    SELECT 'deposit', 'different', m.reference, m.amount, m.currency, m.our_amount, m.currency,
        m.at, p.merchant_id, p.id, s.id
    FROM matches m
    JOIN session s ON s.id = m.our_id
    JOIN payment p ON p.id = s.payment_id
    WHERE m.amount <> m.our_amount
    ORDER BY m.number
"""


async def compare_books(tx: Tx, scope: ReconciliationScope) -> None:
    """Find addresses whose captured and unswept deposits differ from the ledger."""
    await tx.fetch(_ADD_BOOKS, *scope.decimal_columns, scope.deposits_accounts)
    await tx.fetch(_FIND_DIFFERING_BOOKS)


#: A deposit enters the ledger with its capture, and leaves `chain_deposits` with its sweep.
_ADD_BOOKS: LiteralString = f"""
    INSERT INTO provider_books (fact_id, type, currency, amount, ledger, merchants)
    SELECT r.fact_id, r.type, r.currency, r.amount,
        r.amount + (captured.ledger - captured.facts - swept.ledger + swept.facts)
            * 10::numeric ^ -{DECIMALS},
        r.amount
    FROM provider_record r
    LEFT JOIN unnest($1::text[], $2::int[]) AS u (currency, decimals) ON u.currency = r.currency
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(c.amount_minor), 0) AS facts,
            coalesce(sum((SELECT sum(e.amount) FROM ledger_entry e
                WHERE e.fact_id = c.id AND e.fact = 'capture'
                    AND e.debit = ANY($3::text[]))), 0) AS ledger
        FROM capture c
        WHERE c.session_id = r.fact_id AND c.currency = r.currency
    ) captured
    CROSS JOIN LATERAL (
        SELECT
            coalesce(sum((SELECT sum(d.amount) FROM chain_receipt d
                WHERE d.deposit_sweep_id = w.id)), 0) AS facts,
            coalesce(sum((SELECT sum(CASE WHEN e.credit = ANY($3::text[]) THEN e.amount
                    WHEN e.debit = ANY($3::text[]) THEN -e.amount ELSE 0 END)
                FROM ledger_entry e WHERE e.fact_id = w.id AND e.fact = 'sweep')), 0) AS ledger
        FROM deposit_sweep w
        WHERE w.session_id = r.fact_id AND w.currency = r.currency
    ) swept
    WHERE r.type = 'deposit'
"""
_FIND_DIFFERING_BOOKS: LiteralString = """
    INSERT INTO provider_difference (type, kind, reference, their_amount, their_currency,
        our_amount, our_currency, at, merchant_id, payment_id, session_id)
    SELECT b.type, 'ledger', '0x' || encode(a.address, 'hex'), b.ledger, b.currency, b.amount,
        b.currency, a.created_at, p.merchant_id, p.id, s.id
    FROM provider_books b
    JOIN deposit_address a ON a.session_id = b.fact_id
    JOIN session s ON s.id = a.session_id
    JOIN payment p ON p.id = s.payment_id
    WHERE b.type = 'deposit' AND b.ledger <> b.amount
    ORDER BY a.id
"""
