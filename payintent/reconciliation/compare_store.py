"""Compare a gateway's lines with our records, using temporary tables within a transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from typing import LiteralString
from uuid import UUID

from payintent.accounting.model import get_clearing_account, get_deposits_account
from payintent.cases.store import NewCase
from payintent.db.database import Executor, Tx
from payintent.gateways.settlement_reports import ProviderFileLine

_ACCOUNTS_MAX = 100_000
_STATEMENT_S = 30 * 60  # for a million lines, the usual statement timeout is too short
_LOCK_S = 30
#: Enough to sort and hash a million lines in a few batches instead of hundreds.
_WORK_MEMORY = "64MB"
_LINE_COLUMNS = ("number", "type", "reference", "our_id", "amount", "currency", "at")
_get_columns = attrgetter(*_LINE_COLUMNS)
#: A currency's decimals; expects the table of decimals to have the alias `u`. The default is
#: MINOR_DECIMALS_DEFAULT, repeated here because queries must be literals.
DECIMALS: LiteralString = "coalesce(u.decimals, 2)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationScope:
    """The accounts to compare, and the period that the file covers."""

    accounts: Sequence[int]
    since: datetime
    until: datetime
    decimals: Mapping[str, int]  # by currency; the default is MINOR_DECIMALS_DEFAULT
    chain: str | None = None  # set if the accounts are gateway contracts

    @property
    def clearing_accounts(self) -> list[str]:
        """The ledger accounts that hold these accounts' money."""
        return [get_clearing_account(account, self.chain) for account in self.accounts]

    @property
    def deposits_accounts(self) -> list[str]:
        """The ledger accounts that hold money at these accounts' deposit addresses."""
        return [get_deposits_account(account) for account in self.accounts]

    @property
    def decimal_columns(self) -> tuple[list[str], list[int]]:
        """`decimals` as columns for `unnest`."""
        return list(self.decimals), list(self.decimals.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationDifference:
    """A record that is missing from one side, or that differs between the sides."""

    type: str
    kind: str  # missing, extra, different, ledger or merchants
    reference: str | None
    their_amount: Decimal | None
    their_currency: str | None
    our_amount: Decimal | None
    our_currency: str | None
    at: datetime
    merchant_id: int | None
    payment_id: UUID | None
    session_id: UUID | None
    capture_id: UUID | None
    refund_id: UUID | None
    our_status: str | None


async def list_provider_accounts(database: Executor, provider: str) -> dict[int, bool]:
    """Map a provider's account ids to `livemode`. Accounts of gateway contracts are excluded."""
    rows = await database.fetch(
        """
        SELECT a.id, a.livemode
        FROM provider_account a
        WHERE a.provider = $1
            AND NOT EXISTS (SELECT FROM chain_contract c WHERE c.account_id = a.id)
        ORDER BY a.id
        LIMIT $2
        """,
        provider,
        _ACCOUNTS_MAX,
    )
    return {row["id"]: row["livemode"] for row in rows}


async def create_tables(tx: Tx) -> None:
    """Create the temporary tables, and raise the transaction's timeouts."""
    await tx.extend_timeouts(statement_s=_STATEMENT_S, lock_s=_LOCK_S)
    await tx.fetch("SELECT set_config('work_mem', $1, true)", _WORK_MEMORY)
    await tx.fetch(
        """
        CREATE TEMPORARY TABLE provider_line (
            number bigint NOT NULL,
            type text NOT NULL,
            reference text NOT NULL,
            our_id uuid,
            amount numeric NOT NULL,
            currency text NOT NULL,
            at timestamptz NOT NULL
        ) ON COMMIT DROP
        """
    )
    await tx.fetch(
        """
        CREATE TEMPORARY TABLE provider_difference (
            number bigint GENERATED ALWAYS AS IDENTITY,
            type text NOT NULL,
            kind text NOT NULL,
            reference text,
            their_amount numeric,
            their_currency text,
            our_amount numeric,
            our_currency text,
            at timestamptz NOT NULL,
            merchant_id bigint,
            payment_id uuid,
            session_id uuid,
            capture_id uuid,
            refund_id uuid,
            our_status text
        ) ON COMMIT DROP
        """
    )
    # Our captures and refunds that the file contains or should contain.
    await tx.fetch(
        """
        CREATE TEMPORARY TABLE provider_record (
            fact_id uuid NOT NULL,
            type text NOT NULL,
            currency text NOT NULL,
            amount numeric NOT NULL
        ) ON COMMIT DROP
        """
    )


async def load_lines(tx: Tx, lines: Sequence[ProviderFileLine]) -> None:
    await tx.copy("provider_line", _LINE_COLUMNS, map(_get_columns, lines))


async def analyze_lines(tx: Tx) -> None:
    """Update the planner's statistics. Call after loading lines."""
    await tx.fetch("ANALYZE provider_line")


async def list_duplicates(tx: Tx, limit: int) -> list[tuple[int, int]]:
    """List duplicate lines as pairs: the line numbers of the duplicate and the original."""
    await analyze_lines(tx)
    rows = await tx.fetch(
        """
        SELECT max(number) AS number, min(number) AS first
        FROM provider_line
        GROUP BY type, reference
        HAVING count(*) > 1
        ORDER BY 1
        LIMIT $1
        """,
        limit,
    )
    return [(row["number"], row["first"]) for row in rows]


async def find_times(tx: Tx) -> tuple[datetime | None, datetime | None]:
    """Return the earliest and latest times of the lines; both are None if there are no lines."""
    row = await tx.row("SELECT min(at) AS first, max(at) AS last FROM provider_line")
    assert row is not None  # noqa: S101 - an aggregate always returns a row
    return row["first"], row["last"]


async def compare_lines(tx: Tx, scope: ReconciliationScope) -> None:
    """Find lines that differ from our records or match none. Records of any date can match."""
    accounts = list(scope.accounts)
    await tx.fetch(_COMPARE_PAYMENTS, accounts, *scope.decimal_columns)
    await tx.fetch(_COMPARE_REFUNDS, accounts, *scope.decimal_columns)


async def find_missing(tx: Tx, scope: ReconciliationScope) -> None:
    """Find captures and refunds in the period that have no line."""
    accounts = list(scope.accounts)
    await tx.fetch(
        _FIND_MISSING_PAYMENTS, accounts, *scope.decimal_columns, scope.since, scope.until
    )
    await tx.fetch(
        _FIND_MISSING_REFUNDS, accounts, *scope.decimal_columns, scope.since, scope.until
    )


#: The planner assumes that most lines differ. LIMIT forces a lookup for each line that differs;
#: otherwise, all sessions and payments would be joined.
_COMPARE_PAYMENTS = f"""
    WITH matches AS (
        SELECT DISTINCT ON (l.number) l.number, l.reference, l.amount, l.currency, l.at,
            c.id AS capture_id, c.currency AS our_currency,
            c.amount_minor * 10::numeric ^ -{DECIMALS} AS our_amount,
            c.payment_id AS captured_payment_id, l.our_id
        FROM provider_line l
        LEFT JOIN capture c ON c.reference = l.reference AND c.account_id = ANY($1::bigint[])
        LEFT JOIN unnest($2::text[], $3::int[]) AS u (currency, decimals)
            ON u.currency = c.currency
        WHERE l.type = 'payment'
        ORDER BY l.number, c.currency = l.currency
            AND c.amount_minor * 10::numeric ^ -{DECIMALS} = l.amount DESC NULLS LAST
    ), ours AS (
        INSERT INTO provider_record (fact_id, type, currency, amount)
        SELECT capture_id, 'payment', our_currency, our_amount FROM matches
        WHERE capture_id IS NOT NULL
    )
    INSERT INTO provider_difference (type, kind, reference, their_amount, their_currency,
        our_amount, our_currency, at, merchant_id, payment_id, session_id, capture_id)
    SELECT 'payment', CASE WHEN j.capture_id IS NULL THEN 'extra' ELSE 'different' END,
        j.reference, j.amount, j.currency, j.our_amount, j.our_currency, j.at, p.merchant_id,
        coalesce(j.captured_payment_id, s.payment_id),
        CASE WHEN j.capture_id IS NULL THEN s.id END, j.capture_id
    FROM matches j
    LEFT JOIN LATERAL (
        SELECT id, payment_id FROM session
        WHERE id = j.our_id AND account_id = ANY($1::bigint[])
        LIMIT 1
    ) s ON true
    LEFT JOIN LATERAL (
        SELECT merchant_id FROM payment
        WHERE id = coalesce(j.captured_payment_id, s.payment_id)
        LIMIT 1
    ) p ON true
    WHERE j.capture_id IS NULL OR j.our_amount <> j.amount OR j.our_currency <> j.currency
    ORDER BY j.number
"""
#: A refund should have a single line. Another line means that money was returned twice. Refunds of
#: deposits are sent by the contract of `refund_account_id`.
_COMPARE_REFUNDS = f"""
    WITH matches AS (
        SELECT DISTINCT ON (l.number) l.number, l.reference, l.amount, l.currency, l.at, r.*
        FROM provider_line l
        LEFT JOIN LATERAL (
            SELECT f.id, f.status, f.merchant_id, f.payment_id, c.currency AS our_currency,
                f.reference IS NOT DISTINCT FROM l.reference AS is_named,
                f.amount_minor * 10::numeric ^ -{DECIMALS} AS our_amount
            FROM (
                SELECT * FROM refund WHERE reference = l.reference
                UNION
                SELECT * FROM refund WHERE id = l.our_id
            ) f
            JOIN capture c ON c.id = f.capture_id
            LEFT JOIN chain_contract k ON k.account_id = c.account_id
            LEFT JOIN unnest($2::text[], $3::int[]) AS u (currency, decimals)
                ON u.currency = c.currency
            WHERE coalesce(k.refund_account_id, c.account_id) = ANY($1::bigint[])
        ) r ON true
        WHERE l.type = 'refund'
        ORDER BY l.number, r.status = 'SUCCEEDED' DESC NULLS LAST,
            r.our_amount = l.amount AND r.our_currency = l.currency DESC NULLS LAST
    ), ranked AS (
        SELECT *, id IS NOT NULL AND row_number() OVER (PARTITION BY id
            ORDER BY is_named DESC, our_amount = amount AND our_currency = currency DESC,
                number) > 1 AS is_repeat
        FROM matches
    ), ours AS (
        INSERT INTO provider_record (fact_id, type, currency, amount)
        SELECT DISTINCT id, 'refund', our_currency, our_amount FROM matches
        WHERE status = 'SUCCEEDED'
    )
    INSERT INTO provider_difference (type, kind, reference, their_amount, their_currency,
        our_amount, our_currency, at, merchant_id, payment_id, refund_id, our_status)
    SELECT 'refund', CASE WHEN j.status = 'SUCCEEDED' AND NOT j.is_repeat THEN 'different'
            ELSE 'extra' END,
        j.reference, j.amount, j.currency, j.our_amount, j.our_currency, j.at, j.merchant_id,
        j.payment_id, j.id, j.status
    FROM ranked j
    WHERE j.status IS DISTINCT FROM 'SUCCEEDED' OR j.our_amount <> j.amount
        OR j.our_currency <> j.currency OR j.is_repeat
    ORDER BY j.number
"""


def build_missing_payments(
    records: LiteralString, condition: LiteralString, order: LiteralString
) -> LiteralString:
    """Build a statement that finds captures without a line.

    `records` must contain `capture c`; `condition` selects the captures that should have a line.
    """
    return f"""
        WITH missing AS (
            INSERT INTO provider_difference (type, kind, reference, our_amount, our_currency, at,
                merchant_id, payment_id, capture_id)
            SELECT 'payment', 'missing', c.reference,
                c.amount_minor * 10::numeric ^ -{DECIMALS}, c.currency, c.captured_at,
                p.merchant_id, c.payment_id, c.id
            FROM {records}
            LEFT JOIN unnest($2::text[], $3::int[]) AS u (currency, decimals)
                ON u.currency = c.currency
            LEFT JOIN payment p ON p.id = c.payment_id
            WHERE {condition}
                AND NOT EXISTS (SELECT FROM provider_line l
                    WHERE l.type = 'payment' AND l.reference = c.reference)
            ORDER BY {order}
            RETURNING capture_id, our_currency, our_amount
        )
        INSERT INTO provider_record (fact_id, type, currency, amount)
        SELECT capture_id, 'payment', our_currency, our_amount FROM missing
    """


def build_missing_refunds(
    records: LiteralString, condition: LiteralString, order: LiteralString
) -> LiteralString:
    """Build a statement that finds refunds without a line.

    `records` must contain `refund f`; `condition` selects the refunds that should have a line.
    """
    return f"""
        WITH missing AS (
            INSERT INTO provider_difference (type, kind, reference, our_amount, our_currency, at,
                merchant_id, payment_id, refund_id, our_status)
            SELECT 'refund', 'missing', coalesce(f.reference, f.id::text),
                f.amount_minor * 10::numeric ^ -{DECIMALS}, c.currency, f.updated_at,
                f.merchant_id, f.payment_id, f.id, f.status
            FROM {records}
            JOIN capture c ON c.id = f.capture_id
            LEFT JOIN unnest($2::text[], $3::int[]) AS u (currency, decimals)
                ON u.currency = c.currency
            WHERE f.status = 'SUCCEEDED' AND {condition}
                AND NOT EXISTS (SELECT FROM provider_line l
                    WHERE l.type = 'refund' AND l.our_id = f.id)
            ORDER BY {order}
            RETURNING refund_id, our_currency, our_amount
        )
        INSERT INTO provider_record (fact_id, type, currency, amount)
        SELECT refund_id, 'refund', our_currency, our_amount FROM missing
    """


_FIND_MISSING_PAYMENTS = build_missing_payments(
    "capture c",
    "c.account_id = ANY($1::bigint[]) AND c.captured_at BETWEEN $4 AND $5",
    "c.captured_at, c.id",
)
_FIND_MISSING_REFUNDS = build_missing_refunds(
    "refund f",
    """
    c.account_id = ANY($1::bigint[]) AND f.updated_at BETWEEN $4 AND $5
        AND NOT EXISTS (
            SELECT FROM provider_line l WHERE l.type = 'refund' AND l.reference = f.reference
        )
    """,
    "f.updated_at, f.id",
)


async def count_differences(tx: Tx) -> dict[tuple[str, str], int]:
    """Count differences by type and kind. The kind `lines` counts all lines of the type."""
    rows = await tx.fetch(
        """
        SELECT type, 'lines' AS kind, count(*) AS n FROM provider_line GROUP BY type
        UNION ALL
        SELECT type, kind, count(*) FROM provider_difference GROUP BY type, kind
        LIMIT 40
        """
    )
    return {(row["type"], row["kind"]): row["n"] for row in rows}


async def list_differences(tx: Tx, limit: int) -> list[ReconciliationDifference]:
    """List up to `limit` differences: lines in file order, then missing records."""
    rows = await tx.fetch(
        """
        SELECT type, kind, reference, their_amount, their_currency, our_amount, our_currency, at,
            merchant_id, payment_id, session_id, capture_id, refund_id, our_status
        FROM provider_difference
        ORDER BY number
        LIMIT $1
        """,
        limit,
    )
    return [ReconciliationDifference(**row) for row in rows]


async def request_inquiries(tx: Tx) -> int:
    """Schedule immediate inquiries for unfinished sessions and refunds that are in the file.

    Returns the number of inquiries. Locked rows are skipped, because they are being processed.
    """
    sessions = await tx.fetch(
        """
        UPDATE session
        SET inquire_at = clock()
        WHERE id IN (
            SELECT s.id
            FROM session s
            JOIN provider_difference d ON d.session_id = s.id
            WHERE s.life <> 'ended'
            FOR NO KEY UPDATE OF s SKIP LOCKED
        )
        RETURNING id
        """
    )
    refunds = await tx.fetch(
        """
        UPDATE refund
        SET next_at = clock()
        WHERE id IN (
            SELECT r.id
            FROM refund r
            JOIN provider_difference d ON d.refund_id = r.id
            WHERE d.kind = 'extra' AND r.step = 'sent'
            FOR NO KEY UPDATE OF r SKIP LOCKED
        )
        RETURNING id
        """
    )
    return len(sessions) + len(refunds)


async def count_new_cases(tx: Tx, cases: Sequence[NewCase]) -> int:
    """Count the cases that `cases.open_cases` would open. Existing cases are not counted."""
    return await tx.value(
        """
        SELECT count(*) AS n
        FROM (
            SELECT session_id, capture_id, refund_id, subject
            FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[])
                AS c (session_id, capture_id, refund_id, subject)
            EXCEPT
            SELECT session_id, capture_id, refund_id, subject
            FROM money_case
            WHERE kind = 'RECONCILIATION' AND receipt_id IS NULL
        ) new
        """,
        [case.origin.session_id for case in cases],
        [case.capture_id for case in cases],
        [case.refund_id for case in cases],
        [case.subject for case in cases],
    )
