"""Payouts of gateways: what each paid out to a bank, recorded and reversed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.domain.errors import ConflictError, NotFoundError, UnprocessableError
from payintent.domain.ledger import GatewayPayout, gateway_payout_entries
from payintent.domain.operator import Role
from payintent.operations.amounts import read_amount_minor
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.fields import ListLimit, argument, option
from payintent.operations.payouts import require_payout, reverse_payout
from payintent.operations.validation import (
    check_list_limit,
    check_name,
    check_note,
    is_database_id,
    quote_input,
    read_day,
)
from payintent.payments.gateway_payouts import record_gateway_payout
from payintent.storage import gateway_payouts, ledger
from payintent.storage.database import Executor, Tx
from payintent.storage.gateway_payouts import PayingAccount
from payintent.storage.payouts import NewPayout, PayoutFilter, PayoutRecord

_REFERENCE_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPayoutView:
    id: UUID
    account_id: int
    merchant_id: int | None  # whose account it is; None: the operator's
    amount: str | None  # None: the decimals of its token are unknown
    amount_minor: str
    fee_minor: str
    currency: str
    chain: str | None
    reference: str
    paid_on: date
    recorded_by: str
    created_at: datetime
    reversed_at: datetime | None
    reversed_by: str | None
    reversal_note: str | None


class RecordGatewayPayout(ChangeOperation[GatewayPayoutView], frozen=True, kw_only=True):
    """Record what a gateway paid out of an account: to the operator, or to whose account it is."""

    action: ClassVar[str] = "gateway-payout.record"
    needs_role: ClassVar[Role] = Role.FINANCE
    account_id: Annotated[int, argument("The gateway's account, as `account list` has it.")]
    amount: Annotated[
        str, argument("Such as 1590.00; -1590.00 after `--`: the gateway took it back.")
    ]
    currency: Annotated[str, option("Such as THB, or a token's symbol.")]
    reference: Annotated[str, option("The gateway's, such as po_1; recorded once.")]
    fee: Annotated[str | None, option("What the gateway kept for itself, such as 46.11.")] = None
    paid_on: Annotated[str | None, option("The day; left out: today, UTC.")] = None

    async def apply(self, context: OperationContext, tx: Tx) -> GatewayPayoutView:
        """Record the payout; raise `CONFLICT` if its reference is recorded."""
        account = await _paying_account(tx, self.account_id)
        check_name("reference", self.reference, _REFERENCE_MAX)
        read = partial(
            read_amount_minor, tx, currency=self.currency, chain=account.chain, signed=True
        )
        new = NewPayout(
            payout=GatewayPayout(
                id=tx.id_generator.new_id(),
                account_id=self.account_id,
                merchant_id=account.merchant_id,
                amount_minor=await read("amount", self.amount),
                fee_minor=0 if self.fee is None else await read("fee", self.fee),
                currency=self.currency,
                chain=account.chain,
            ),
            reference=self.reference,
            paid_on=read_day("paid_on", self.paid_on),
            recorded_by=context.who,
        )
        if not await record_gateway_payout(tx, new):
            raise ConflictError(f"a payout {quote_input(self.reference)} is recorded already")
        return _view(await require_payout(tx, gateway_payouts.TABLE, new.payout.id))

    def audit_details(self, result: GatewayPayoutView) -> Mapping[str, object]:
        return {"id": str(result.id)}


class ReverseGatewayPayout(ChangeOperation[GatewayPayoutView], frozen=True, kw_only=True):
    """Enter that a payout of a gateway never came, or was recorded wrongly."""

    action: ClassVar[str] = "gateway-payout.reverse"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    payout_id: Annotated[UUID, argument("As `gateway-payout list` has it.")]
    note: Annotated[str, option("Kept with the payout; left out: the reason.", or_reason=True)]

    async def check(self, context: OperationContext) -> None:
        check_note(self.note)

    async def apply(self, context: OperationContext, tx: Tx) -> GatewayPayoutView:
        table = gateway_payouts.TABLE
        payout = await reverse_payout(tx, table, self.payout_id, context.who, self.note)
        await ledger.add(tx, gateway_payout_entries(payout, reversal=True))
        return _view(await require_payout(tx, table, payout.id))


class ListGatewayPayouts(ReadOperation[list[GatewayPayoutView]], frozen=True, kw_only=True):
    """List payouts of gateways, newest first."""

    action: ClassVar[str] = "gateway-payout.list"
    columns = (
        *("id", "account_id", "amount", "currency", "reference", "paid_on", "recorded_by"),
        "reversed_at",
    )
    account_id: Annotated[int | None, option("Of one gateway's account.", name="account")] = None
    currency: Annotated[str | None, option("Of one currency or token, such as THB.")] = None
    before: Annotated[
        UUID | None, option("The next page: payouts before this one, the last of a page.")
    ] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[GatewayPayoutView]:
        check_list_limit(self.limit)
        if self.account_id is not None:
            await _known_account(context.database, self.account_id)
        wanted = PayoutFilter(owner_id=self.account_id, currency=self.currency, before=self.before)
        records = await gateway_payouts.TABLE.list_page(context.reading, wanted, self.limit)
        return list(map(_view, records))


async def _paying_account(database: Executor, account_id: int) -> PayingAccount:
    """Return an account whose payouts are entered; refuse a test account, which has no money."""
    found = await _known_account(database, account_id)
    if not found.livemode:
        raise UnprocessableError("a test account pays nothing out")
    return found


async def _known_account(database: Executor, account_id: int) -> PayingAccount:
    is_id = is_database_id(account_id)
    found = await gateway_payouts.find_paying_account(database, account_id) if is_id else None
    if found is None:
        raise NotFoundError(f"no account {account_id}")
    return found


def _view(record: PayoutRecord[GatewayPayout]) -> GatewayPayoutView:
    payout = record.payout
    return GatewayPayoutView(
        id=payout.id,
        account_id=payout.account_id,
        merchant_id=payout.merchant_id,
        amount=record.amount,
        amount_minor=str(payout.amount_minor),
        fee_minor=str(payout.fee_minor),
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
