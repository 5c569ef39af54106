"""Store the block ranges and progress of contract comparisons, and the receivers' balances."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import LiteralString
from uuid import UUID

from payintent.db.database import Executor, Tx
from payintent.gateways.settlement_reports import ProviderFileLine
from payintent.reconciliation.compare_store import (
    ReconciliationScope,
    build_missing_payments,
    build_missing_refunds,
)

_DUE_HOURS = 24
_CONTRACTS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRun:
    run_id: UUID
    first_block: int
    last_block: int
    next_block: int
    differences: int
    opened: int
    address_id: int = 0  # for a deposit factory: the last address that was compared


@dataclass(frozen=True, slots=True, kw_only=True)
class DueContract:
    """A contract due for comparison. If no run is open, the next run starts at `next_block`.

    A deposit factory's run compares its addresses.
    """

    account_id: int
    address: bytes
    receiver: bytes
    is_factory: bool
    next_block: int
    open_run: BlockRun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverBalance:
    """A receiver's token balance at a block, on the chain and in the ledger, as decimal amounts."""

    currency: str
    block: int
    receiver: str | None  # None: no endpoint returned it
    refunders: str | None  # the total balance of the refund senders
    ledger: str
    expected: str | None  # the expected minimum; None: not checked

    @property
    def shortfall(self) -> Decimal:
        """How far the balance is below the expected minimum; 0 if a balance is unknown."""
        if self.expected is None or self.receiver is None or self.refunders is None:
            return Decimal(0)
        balance = Decimal(self.receiver) + Decimal(self.refunders)
        return max(Decimal(0), Decimal(self.expected) - balance)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSum:
    """A receiver's token balance in the ledger."""

    minor: int
    has_manual_entries: bool  # payouts or adjustments that operators recorded


async def list_due(database: Executor, chain: str) -> list[DueContract]:
    """List a chain's contracts that have an open run, or no run in the last 24 hours."""
    rows = await database.fetch(
        """
        SELECT k.account_id, k.address, k.receiver, k.forwarder IS NOT NULL AS is_factory,
            coalesce(n.next_block, k.deployed_block) AS start,
            n.status = 'running' AS is_open,
            n.run_id, n.first_block, n.last_block, n.next_block, n.differences, n.opened,
            n.address_id
        FROM chain_contract k
        JOIN provider_account a ON a.id = k.account_id AND a.livemode
        LEFT JOIN LATERAL (
            SELECT b.*, r.status, r.created_at
            FROM reconciliation_blocks b
            JOIN reconciliation_run r ON r.id = b.run_id
            WHERE b.account_id = k.account_id
            ORDER BY r.status = 'running' DESC, b.last_block DESC, b.first_block DESC
            LIMIT 1
        ) n ON true
        WHERE k.chain = $1 AND (n.run_id IS NULL OR n.status = 'running'
            OR n.created_at <= clock() - make_interval(hours => $2))
        ORDER BY k.account_id
        LIMIT $3
        """,
        chain,
        _DUE_HOURS,
        _CONTRACTS_MAX,
    )
    columns = (
        *("run_id", "first_block", "last_block", "next_block", "differences", "opened"),
        "address_id",
    )
    return [
        DueContract(
            account_id=row["account_id"],
            address=row["address"],
            receiver=row["receiver"],
            is_factory=row["is_factory"],
            next_block=row["start"],
            open_run=BlockRun(**{name: row[name] for name in columns}) if row["is_open"] else None,
        )
        for row in rows
    ]


async def find_last_block(database: Executor, chain: str) -> int | None:
    """Return the final block up to which all payments and refunds have been processed."""
    return await database.value(
        """
        SELECT least(u.block, coalesce((
            SELECT min(f.block) - 1 FROM chain_refund f
            WHERE f.chain = u.chain AND f.disposition IS NULL), u.block)) AS block
        FROM chain_cursor u
        WHERE u.chain = $1 AND u.halted IS NULL
        """,
        chain,
    )


async def add(tx: Tx, account_id: int, run: BlockRun, balances: Sequence[ReceiverBalance]) -> None:
    """Store a claimed run's block range and its receiver's balances."""
    await tx.fetch(
        """
        INSERT INTO reconciliation_blocks (run_id, account_id, first_block, last_block, next_block)
        VALUES ($1, $2, $3, $4, $3)
        """,
        run.run_id,
        account_id,
        run.first_block,
        run.last_block,
    )
    await tx.fetch(
        """
        INSERT INTO reconciliation_balance
            (run_id, currency, block, receiver, refunders, ledger, expected)
        SELECT $1, currency, $2, receiver::numeric, refunders::numeric, ledger::numeric,
            expected::numeric
        FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
            AS b (currency, receiver, refunders, ledger, expected)
        """,
        run.run_id,
        run.last_block,
        [balance.currency for balance in balances],
        [balance.receiver for balance in balances],
        [balance.refunders for balance in balances],
        [balance.ledger for balance in balances],
        [balance.expected for balance in balances],
    )


async def advance(tx: Tx, run: BlockRun) -> None:
    await tx.fetch(
        """
        UPDATE reconciliation_blocks
        SET next_block = $2, differences = $3, opened = $4, address_id = $5
        WHERE run_id = $1
        """,
        run.run_id,
        run.next_block,
        run.differences,
        run.opened,
        run.address_id,
    )


async def list_balances(database: Executor, run_id: UUID) -> list[ReceiverBalance]:
    rows = await database.fetch(
        """
        SELECT currency, block, trim_scale(receiver)::text AS receiver,
            trim_scale(refunders)::text AS refunders, trim_scale(ledger)::text AS ledger,
            trim_scale(expected)::text AS expected
        FROM reconciliation_balance
        WHERE run_id = $1
        ORDER BY currency
        """,
        run_id,
    )
    return [ReceiverBalance(**row) for row in rows]


async def sum_ledger(
    database: Executor, chain: str, receiver: bytes, block: int
) -> Mapping[str, LedgerSum]:
    """Sum a receiver's ledger accounts by currency, excluding money received after `block`."""
    rows = await database.fetch(
        """
        WITH account AS (
            SELECT k.account_id, k.forwarder, 'chain_receiver:' || k.account_id AS name
            FROM chain_contract k
            WHERE k.chain = $1 AND k.receiver = $2
        )
        SELECT currency, sum(amount)::text AS minor, bool_or(is_manual) AS has_manual_entries
        FROM (
            SELECT e.currency, CASE WHEN e.debit = a.name THEN e.amount ELSE -e.amount END
                AS amount, e.fact IN ('gateway_payout', 'adjustment') AS is_manual
            FROM ledger_entry e
            JOIN account a ON a.name IN (e.debit, e.credit)
            WHERE e.chain = $1
            UNION ALL
            SELECT c.currency, -c.amount_minor, false
            FROM account a
            JOIN chain_receipt r ON r.account_id = a.account_id AND r.block > $3
            JOIN capture c ON c.receipt_id = r.id
            WHERE a.forwarder IS NULL
            UNION ALL
            SELECT e.currency, CASE WHEN e.debit = a.name THEN -e.amount ELSE e.amount END, false
            FROM account a
            JOIN deposit_sweep w ON w.account_id = a.account_id AND w.block > $3
            JOIN ledger_entry e ON e.fact_id = w.id AND e.fact = 'sweep'
                AND a.name IN (e.debit, e.credit)
        ) moved
        GROUP BY currency
        LIMIT $4
        """,
        chain,
        receiver,
        block,
        _CONTRACTS_MAX,
    )
    return {
        row["currency"]: LedgerSum(
            minor=int(row["minor"]), has_manual_entries=row["has_manual_entries"]
        )
        for row in rows
    }


async def list_currencies(
    tx: Tx, account_id: int, first_block: int, last_block: int
) -> dict[bytes, str]:
    """Map token addresses to the currencies of our captures in these blocks."""
    rows = await tx.fetch(
        """
        SELECT DISTINCT r.token, c.currency
        FROM chain_receipt r
        JOIN capture c ON c.receipt_id = r.id
        WHERE r.account_id = $1 AND r.block BETWEEN $2 AND $3
        LIMIT $4
        """,
        account_id,
        first_block,
        last_block,
        _CONTRACTS_MAX,
    )
    return {row["token"]: row["currency"] for row in rows}


async def has_missing_lines(
    database: Executor, account_id: int, blocks: tuple[int, int], lines: Sequence[ProviderFileLine]
) -> bool:
    """Return whether `find_missing` would find a capture or refund without a line."""
    return await database.value(
        """
        SELECT EXISTS (
            SELECT FROM chain_receipt r
            JOIN capture c ON c.receipt_id = r.id
            WHERE r.account_id = $1 AND r.block BETWEEN $2 AND $3
                AND NOT EXISTS (SELECT FROM unnest($4::text[]) l WHERE l = c.reference)
        ) OR EXISTS (
            SELECT FROM chain_refund r
            JOIN refund f ON f.id = r.refund_id
            WHERE r.account_id = $1 AND r.block BETWEEN $2 AND $3 AND f.status = 'SUCCEEDED'
                AND NOT EXISTS (SELECT FROM unnest($5::uuid[]) l WHERE l = f.id)
        ) AS lacks
        """,
        account_id,
        *blocks,
        [line.reference for line in lines if line.type == "payment"],
        [line.our_id for line in lines if line.our_id is not None],
    )


async def find_missing(tx: Tx, scope: ReconciliationScope, blocks: tuple[int, int]) -> None:
    """Find captures and refunds without a line. `blocks` is `(first, last)`, inclusive."""
    accounts = list(scope.accounts)
    await tx.fetch(_FIND_MISSING_PAYMENTS, accounts, *scope.decimal_columns, *blocks)
    await tx.fetch(_FIND_MISSING_REFUNDS, accounts, *scope.decimal_columns, *blocks)


_IN_BLOCKS: LiteralString = "r.account_id = ANY($1::bigint[]) AND r.block BETWEEN $4 AND $5"
_FIND_MISSING_PAYMENTS = build_missing_payments(
    "chain_receipt r JOIN capture c ON c.receipt_id = r.id", _IN_BLOCKS, "r.block, r.log_index"
)
_FIND_MISSING_REFUNDS = build_missing_refunds(
    "chain_refund r JOIN refund f ON f.id = r.refund_id", _IN_BLOCKS, "r.block, r.log_index"
)
