"""Operations that record, reverse and list payouts to merchants and payouts from gateways."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.accounting import gateway_payouts_store as gateway_payout_store
from payintent.accounting import ledger_store
from payintent.accounting import payouts_store as payout_store
from payintent.accounting.gateway_payouts_store import (
    GatewayPayoutRecord,
    PayingAccount,
    record_gateway_payout,
)
from payintent.accounting.ledger_operations import parse_amount_minor
from payintent.accounting.model import (
    GatewayPayout,
    Payout,
    make_gateway_payout_entries,
    make_payout_entry,
)
from payintent.accounting.payouts_store import AnyRecord, NewPayout, PayoutRecord, PayoutTable
from payintent.core.access import Role
from payintent.core.errors import (
    BadRequestError,
    ConflictError,
    NotFoundError,
    RefusedError,
    UnprocessableError,
)
from payintent.core.money import format_smallest_units
from payintent.db.database import Executor, Tx
from payintent.merchants.store import require_merchant
from payintent.operators.fields import (
    ListLimit,
    MerchantFilter,
    MerchantId,
    argument,
    check_list_limit,
    check_merchant,
    check_name,
    check_note,
    is_database_id,
    option,
    parse_day,
    quote_input,
)
from payintent.operators.operation import ChangeOperation, OperationContext, ReadOperation

_REFERENCE_MAX = 200
_LINES_MAX = 1_000
_HEADER = ["merchant", "amount", "currency", "chain", "reference", "paid_on"]
_NUMBER = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedPayouts:
    recorded: int
    recorded_before: int


class RecordPayout(ChangeOperation[PayoutRecord], frozen=True, kw_only=True):
    """Record a payout sent to a merchant, up to the amount owed. This does not move money."""

    action: ClassVar[str] = "payout.record"
    needs_role: ClassVar[Role] = Role.FINANCE
    merchant_id: MerchantId
    amount: Annotated[str, argument("The amount, such as 1590.00.")]
    currency: Annotated[str, option("The currency, such as THB, or a token's symbol.")]
    chain: Annotated[str | None, option("The token's chain; only for tokens.")] = None
    reference: Annotated[str, option("A bank reference or transaction hash, unique per merchant.")]
    paid_on: Annotated[str | None, option("The day of the payout; defaults to today in UTC.")] = (
        None
    )

    async def apply(self, context: OperationContext, tx: Tx) -> PayoutRecord:
        """Record the payout; raise `CONFLICT` if its reference has already been recorded."""
        new_payout = await _parse_payout(context, tx, self)
        await payout_store.lock_payable(tx, self.merchant_id)
        if await payout_store.TABLE.find_active(tx, self.merchant_id, self.reference):
            raise ConflictError(f"payout {quote_input(self.reference)} is already recorded")
        await _add(tx, new_payout)
        return await _require_payout(tx, payout_store.TABLE, new_payout.payout.id)

    def audit_details(self, result: PayoutRecord) -> Mapping[str, object]:
        return {"id": str(result.id)}


class ImportPayouts(ChangeOperation[ImportedPayouts], frozen=True, kw_only=True):
    """Record all payouts in a CSV file, or none of them. Skip payouts that are already recorded.

    The first line is `merchant,amount,currency,chain,reference,paid_on`. A merchant's references
    must be unique in the file.
    """

    action: ClassVar[str] = "payout.import"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    lines: Annotated[
        list[str],
        argument("A CSV file, or - for standard input.", metavar="FILE", is_file=True),
    ]

    async def changes(self, context: OperationContext) -> list[str]:
        return [f"payouts to record: up to {len(_parse_lines(self.lines))}"]

    async def check(self, context: OperationContext) -> None:
        _parse_lines(self.lines)

    async def apply(self, context: OperationContext, tx: Tx) -> ImportedPayouts:
        """Record the payouts in file order. If any line is invalid, nothing is recorded."""
        requests = _parse_lines(self.lines)
        merchant_ids = sorted({request.merchant_id for request in requests.values()})
        for merchant_id in merchant_ids:
            await require_merchant(tx, merchant_id)
        for merchant_id in merchant_ids:
            await payout_store.lock_payable(tx, merchant_id)
        recorded = 0
        for number, request in requests.items():
            try:
                recorded += await _add_if_new(context, tx, request)
            except RefusedError as error:
                raise RefusedError(error.code, f"line {number}: {error.message}") from error
        return ImportedPayouts(recorded=recorded, recorded_before=len(requests) - recorded)

    def audit_details(self, result: ImportedPayouts) -> Mapping[str, object]:
        return {"recorded": result.recorded, "recorded_before": result.recorded_before}


class ReversePayout(ChangeOperation[PayoutRecord], frozen=True, kw_only=True):
    """Reverse a payout that failed or was returned. The merchant is then owed the amount again."""

    action: ClassVar[str] = "payout.reverse"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    payout_id: Annotated[UUID, argument("The payout id, as shown by `payout list`.")]
    note: Annotated[
        str,
        option("A note to store with the payout; defaults to the reason.", defaults_to_reason=True),
    ]

    async def check(self, context: OperationContext) -> None:
        check_note(self.note)

    async def apply(self, context: OperationContext, tx: Tx) -> PayoutRecord:
        record = await _reverse_payout(
            tx, payout_store.TABLE, self.payout_id, context.actor_name, self.note
        )
        await ledger_store.add(tx, [make_payout_entry(record.payout, is_reversal=True)])
        return record


class ListPayouts(ReadOperation[list[PayoutRecord]], frozen=True, kw_only=True):
    """List payouts, newest first."""

    action: ClassVar[str] = "payout.list"
    columns = (
        *("id", "merchant_id", "amount", "currency", "reference", "paid_on", "recorded_by"),
        "reversed_at",
    )
    merchant_id: MerchantFilter = None
    currency: Annotated[str | None, option("Only this currency or token, such as THB.")] = None
    before: Annotated[UUID | None, option("The last payout on the previous page.")] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[PayoutRecord]:
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        return await payout_store.TABLE.list_page(
            context.read_database, self.limit, self.merchant_id, self.currency, self.before
        )


async def _add_if_new(context: OperationContext, tx: Tx, request: RecordPayout) -> bool:
    """Add an imported payout; return False if it is already recorded."""
    new_payout = await _parse_payout(context, tx, request)
    active_payout = await payout_store.TABLE.find_active(tx, request.merchant_id, request.reference)
    if active_payout is None:
        await _add(tx, new_payout)
        return True
    if replace(active_payout.payout, id=new_payout.payout.id) != new_payout.payout:
        raise ConflictError(
            f"payout {quote_input(request.reference)} is already recorded with a different amount"
        )
    return False


async def _add(tx: Tx, new_payout: NewPayout[Payout]) -> None:
    """Add a payout and its ledger entry. Lock the merchant's payable balance first."""
    payout = new_payout.payout
    payable = await payout_store.get_payable(tx, payout.merchant_id, payout.currency, payout.chain)
    if payout.amount_minor > payable:
        raise await _make_excess_error(tx, payout, payable)
    await payout_store.add(tx, new_payout)
    await ledger_store.add(tx, [make_payout_entry(payout)])


async def _make_excess_error(tx: Tx, payout: Payout, payable_minor: int) -> RefusedError:
    currency, chain = payout.currency, payout.chain
    decimals = (
        None if chain is None else await payout_store.find_token_decimals(tx, chain, currency)
    )
    payable_amount, payout_amount = (
        format_smallest_units(minor, currency, decimals, on_chain=chain is not None)
        for minor in (payable_minor, payout.amount_minor)
    )
    return UnprocessableError(
        f"merchant {payout.merchant_id} is owed {payable_amount} {currency}, not {payout_amount}"
    )


async def _parse_payout(
    context: OperationContext, tx: Tx, request: RecordPayout
) -> NewPayout[Payout]:
    merchant = await require_merchant(tx, request.merchant_id)
    if not merchant.livemode:
        raise UnprocessableError("payouts to test merchants cannot be recorded")
    check_name("reference", request.reference, _REFERENCE_MAX)
    amount_minor = await parse_amount_minor(
        tx, "amount", request.amount, currency=request.currency, chain=request.chain
    )
    payout = Payout(
        id=tx.id_generator.new_id(),
        merchant_id=request.merchant_id,
        amount_minor=amount_minor,
        currency=request.currency,
        chain=request.chain,
    )
    return NewPayout(
        payout=payout,
        reference=request.reference,
        paid_on=parse_day("paid_on", request.paid_on),
        recorded_by=context.actor_name,
    )


def _parse_lines(lines: Sequence[str]) -> dict[int, RecordPayout]:
    """Parse a CSV file into payouts by line number; blank lines are skipped."""
    if len(lines) > _LINES_MAX + 1:
        raise BadRequestError(f"lines must have at most {_LINES_MAX} payouts")
    try:
        reader = csv.reader(lines, strict=True)
        rows = [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
    except csv.Error as error:
        raise BadRequestError(f"lines: {error}") from error
    if not rows or rows[0][1] != _HEADER:
        raise BadRequestError(f"lines must begin with {','.join(_HEADER)}")
    requests: dict[int, RecordPayout] = {}
    line_numbers: dict[tuple[int, str], int] = {}
    for number, row in rows[1:]:
        request = _parse_row(number, row)
        first_number = line_numbers.setdefault((request.merchant_id, request.reference), number)
        if first_number != number:
            raise BadRequestError(f"line {number}: duplicate of line {first_number}")
        requests[number] = request
    return requests


def _parse_row(number: int, row: list[str]) -> RecordPayout:
    if len(row) != len(_HEADER) or not _NUMBER.fullmatch(row[0]):
        raise BadRequestError(
            f"line {number} must have {len(_HEADER)} columns, beginning with a merchant id"
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


async def _reverse_payout(
    tx: Tx, table: PayoutTable[AnyRecord], payout_id: UUID, operator: str, note: str
) -> AnyRecord:
    """Mark a payout as reversed.

    Raises `NOT_FOUND` if the payout does not exist, and `CONFLICT` if it has already been
    reversed.
    """
    await _require_payout(tx, table, payout_id)
    if not await table.reverse(tx, payout_id, operator, note):
        raise ConflictError("the payout has already been reversed")
    return await _require_payout(tx, table, payout_id)


async def _require_payout(
    database: Executor, table: PayoutTable[AnyRecord], payout_id: UUID
) -> AnyRecord:
    """Return a payout; raise `NOT_FOUND` if it does not exist."""
    record = await table.get(database, payout_id)
    if record is None:
        raise NotFoundError(f"no {table.noun} {payout_id}")
    return record


class RecordGatewayPayout(ChangeOperation[GatewayPayoutRecord], frozen=True, kw_only=True):
    """Record a gateway's payout to the merchant that owns the account, or to the operator."""

    action: ClassVar[str] = "gateway-payout.record"
    needs_role: ClassVar[Role] = Role.FINANCE
    account_id: Annotated[int, argument("The gateway account's id, as shown by `account list`.")]
    amount: Annotated[
        str,
        argument("The amount, such as 1590.00, or -1590.00 after `--` if the gateway debited you."),
    ]
    currency: Annotated[str, option("The currency, such as THB, or a token's symbol.")]
    reference: Annotated[str, option("The gateway's reference, such as po_1, unique per account.")]
    fee: Annotated[str | None, option("The fee that the gateway deducted, such as 46.11.")] = None
    paid_on: Annotated[str | None, option("The day of the payout; defaults to today in UTC.")] = (
        None
    )

    async def apply(self, context: OperationContext, tx: Tx) -> GatewayPayoutRecord:
        """Record the payout; raise `CONFLICT` if its reference has already been recorded."""
        account = await _require_account(tx, self.account_id)
        if not account.livemode:
            raise UnprocessableError("payouts from test accounts cannot be recorded")
        check_name("reference", self.reference, _REFERENCE_MAX)
        parse = partial(
            parse_amount_minor,
            tx,
            currency=self.currency,
            chain=account.chain,
            allows_negative=True,
        )
        new_payout = NewPayout(
            payout=GatewayPayout(
                id=tx.id_generator.new_id(),
                account_id=self.account_id,
                merchant_id=account.merchant_id,
                amount_minor=await parse("amount", self.amount),
                fee_minor=0 if self.fee is None else await parse("fee", self.fee),
                currency=self.currency,
                chain=account.chain,
            ),
            reference=self.reference,
            paid_on=parse_day("paid_on", self.paid_on),
            recorded_by=context.actor_name,
        )
        if not await record_gateway_payout(tx, new_payout):
            raise ConflictError(f"payout {quote_input(self.reference)} is already recorded")
        return await _require_payout(tx, gateway_payout_store.TABLE, new_payout.payout.id)

    def audit_details(self, result: GatewayPayoutRecord) -> Mapping[str, object]:
        return {"id": str(result.id)}


class ReverseGatewayPayout(ChangeOperation[GatewayPayoutRecord], frozen=True, kw_only=True):
    """Reverse a gateway payout that never arrived or was recorded in error."""

    action: ClassVar[str] = "gateway-payout.reverse"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    payout_id: Annotated[UUID, argument("The payout id, as shown by `gateway-payout list`.")]
    note: Annotated[
        str,
        option("A note to store with the payout; defaults to the reason.", defaults_to_reason=True),
    ]

    async def check(self, context: OperationContext) -> None:
        check_note(self.note)

    async def apply(self, context: OperationContext, tx: Tx) -> GatewayPayoutRecord:
        table = gateway_payout_store.TABLE
        record = await _reverse_payout(tx, table, self.payout_id, context.actor_name, self.note)
        await ledger_store.add(tx, make_gateway_payout_entries(record.payout, is_reversal=True))
        return record


class ListGatewayPayouts(ReadOperation[list[GatewayPayoutRecord]], frozen=True, kw_only=True):
    """List gateway payouts, newest first."""

    action: ClassVar[str] = "gateway-payout.list"
    columns = (
        *("id", "account_id", "amount", "currency", "reference", "paid_on", "recorded_by"),
        "reversed_at",
    )
    account_id: Annotated[int | None, option("Only this gateway account.", name="account")] = None
    currency: Annotated[str | None, option("Only this currency or token, such as THB.")] = None
    before: Annotated[UUID | None, option("The last payout on the previous page.")] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[GatewayPayoutRecord]:
        check_list_limit(self.limit)
        if self.account_id is not None:
            await _require_account(context.database, self.account_id)
        return await gateway_payout_store.TABLE.list_page(
            context.read_database, self.limit, self.account_id, self.currency, self.before
        )


async def _require_account(database: Executor, account_id: int) -> PayingAccount:
    account = None
    if is_database_id(account_id):
        account = await gateway_payout_store.find_paying_account(database, account_id)
    if account is None:
        raise NotFoundError(f"no account {account_id}")
    return account
