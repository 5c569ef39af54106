"""Store merchants' statements, and read their lines and balances."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import LiteralString
from uuid import UUID

from payintent.accounting.model import Fact
from payintent.accounting.statement_model import Movement
from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import KeysetList, build


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementEntries:
    """The ledger entries in a statement; see `PENDING_CONDITION`."""

    first_entry: int
    last_entry: int
    created_before: datetime
    last_closed_entry: int
    closed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """An immutable statement. Amounts are in minor units, or a token's smallest units."""

    id: UUID
    merchant_id: int
    currency: str
    chain: str
    token_decimals: int | None
    number: int
    day: date
    time_zone: str
    opening_minor: int
    movements: Mapping[Movement, int]
    closing_minor: int
    entries: StatementEntries
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementLine:
    at: datetime
    fact: Fact
    fact_id: UUID
    payment_id: UUID | None
    net_minor: int
    fee_minor: int  # deducted from payments
    tax_minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantBalance:
    """The balance currently owed to a merchant; negative if the merchant owes money."""

    currency: str
    chain: str
    token_decimals: int | None
    amount_minor: int


#: `component` and `signed_amount` of an entry `e`: a change to account `$1`, or a capture's fee or
#: tax.
COMPONENT_COLUMNS: LiteralString = """
    CASE WHEN $1 IN (e.debit, e.credit) THEN 'payable'
        WHEN e.fact NOT IN ('capture', 'capture_adopted') THEN NULL
        WHEN 'fee_income' IN (e.debit, e.credit) THEN 'fee'
        WHEN 'tax_payable' IN (e.debit, e.credit) THEN 'tax' END AS component,
    CASE WHEN e.credit = $1 THEN e.amount WHEN e.debit = $1 THEN -e.amount
        WHEN e.credit IN ('fee_income', 'tax_payable') THEN e.amount ELSE -e.amount END
        AS signed_amount
"""
#: Selects merchant `$2`'s entries `e`, from entry number `$3` on, that were not yet in a statement
#: when statements were closed up to entry number `$4` and time `$5`.
PENDING_CONDITION: LiteralString = """
    e.merchant_id = $2 AND e.entry_number >= $3 AND (e.entry_number > $4 OR e.created_at >= $5)
"""
_SELECT: LiteralString = """
    SELECT s.id, s.merchant_id, s.currency, s.chain, s.number, s.day, s.time_zone,
        s.first_number AS first_entry, s.last_number AS last_entry, s.until_at AS created_before,
        s.closed_number AS last_closed_entry, s.closed_at, s.created_at,
        t.decimals AS token_decimals, s.opening_minor, s.payments_minor, s.fees_minor, s.tax_minor,
        s.refunds_minor, s.disputes_minor, s.adjustments_minor, s.payouts_minor, s.closing_minor
    FROM statement s
    LEFT JOIN chain_token t ON t.chain = s.chain AND t.symbol = s.currency
"""
_STATEMENTS = KeysetList(
    _SELECT,
    "s.id",
    merchant_id="s.merchant_id = {}",
    currency="s.currency = {}",
    since="s.day >= {}",
    until="s.day <= {}",
)

#: The balances of merchant `$2`; `$1` is the merchant's payable account.
_BALANCES: LiteralString = """
    WITH latest_statements AS (
        SELECT DISTINCT ON (s.currency, s.chain) s.currency, s.chain, s.closing_minor AS amount
        FROM statement s
        WHERE s.merchant_id = $2
        ORDER BY s.currency, s.chain, s.number DESC
    ), last_closing AS (
        SELECT next_number, closed_number, closed_at FROM statement_close
        WHERE merchant_id = $2
        UNION ALL
        SELECT 0, -1, '-infinity'
        ORDER BY closed_number DESC  -- both rows may have next_number 0
        LIMIT 1
    ), sums AS (
        SELECT currency, chain, sum(amount) AS amount
        FROM (
            SELECT currency, chain, amount FROM latest_statements
            UNION ALL
            SELECT e.currency, coalesce(e.chain, ''),
                CASE e.credit WHEN $1 THEN e.amount ELSE -e.amount END
            FROM ledger_entry e
            CROSS JOIN last_closing b
            WHERE e.merchant_id = $2 AND e.entry_number >= b.next_number
                AND (e.entry_number > b.closed_number OR e.created_at >= b.closed_at)
                AND $1 IN (e.debit, e.credit)
        ) amounts
        GROUP BY currency, chain
    )
    SELECT s.currency, s.chain, s.amount, t.decimals AS token_decimals
    FROM sums s
    LEFT JOIN chain_token t ON t.chain = s.chain AND t.symbol = s.currency
    ORDER BY s.currency, s.chain
"""
_LINES: LiteralString = f"""
    WITH lines AS (
        SELECT fact_id, fact, min(created_at) AS at, min(entry_number) AS first,
            sum(signed_amount) FILTER (WHERE component = 'payable') AS net,
            sum(signed_amount) FILTER (WHERE component = 'fee') AS fee,
            sum(signed_amount) FILTER (WHERE component = 'tax') AS tax
        FROM (SELECT e.fact_id, e.fact, e.created_at, e.entry_number, {COMPONENT_COLUMNS}
            FROM ledger_entry e
            WHERE {PENDING_CONDITION} AND e.entry_number <= $6 AND e.created_at < $7
            AND e.currency = $8 AND coalesce(e.chain, '') = $9) components
        WHERE component IS NOT NULL
        GROUP BY fact_id, fact
        ORDER BY first, fact_id, fact
        OFFSET $10 LIMIT $11
    )
    SELECT l.at, l.fact, l.fact_id, coalesce(l.net, 0) AS net, coalesce(l.fee, 0) AS fee,
        coalesce(l.tax, 0) AS tax,
        coalesce(c.payment_id, r.payment_id, d.payment_id, m.payment_id) AS payment_id
    FROM lines l
    LEFT JOIN capture c ON c.id = l.fact_id
    LEFT JOIN refund r ON r.id = l.fact_id
    LEFT JOIN dispute x ON x.id = l.fact_id
    LEFT JOIN capture d ON d.id = x.capture_id
    LEFT JOIN money_case m ON m.id = l.fact_id
    ORDER BY l.first, l.fact_id, l.fact
"""


async def find_latest(tx: Tx, merchant_id: int, currency: str, chain: str) -> Statement | None:
    row = await tx.row(
        _SELECT
        + "WHERE s.merchant_id = $1 AND s.currency = $2 AND s.chain = $3"
        + " ORDER BY s.number DESC LIMIT 1",
        merchant_id,
        currency,
        chain,
    )
    return _read_statement(row) if row else None


async def add(tx: Tx, new_statement: Statement) -> None:
    """Add a statement. Its opening balance must equal the previous closing balance."""
    await tx.fetch(
        """
        INSERT INTO statement (id, merchant_id, currency, chain, number, day, time_zone,
            opening_minor, payments_minor, fees_minor, tax_minor, refunds_minor, disputes_minor,
            adjustments_minor, payouts_minor, closing_minor, first_number, last_number, until_at,
            closed_number, closed_at)
        SELECT $1, $2, $3, $4, $5, $6, $7, m[1]::numeric, m[2]::numeric, m[3]::numeric,
            m[4]::numeric, m[5]::numeric, m[6]::numeric, m[7]::numeric, m[8]::numeric,
            m[9]::numeric, $9, $10, $11, $12, $13
        FROM (SELECT $8::text[] AS m) amounts
        """,
        new_statement.id,
        new_statement.merchant_id,
        new_statement.currency,
        new_statement.chain,
        new_statement.number,
        new_statement.day,
        new_statement.time_zone,
        [
            str(amount)
            for amount in (
                new_statement.opening_minor,
                *(new_statement.movements[movement] for movement in Movement),
                new_statement.closing_minor,
            )
        ],
        new_statement.entries.first_entry,
        new_statement.entries.last_entry,
        new_statement.entries.created_before,
        new_statement.entries.last_closed_entry,
        new_statement.entries.closed_at,
    )


async def get(database: Executor, statement_id: UUID) -> Statement | None:
    row = await database.row(_SELECT + "WHERE s.id = $1", statement_id)
    return _read_statement(row) if row else None


async def list_statements(
    database: Executor,
    limit: int,
    *,
    merchant_id: int | None = None,
    currency: str | None = None,
    since: date | None = None,
    until: date | None = None,
    before: UUID | None = None,
) -> list[Statement]:
    """List statements before an id, newest first."""
    rows = await _STATEMENTS.page(
        database,
        before,
        limit,
        merchant_id=merchant_id,
        currency=currency,
        since=since,
        until=until,
    )
    return [_read_statement(row) for row in rows]


async def list_lines(
    database: Executor, statement: Statement, offset: int, limit: int
) -> list[StatementLine]:
    """List a statement's lines, oldest first, after the first `offset` lines."""
    entries = statement.entries
    rows = await database.fetch(
        _LINES,
        f"merchant_payable:{statement.merchant_id}",
        statement.merchant_id,
        entries.first_entry,
        entries.last_closed_entry,
        entries.closed_at,
        entries.last_entry,
        entries.created_before,
        statement.currency,
        statement.chain,
        offset,
        limit,
    )
    return [
        build(
            StatementLine,
            row,
            fact=Fact(row["fact"]),
            net_minor=int(row["net"]),
            fee_minor=int(row["fee"]),
            tax_minor=int(row["tax"]),
        )
        for row in rows
    ]


async def list_balances(database: Executor, merchant_id: int) -> list[MerchantBalance]:
    """Return a merchant's balances: the last statement's closing balance plus later entries."""
    rows = await database.fetch(_BALANCES, f"merchant_payable:{merchant_id}", merchant_id)
    return [build(MerchantBalance, row, amount_minor=int(row["amount"])) for row in rows]


def _read_statement(row: Row) -> Statement:
    return build(
        Statement,
        row,
        opening_minor=int(row["opening_minor"]),
        movements={movement: int(row[f"{movement}_minor"]) for movement in Movement},
        closing_minor=int(row["closing_minor"]),
        entries=build(StatementEntries, row),
    )
