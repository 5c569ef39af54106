"""Cases as their merchant may read them: listed by id, newest first."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.domain.case import CaseKind
from payintent.storage.cases import CaseDispute
from payintent.storage.database import Executor, Row

_LAST = UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFilter:
    """Which of a merchant's cases to list; `before` is where the last page ended."""

    merchant_id: int
    status: str | None = None
    kind: CaseKind | None = None
    payment_id: UUID | None = None
    before: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantCase:
    """A case without the details between the operator and a gateway."""

    id: UUID
    kind: str
    status: str
    payment_id: UUID | None
    currency: str | None
    amount_minor: int | None  # smallest units
    token_decimals: int | None  # of a transfer on a chain, where its token is one we take
    on_chain: bool
    opened_at: datetime
    closed_at: datetime | None
    dispute: CaseDispute | None


async def page(database: Executor, wanted: CaseFilter, limit: int) -> list[MerchantCase]:
    """List a page of cases."""
    rows = await database.fetch(
        """
        SELECT m.id, m.kind, m.status, m.payment_id, m.opened_at, m.closed_at,
            coalesce(d.currency, c.currency) AS currency,
            coalesce(d.amount_minor, c.amount_minor) AS amount_minor,
            t.decimals AS token_decimals, r.id IS NOT NULL AS on_chain,
            d.reference, d.state, d.funds, d.reason, d.respond_by
        FROM money_case m
        LEFT JOIN dispute d ON d.case_id = m.id
        LEFT JOIN capture c ON c.id = m.capture_id
        LEFT JOIN chain_receipt r ON r.id = c.receipt_id
        LEFT JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
        WHERE m.merchant_id = $1 AND m.id < $2
            AND (m.status = $3 OR $3::text IS NULL)
            AND (m.kind = $4 OR $4::text IS NULL)
            AND (m.payment_id = $5 OR $5::uuid IS NULL)
        ORDER BY m.id DESC
        LIMIT $6
        """,
        wanted.merchant_id,
        wanted.before or _LAST,
        wanted.status,
        wanted.kind,
        wanted.payment_id,
        limit,
    )
    return [_case(row) for row in rows]


def _case(row: Row) -> MerchantCase:
    dispute = CaseDispute(
        row["reference"], row["state"], row["funds"], row["reason"], row["respond_by"]
    )
    amount = row["amount_minor"]
    return MerchantCase(
        id=row["id"],
        kind=row["kind"],
        status=row["status"],
        payment_id=row["payment_id"],
        currency=row["currency"],
        amount_minor=None if amount is None else int(amount),
        token_decimals=row["token_decimals"],
        on_chain=row["on_chain"],
        opened_at=row["opened_at"],
        closed_at=row["closed_at"],
        dispute=dispute if row["state"] else None,
    )
