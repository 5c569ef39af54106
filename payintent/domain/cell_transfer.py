"""What a cell owes a merchant that was moved, carried to the cell that it is in now. Pure."""

from dataclasses import dataclass
from uuid import UUID

from payintent.domain.ledger import CELL_CLEARING, Fact, LedgerEntry, payable


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTransfer:
    """What a merchant's former cell owed it, carried to the cell that it is in now."""

    id: UUID
    merchant_id: int
    amount_minor: int  # less than 0: the merchant owed it
    currency: str  # or the token's symbol
    chain: str | None  # of a token
    from_cell: int
    to_cell: int


def transfer_entry(transfer: CellTransfer, cell: int) -> LedgerEntry:
    """Record what was carried from a cell to another, in the ledger of one of them."""
    is_former = cell == transfer.from_cell
    sides = (payable(transfer.merchant_id), CELL_CLEARING)
    debit, credit = sides if is_former == (transfer.amount_minor > 0) else reversed(sides)
    return LedgerEntry(
        fact=Fact.CELL_TRANSFER,
        fact_id=transfer.id,
        leg="former" if is_former else "present",
        merchant_id=transfer.merchant_id,
        debit=debit,
        credit=credit,
        amount_minor=abs(transfer.amount_minor),
        currency=transfer.currency,
        chain=transfer.chain,
    )
