"""The amount that a case's session expected, and the amount that arrived."""

from dataclasses import dataclass
from uuid import UUID

from payintent.domain.case import CaseAmount
from payintent.storage.database import Executor


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseMoney:
    expected: CaseAmount | None  # the total of the session's quote
    came: CaseAmount | None  # the capture or the transfer


async def get(database: Executor, case_id: UUID) -> CaseMoney:
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
    expected = None
    if row["expected_amount"] is not None and row["expected_currency"] is not None:
        expected = CaseAmount(
            amount=row["expected_amount"],
            currency=row["expected_currency"],
            chain=row["expected_chain"],
        )
    came = CaseAmount.from_smallest_units(
        row["came_minor"], row["came_currency"], row["came_chain"], row["came_decimals"]
    )
    return CaseMoney(expected=expected, came=came)
