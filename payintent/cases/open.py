"""Opens cases: money or a contradiction that needs manual review."""

from uuid import UUID

from payintent.cases import store as case_store
from payintent.cases.model import CaseKind
from payintent.cases.store import NewCase
from payintent.db.database import Tx
from payintent.payments.captures_store import MoneyOrigin


async def open_case(
    tx: Tx,
    kind: CaseKind,
    origin: MoneyOrigin,
    *,
    capture_id: UUID | None = None,
    refund_id: UUID | None = None,
    subject: str | None = None,
    note: str = "",
) -> UUID | None:
    """Open a case; return None if such a case exists for the same objects."""
    case = NewCase(
        id=tx.id_generator.new_id(),
        kind=kind,
        origin=origin,
        capture_id=capture_id,
        refund_id=refund_id,
        subject=subject,
        note=note,
    )
    return case.id if await case_store.open_cases(tx, [case]) else None
