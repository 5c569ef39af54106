"""What a case's session expected, and what came."""

from dataclasses import dataclass
from uuid import UUID

from payintent.storage.database import Executor


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseMoney:
    """The total of the session's quote, and the capture or transfer; None: not known."""

    expected_amount: str | None
    expected_currency: str | None
    expected_chain: str | None
    came_minor: str | None  # smallest units
    came_currency: str | None  # of a token that we do not take: its address
    came_chain: str | None
    came_decimals: int | None  # of a token that we take


async def get(database: Executor, case_id: UUID) -> CaseMoney:
    """Read the money of a case that there is."""
    row = await database.row(
        """
        SELECT s.total_amount AS expected_amount, s.currency AS expected_currency,
            s.chain AS expected_chain, coalesce(c.amount_minor, r.amount)::text AS came_minor,
            coalesce(t.symbol, '0x' || encode(r.token, 'hex'), c.currency) AS came_currency,
            r.chain AS came_chain, t.decimals AS came_decimals
        FROM money_case m
        LEFT JOIN capture c ON c.id = m.capture_id
        LEFT JOIN chain_receipt r ON r.id = coalesce(m.receipt_id, c.receipt_id)
        LEFT JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
        LEFT JOIN session s ON s.id = coalesce(m.session_id, c.session_id)
        WHERE m.id = $1
        """,
        case_id,
    )
    assert row is not None  # noqa: S101 - cases are never deleted
    return CaseMoney(**row)
