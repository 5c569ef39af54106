"""Cases as their merchant may read them."""

from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from payintent.domain.case import CaseKind
from payintent.storage.cases import CaseDispute
from payintent.storage.database import Executor, Row
from payintent.storage.lists import KeysetList
from payintent.storage.rows import build


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFilter:
    merchant_id: int
    status: str | None = None
    kind: CaseKind | None = None
    payment_id: UUID | None = None
    before: UUID | None = None  # the last case of the previous page


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantCase:
    """A case without the details that are internal to the operator."""

    id: UUID
    kind: str
    status: str
    payment_id: UUID | None
    currency: str | None
    amount_minor: int | None  # smallest units
    token_decimals: int | None  # of a configured token on a chain
    on_chain: bool
    opened_at: datetime
    closed_at: datetime | None
    dispute: CaseDispute | None


_CASES = KeysetList(
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
    """,
    "m.id",
    "m.merchant_id = {merchant_id}",
    status="m.status = {}",
    kind="m.kind = {}",
    payment_id="m.payment_id = {}",
)


async def page(database: Executor, criteria: CaseFilter, limit: int) -> list[MerchantCase]:
    rows = await _CASES.page(database, criteria.before, limit, **asdict(criteria))
    return [_from_row(row) for row in rows]


def _from_row(row: Row) -> MerchantCase:
    amount = row["amount_minor"]
    return build(
        MerchantCase,
        row,
        amount_minor=None if amount is None else int(amount),
        dispute=build(CaseDispute, row) if row["state"] else None,
    )
