"""Cases: money that no payment may own, and what needs a person. Listed, shown, resolved."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from payintent.domain import ids
from payintent.domain.errors import Code, Refused
from payintent.domain.settlement import CaseKind
from payintent.operation.checks import check_listed, check_merchant, told
from payintent.operation.desk import Change, Desk, Read
from payintent.storage import cases
from payintent.storage.cases import OpenCase
from payintent.storage.database import Tx

_NOTE_MAX = 500
_CLOSED = {"accept": "ACCEPTED", "dismiss": "DISMISSED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseView:
    """A case as people read it."""

    id: str
    kind: str
    status: str
    merchant_id: int | None
    payment_id: str | None
    session_id: str | None
    opened_at: datetime
    closed_at: datetime | None
    closed_by: str | None
    note: str
    account_id: int | None
    reference: str | None
    currency: str | None
    amount_minor: str | None
    chain: str | None
    tx_hash: str | None
    payer: str | None
    token: str | None


class ListCases(Read[list[CaseView]], frozen=True, kw_only=True):
    """List cases, newest first; open ones where no status is named."""

    action: ClassVar[str] = "case.list"
    merchant_id: int | None = None
    status: Literal["OPEN", "REFUNDED", "ACCEPTED", "DISMISSED", "ALL"] = "OPEN"
    kind: CaseKind | None = None
    limit: int = 20

    async def read(self, desk: Desk) -> list[CaseView]:
        """Give them."""
        check_listed(self.limit)
        await check_merchant(desk.database, self.merchant_id)
        status = None if self.status == "ALL" else self.status
        found = await cases.listed(desk.database, self.merchant_id, status, self.kind, self.limit)
        return [_view(one) for one in found]


class ShowCase(Read[CaseView], frozen=True, kw_only=True):
    """Show one case."""

    action: ClassVar[str] = "case.show"
    case_id: str

    async def read(self, desk: Desk) -> CaseView:
        """Give it."""
        parsed = ids.parse(ids.CASE, self.case_id)
        found = await cases.by_id(desk.database, parsed) if parsed else None
        if found is None:
            raise Refused(Code.NOT_FOUND, f"no case {told(self.case_id)}")
        return _view(found)


class ResolveCase(Change[CaseView], frozen=True, kw_only=True):
    """Close a case: accept the money, or dismiss it; no payment changes, no event goes out."""

    action: ClassVar[str] = "case.resolve"
    case_id: str
    resolution: Literal["accept", "dismiss"]
    note: str

    async def check(self, desk: Desk) -> None:
        """Refuse a resolution without a word."""
        del desk
        if not 1 <= len(self.note.strip()) <= _NOTE_MAX or "\x00" in self.note:
            raise Refused(Code.BAD_REQUEST, f"note has 1 to {_NOTE_MAX} characters")

    async def apply(self, desk: Desk, tx: Tx) -> CaseView:
        """Write it; a closed case stays closed."""
        parsed = ids.parse(ids.CASE, self.case_id)
        found = await cases.by_id(tx, parsed) if parsed else None
        if found is None:
            raise Refused(Code.NOT_FOUND, f"no case {told(self.case_id)}")
        status = _CLOSED[self.resolution]
        if not await cases.close(tx, found.id, status, desk.who, self.note):
            raise Refused(Code.CONFLICT, f"the case is {found.status} already")
        closed = await cases.by_id(tx, found.id)
        assert closed is not None  # noqa: S101 - it was there a moment ago
        return _view(closed)

    def about(self, result: CaseView) -> int | None:
        """Name the case's merchant, if it has one."""
        return result.merchant_id


def _view(case: OpenCase) -> CaseView:
    return CaseView(
        id=ids.text(ids.CASE, case.id),
        kind=case.kind,
        status=case.status,
        merchant_id=case.merchant_id,
        payment_id=case.payment_id and ids.text(ids.PAYMENT, case.payment_id),
        session_id=case.session_id and ids.text(ids.SESSION, case.session_id),
        opened_at=case.opened_at,
        closed_at=case.closed_at,
        closed_by=case.closed_by,
        note=case.note,
        account_id=case.account_id,
        reference=case.reference,
        currency=case.currency,
        amount_minor=case.amount_minor,
        chain=case.chain,
        tx_hash=_hex(case.tx_hash),
        payer=_hex(case.payer),
        token=_hex(case.token),
    )


def _hex(value: bytes | None) -> str | None:
    return None if value is None else f"0x{value.hex()}"
