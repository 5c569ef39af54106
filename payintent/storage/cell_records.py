"""The cells that an installation has, as the control database knows them, and which one this is."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.storage.connect_errors import RefusedConnectionError
from payintent.storage.database import Executor, Tx
from payintent.storage.driver import NO_PERMISSION, OLD_SCHEMA, Connection

_CELLS_MAX = 1_024
_UNENDED = (
    "payments",
    "sessions",
    "refunds",
    "cases",
    "disputes",
    "deliveries",
    "mails",
    "callbacks",
    "chain_logs",
    "approvals",
    "balances",
    "transfers",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRecord:
    """A cell: `adding`, `open` for merchants, `draining` where none come any more, or `closed`."""

    number: int
    state: str
    added_at: datetime


@dataclass(frozen=True, slots=True)
class Installation:
    """Which cell a database is, and of which installation."""

    cell: int
    id: UUID


async def read_installation(database: Executor) -> Installation:
    """Read which cell a database is; its first opening has said so."""
    row = await database.row("SELECT cell, id FROM installation LIMIT 1")
    assert row is not None  # noqa: S101 - written with the fingerprint of the pepper
    return Installation(row["cell"], row["id"])


async def list_cells(database: Executor) -> list[CellRecord]:
    """List the cells of the installation by their numbers."""
    rows = await database.fetch(
        "SELECT number, state, added_at FROM cell ORDER BY number LIMIT $1", _CELLS_MAX
    )
    return [CellRecord(**row) for row in rows]


async def pick_cells(control: Executor, numbers: Sequence[int]) -> set[int]:
    """Return those of some numbers that are cells of the installation, in whatever state."""
    rows = await control.fetch(
        "SELECT number FROM cell WHERE number = ANY($1::smallint[]) LIMIT $2",
        list(numbers),
        _CELLS_MAX,
    )
    return {row["number"] for row in rows}


async def get_state(database: Executor, number: int) -> str | None:
    """Return the state of a cell; a transaction that reads it keeps it so until it ends."""
    row = await database.row("SELECT state FROM cell WHERE number = $1 FOR SHARE", number)
    return row["state"] if row else None


async def add(control: Tx, number: int) -> bool:
    """Add a cell that is not open yet; False where it is there."""
    row = await control.row(
        "INSERT INTO cell (number, state) VALUES ($1, 'adding') "
        "ON CONFLICT (number) DO NOTHING RETURNING number",
        number,
    )
    return row is not None


async def change_state(control: Executor, number: int, before: str, after: str) -> CellRecord:
    """Bring a cell from one state to another; `CONFLICT` where it is in neither."""
    row = await control.row(
        """
        UPDATE cell
        SET state = $3
        WHERE number = $1 AND state IN ($2, $3)
        RETURNING number, state, added_at
        """,
        number,
        before,
        after,
    )
    if row is None:
        state = await get_state(control, number)
        if state is None:
            raise RefusedError(ErrorCode.NOT_FOUND, f"no cell {number}")
        raise RefusedError(ErrorCode.CONFLICT, f"cell {number} is {state}, not {before}")
    return CellRecord(**row)


async def claim(cell: Executor, number: int, control: Executor) -> None:
    """Let an empty database be a cell of control's installation."""
    of_control = await control.row("SELECT id, pepper_mark FROM installation LIMIT 1")
    assert of_control is not None  # noqa: S101 - control is open
    await cell.fetch(
        """
        INSERT INTO installation (id, pepper_mark, cell)
        VALUES ($1, $2, $3)
        ON CONFLICT (only_one) DO NOTHING
        """,
        of_control["id"],
        of_control["pepper_mark"],
        number,
    )


async def find_installation(database: Executor) -> Installation | None:
    """Read which cell a database is; None where it is of no installation yet."""
    row = await database.row("SELECT cell, id FROM installation LIMIT 1")
    return Installation(row["cell"], row["id"]) if row else None


async def list_migrations(database: Executor) -> set[int]:
    """List the numbers of the migrations that a database has."""
    rows = await database.fetch("SELECT number FROM schema_migration ORDER BY number LIMIT 10000")
    return {row["number"] for row in rows}


async def list_rights(database: Executor) -> set[str]:
    """List what this process may do with each table."""
    rows = await database.fetch(
        """
        SELECT r.name || ' ' || c.relname AS may
        FROM pg_class AS c
        CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r (name)
        WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
            AND has_table_privilege(c.oid, r.name)
        ORDER BY 1
        LIMIT 10000
        """
    )
    return {row["may"] for row in rows}


async def has_rows(database: Executor) -> bool:
    """Tell whether a database has payments, money or merchants."""
    row = await database.row(
        """
        SELECT EXISTS (SELECT FROM merchant) OR EXISTS (SELECT FROM payment)
            OR EXISTS (SELECT FROM capture) OR EXISTS (SELECT FROM ledger_entry)
            OR EXISTS (SELECT FROM money_case) OR EXISTS (SELECT FROM idempotency)
            OR EXISTS (SELECT FROM provider_account) AS has
        """
    )
    return row is not None and row["has"]


async def count_merchants(control: Executor, number: int) -> int:
    """Count the merchants whose new payments are in a cell beside cell 0.

    Those that leave it count too, until the move has waited for the last creates.
    """
    row = await control.row(
        """
        SELECT count(*) AS n
        FROM merchant_cell AS p
        WHERE p.until IS NULL AND (p.cell = $1 OR p.opened_at IS NULL AND EXISTS (
            SELECT
            FROM merchant_cell AS f
            WHERE f.merchant_id = p.merchant_id AND f.until = p.since AND f.cell = $1))
        """,
        number,
    )
    return row["n"] if row else 0


async def list_unended(cell: Executor) -> dict[str, int]:
    """Count what is unended in a cell, by what it is; what has ended is left out."""
    row = await cell.row(
        """
        SELECT
            (SELECT count(*) FROM payment WHERE status IN ('PENDING', 'PROCESSING')) AS payments,
            (SELECT count(*) FROM session WHERE life <> 'ended') AS sessions,
            (SELECT count(*) FROM refund WHERE step <> 'ended') AS refunds,
            (SELECT count(*) FROM money_case WHERE status = 'OPEN') AS cases,
            (SELECT count(*) FROM dispute WHERE state IN ('inquiry', 'open', 'under_review'))
                AS disputes,
            (SELECT count(*) FROM delivery WHERE state = 'pending') AS deliveries,
            (SELECT count(*) FROM mail) AS mails,
            (SELECT count(*) FROM callback WHERE applied_at IS NULL) AS callbacks,
            (SELECT count(*) FROM chain_refund WHERE disposition IS NULL) AS chain_logs,
            (SELECT count(*) FROM proposal WHERE status = 'WAITING') AS approvals,
            (SELECT count(*) FROM (
                SELECT account
                FROM (
                    SELECT debit AS account, currency, chain, amount FROM ledger_entry
                    UNION ALL
                    SELECT credit, currency, chain, -amount FROM ledger_entry
                ) AS sides
                WHERE account LIKE 'merchant_payable:%' OR account LIKE '%_reserve:%'
                    OR account LIKE 'suspense%'
                GROUP BY account, currency, chain
                HAVING sum(amount) <> 0
            ) AS balances) AS balances,
            (SELECT count(*) FROM cell_transfer WHERE arrived_at IS NULL) AS transfers
        """
    )
    assert row is not None  # noqa: S101 - the statement always returns one row
    return {name: row[name] for name in _UNENDED if row[name]}


def proving_cell(number: int, installation_id: UUID) -> Callable[[Connection], Awaitable[None]]:
    """Make a check of new connections: a wrong address must not get another cell's payments."""

    async def prove(connection: Connection) -> None:
        try:
            row = await connection.fetchrow("SELECT cell, id FROM installation LIMIT 1")
        except OLD_SCHEMA as error:
            raise ConnectionError("the schema is missing or old; run payintent migrate") from error
        except NO_PERMISSION as error:
            raise RefusedConnectionError(str(error).partition("\n")[0]) from error
        if row is None or row["id"] != installation_id:
            raise RefusedConnectionError("its database is of another installation, or of none yet")
        if row["cell"] != number:
            raise RefusedConnectionError(f"its database is that of cell {row['cell']}")

    return prove
