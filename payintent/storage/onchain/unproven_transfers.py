"""Cases of logs that one endpoint told and that nobody could prove."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from payintent.domain.case import CaseKind
from payintent.storage.database import Executor, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class UnprovenCase:
    """A case for one log; of a session and its payment where the log names one."""

    id: UUID
    chain: str
    tx_hash: bytes
    log_index: int
    session_id: UUID | None

    @property
    def subject(self) -> str:
        """Name the log, the same at every look."""
        return _subject(self.chain, self.tx_hash, self.log_index)


async def open_case(tx: Tx, case: UnprovenCase) -> bool:
    """Open a case; False where the log has one already."""
    row = await tx.row(
        """
        INSERT INTO money_case
            (id, kind, subject, merchant_id, payment_id, session_id, opened_at)
        SELECT $1, $2, $3, p.merchant_id, p.id, s.id, clock()
        FROM (VALUES ($4::uuid)) AS about (session_id)
        LEFT JOIN session s ON s.id = about.session_id
        LEFT JOIN payment p ON p.id = s.payment_id
        ON CONFLICT ON CONSTRAINT money_case_once DO NOTHING
        RETURNING id
        """,
        case.id,
        CaseKind.RECONCILIATION,
        case.subject,
        case.session_id,
    )
    return row is not None


async def count_open(database: Executor, chain: str) -> int:
    """Count a chain's open cases of this kind."""
    row = await database.row(
        "SELECT count(*) AS n FROM money_case WHERE status = 'OPEN' AND subject LIKE $1",
        f"{_PREFIX} {chain} %",
    )
    assert row is not None  # noqa: S101 - a count is always one row
    return row["n"]


async def close_proven(tx: Tx, chain: str, logs: Sequence[tuple[bytes, int]]) -> None:
    """Close the cases of logs (transaction, index) that are proven by now."""
    await tx.fetch(
        """
        UPDATE money_case
        SET status = 'DISMISSED', closed_at = clock(), closed_by = 'policy:log_proven',
            note = concat_ws('; ', nullif(note, ''), 'its log is proven')
        WHERE status = 'OPEN' AND subject = ANY($1::text[])
        """,
        [_subject(chain, tx_hash, log_index) for tx_hash, log_index in logs],
    )


_PREFIX = "unproven log on"


def _subject(chain: str, tx_hash: bytes, log_index: int) -> str:
    return f"{_PREFIX} {chain} 0x{tx_hash.hex()} {log_index}"
