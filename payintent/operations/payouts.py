"""Payouts: what the operator paid to merchants, recorded by hand or from a file, and reversed."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.domain.errors import (
    BadRequestError,
    ConflictError,
    NotFoundError,
    RefusedError,
    UnprocessableError,
)
from payintent.domain.ledger import Payout, payout_entry
from payintent.domain.money import format_smallest_units
from payintent.domain.operator import Role
from payintent.operations.amounts import read_amount_minor
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.fields import ListLimit, MerchantId, OfMerchantId, argument, option
from payintent.operations.validation import (
    check_list_limit,
    check_merchant,
    check_name,
    check_note,
    quote_input,
    read_day,
    require_merchant,
)
from payintent.storage import ledger, payouts
from payintent.storage.database import Executor, Tx
from payintent.storage.payouts import AnyPayout, NewPayout, PayoutFilter, PayoutRecord, PayoutTable

_REFERENCE_MAX = 200
_LINES_MAX = 1_000
_HEADER = ["merchant", "amount", "currency", "chain", "reference", "paid_on"]
_NUMBER = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class PayoutView:
    id: UUID
    merchant_id: int
    amount: str | None  # None: the decimals of its token are unknown
    amount_minor: str
    currency: str
    chain: str | None
    reference: str
    paid_on: date
    recorded_by: str
    created_at: datetime
    reversed_at: datetime | None
    reversed_by: str | None
    reversal_note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedPayouts:
    """How many payouts of a file were recorded, and how many had been before."""

    recorded: int
    recorded_before: int


class RecordPayout(ChangeOperation[PayoutView], frozen=True, kw_only=True):
    """Record what was paid to a merchant: never more than it is owed. Nothing is paid by it."""

    action: ClassVar[str] = "payout.record"
    needs_role: ClassVar[Role] = Role.FINANCE
    merchant_id: MerchantId
    amount: Annotated[str, argument("Such as 1590.00.")]
    currency: Annotated[str, option("Such as THB, or a token's symbol.")]
    chain: Annotated[str | None, option("Of a token.")] = None
    reference: Annotated[str, option("The bank's, or the transaction's; recorded once.")]
    paid_on: Annotated[str | None, option("The day; left out: today, UTC.")] = None

    async def apply(self, context: OperationContext, tx: Tx) -> PayoutView:
        """Record the payout; raise `CONFLICT` if its reference is recorded."""
        new = await _new_payout(context, tx, self)
        await payouts.lock_payable(tx, self.merchant_id)
        if await payouts.TABLE.find_standing(tx, self.merchant_id, self.reference):
            raise ConflictError(f"a payout {quote_input(self.reference)} is recorded already")
        await _record(tx, new)
        return _view(await require_payout(tx, payouts.TABLE, new.payout.id))

    def audit_details(self, result: PayoutView) -> Mapping[str, object]:
        return {"id": str(result.id)}


class ImportPayouts(ChangeOperation[ImportedPayouts], frozen=True, kw_only=True):
    """Record the payouts of a CSV file, all or none; those that are recorded are left as they are.

    A merchant has each reference once in it.
    Its first line is `merchant,amount,currency,chain,reference,paid_on`.
    """

    action: ClassVar[str] = "payout.import"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    lines: Annotated[
        list[str],
        argument("A CSV file, or - for standard input.", metavar="FILE", is_file=True),
    ]

    async def changes(self, context: OperationContext) -> list[str]:
        return [f"{len(_read_lines(self.lines))} payouts are recorded, but for those that are"]

    async def check(self, context: OperationContext) -> None:
        _read_lines(self.lines)

    async def apply(self, context: OperationContext, tx: Tx) -> ImportedPayouts:
        """Record the payouts in the order of the file; a line that is refused refuses all."""
        records = _read_lines(self.lines)
        merchant_ids = sorted({record.merchant_id for record in records.values()})
        for merchant_id in merchant_ids:
            await require_merchant(tx, merchant_id)
        for merchant_id in merchant_ids:
            await payouts.lock_payable(tx, merchant_id)
        recorded = 0
        for number, record in records.items():
            try:
                recorded += await _import(context, tx, record)
            except RefusedError as refused:
                raise RefusedError(refused.code, f"line {number}: {refused.message}") from refused
        return ImportedPayouts(recorded=recorded, recorded_before=len(records) - recorded)

    def audit_details(self, result: ImportedPayouts) -> Mapping[str, object]:
        return {"recorded": result.recorded, "recorded_before": result.recorded_before}


class ReversePayout(ChangeOperation[PayoutView], frozen=True, kw_only=True):
    """Enter that a payout never went or came back: its merchant is owed the amount again."""

    action: ClassVar[str] = "payout.reverse"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    payout_id: Annotated[UUID, argument("As `payout list` has it.")]
    note: Annotated[str, option("Kept with the payout; left out: the reason.", or_reason=True)]

    async def check(self, context: OperationContext) -> None:
        check_note(self.note)

    async def apply(self, context: OperationContext, tx: Tx) -> PayoutView:
        payout = await reverse_payout(tx, payouts.TABLE, self.payout_id, context.who, self.note)
        await ledger.add(tx, [payout_entry(payout, reversal=True)])
        return _view(await require_payout(tx, payouts.TABLE, payout.id))


class ListPayouts(ReadOperation[list[PayoutView]], frozen=True, kw_only=True):
    """List payouts, newest first."""

    action: ClassVar[str] = "payout.list"
    columns = (
        *("id", "merchant_id", "amount", "currency", "reference", "paid_on", "recorded_by"),
        "reversed_at",
    )
    merchant_id: OfMerchantId = None
    currency: Annotated[str | None, option("Of one currency or token, such as THB.")] = None
    before: Annotated[
        UUID | None, option("The next page: payouts before this one, the last of a page.")
    ] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[PayoutView]:
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        wanted = PayoutFilter(owner_id=self.merchant_id, currency=self.currency, before=self.before)
        records = await payouts.TABLE.list_page(context.reading, wanted, self.limit)
        return list(map(_view, records))


async def _import(context: OperationContext, tx: Tx, record: RecordPayout) -> bool:
    """Record a payout of a file; return False if it was recorded before."""
    new = await _new_payout(context, tx, record)
    standing = await payouts.TABLE.find_standing(tx, record.merchant_id, record.reference)
    if standing is None:
        await _record(tx, new)
        return True
    was, wanted = standing.payout, new.payout
    if (was.amount_minor, was.currency, was.chain) != (
        wanted.amount_minor,
        wanted.currency,
        wanted.chain,
    ):
        raise ConflictError(
            f"payout {quote_input(record.reference)} is recorded with another amount"
        )
    return False


async def _record(tx: Tx, new: NewPayout[Payout]) -> None:
    """Write a payout and its entry; the merchant's payouts are locked."""
    payout = new.payout
    owed = await payouts.get_payable(tx, payout.merchant_id, payout.currency, payout.chain)
    if payout.amount_minor > owed:
        raise await _too_much(tx, payout, owed)
    await payouts.add(tx, new)
    await ledger.add(tx, [payout_entry(payout)])


async def _too_much(tx: Tx, payout: Payout, owed_minor: int) -> RefusedError:
    currency, chain = payout.currency, payout.chain
    decimals = None if chain is None else await payouts.find_token_decimals(tx, chain, currency)
    owed, wanted = (
        format_smallest_units(minor, currency, decimals, on_chain=chain is not None)
        for minor in (owed_minor, payout.amount_minor)
    )
    return UnprocessableError(
        f"merchant {payout.merchant_id} is owed {owed} {currency}, not {wanted}"
    )


async def _new_payout(context: OperationContext, tx: Tx, said: RecordPayout) -> NewPayout[Payout]:
    """Make a payout of what was typed; refuse what cannot be one."""
    merchant = await require_merchant(tx, said.merchant_id)
    if not merchant.livemode:
        raise UnprocessableError("a test merchant is owed nothing")
    check_name("reference", said.reference, _REFERENCE_MAX)
    amount_minor = await read_amount_minor(
        tx, "amount", said.amount, currency=said.currency, chain=said.chain
    )
    payout = Payout(
        id=tx.id_generator.new_id(),
        merchant_id=said.merchant_id,
        amount_minor=amount_minor,
        currency=said.currency,
        chain=said.chain,
    )
    return NewPayout(
        payout=payout,
        reference=said.reference,
        paid_on=read_day("paid_on", said.paid_on),
        recorded_by=context.who,
    )


def _read_lines(lines: Sequence[str]) -> dict[int, RecordPayout]:
    """Return the payouts of a CSV file by their line numbers; blank lines are ignored."""
    if len(lines) > _LINES_MAX + 1:
        raise BadRequestError(f"lines has at most {_LINES_MAX} payouts")
    try:
        reader = csv.reader(lines, strict=True)
        rows = [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
    except csv.Error as error:
        raise BadRequestError(f"lines: {error}") from error
    if not rows or rows[0][1] != _HEADER:
        raise BadRequestError(f"lines must begin with {','.join(_HEADER)}")
    found: dict[int, RecordPayout] = {}
    first: dict[tuple[int, str], int] = {}
    for number, row in rows[1:]:
        record = _read_row(number, row)
        before = first.setdefault((record.merchant_id, record.reference), number)
        if before != number:
            raise BadRequestError(f"line {number}: it stands on line {before} already")
        found[number] = record
    return found


def _read_row(number: int, row: list[str]) -> RecordPayout:
    if len(row) != len(_HEADER) or not _NUMBER.fullmatch(row[0]):
        raise BadRequestError(
            f"line {number} must have {len(_HEADER)} columns, and a merchant's number first"
        )
    merchant_id, amount, currency, chain, reference, paid_on = row
    return RecordPayout(
        merchant_id=int(merchant_id),
        amount=amount,
        currency=currency,
        chain=chain or None,
        reference=reference,
        paid_on=paid_on or None,
    )


async def reverse_payout(
    tx: Tx, table: PayoutTable[AnyPayout], payout_id: UUID, who: str, note: str
) -> AnyPayout:
    """Mark a payout as reversed; raise `NOT_FOUND`, or `CONFLICT` if it is reversed already."""
    await table.lock(tx, payout_id)
    record = await require_payout(tx, table, payout_id)
    if record.reversed_at is not None:
        raise ConflictError("the payout is reversed already")
    await table.reverse(tx, payout_id, who, note)
    return record.payout


async def require_payout(
    database: Executor, table: PayoutTable[AnyPayout], payout_id: UUID
) -> PayoutRecord[AnyPayout]:
    """Return a payout; raise `NOT_FOUND` if it does not exist."""
    record = await table.get(database, payout_id)
    if record is None:
        raise NotFoundError(f"no {table.noun} {payout_id}")
    return record


def _view(record: PayoutRecord[Payout]) -> PayoutView:
    payout = record.payout
    return PayoutView(
        id=payout.id,
        merchant_id=payout.merchant_id,
        amount=record.amount,
        amount_minor=str(payout.amount_minor),
        currency=payout.currency,
        chain=payout.chain,
        reference=record.reference,
        paid_on=record.paid_on,
        recorded_by=record.recorded_by,
        created_at=record.created_at,
        reversed_at=record.reversed_at,
        reversed_by=record.reversed_by,
        reversal_note=record.reversal_note,
    )
