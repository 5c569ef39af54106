"""Operations that record, reverse and list gateway payouts to bank accounts."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.accounting import gateway_payouts_store as gateway_payout_store
from payintent.accounting import ledger_store
from payintent.accounting.gateway_payouts_store import (
    GatewayPayoutRecord,
    PayingAccount,
    record_gateway_payout,
)
from payintent.accounting.ledger_operations import read_amount_minor
from payintent.accounting.model import GatewayPayout, gateway_payout_entries
from payintent.accounting.payouts_operations import require_payout, reverse_payout
from payintent.accounting.payouts_store import NewPayout
from payintent.core.access import Role
from payintent.core.errors import ConflictError, NotFoundError, UnprocessableError
from payintent.db.database import Executor, Tx
from payintent.operators.fields import (
    ListLimit,
    argument,
    check_list_limit,
    check_name,
    check_note,
    is_database_id,
    option,
    parse_day,
    quote_input,
)
from payintent.operators.operation import ChangeOperation, OperationContext, ReadOperation

_REFERENCE_MAX = 200


class RecordGatewayPayout(ChangeOperation[GatewayPayoutRecord], frozen=True, kw_only=True):
    """Record a gateway's payout from an account, to the account's owner or the operator."""

    action: ClassVar[str] = "gateway-payout.record"
    needs_role: ClassVar[Role] = Role.FINANCE
    account_id: Annotated[int, argument("The gateway account, as `account list` shows it.")]
    amount: Annotated[
        str, argument("Such as 1590.00; -1590.00 after `--` if the gateway debited it.")
    ]
    currency: Annotated[str, option("Such as THB, or a token's symbol.")]
    reference: Annotated[str, option("The gateway's reference, such as po_1; unique per account.")]
    fee: Annotated[str | None, option("The fee that the gateway deducted, such as 46.11.")] = None
    paid_on: Annotated[str | None, option("The day of the payout. Default: today in UTC.")] = None

    async def apply(self, context: OperationContext, tx: Tx) -> GatewayPayoutRecord:
        """Record the payout; raise `CONFLICT` if its reference has already been recorded."""
        account = await _require_account(tx, self.account_id)
        if not account.livemode:
            raise UnprocessableError("a test account has no payouts")
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
            paid_on=parse_day("paid_on", self.paid_on),
            recorded_by=context.who,
        )
        if not await record_gateway_payout(tx, new):
            raise ConflictError(f"payout {quote_input(self.reference)} is already recorded")
        return await require_payout(tx, gateway_payout_store.TABLE, new.payout.id)

    def audit_details(self, result: GatewayPayoutRecord) -> Mapping[str, object]:
        return {"id": str(result.id)}


class ReverseGatewayPayout(ChangeOperation[GatewayPayoutRecord], frozen=True, kw_only=True):
    """Reverse a gateway payout that never arrived or was recorded in error."""

    action: ClassVar[str] = "gateway-payout.reverse"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    payout_id: Annotated[UUID, argument("The id that `gateway-payout list` shows.")]
    note: Annotated[str, option("Stored with the payout. Default: the reason.", or_reason=True)]

    async def check(self, context: OperationContext) -> None:
        check_note(self.note)

    async def apply(self, context: OperationContext, tx: Tx) -> GatewayPayoutRecord:
        table = gateway_payout_store.TABLE
        record = await reverse_payout(tx, table, self.payout_id, context.who, self.note)
        await ledger_store.add(tx, gateway_payout_entries(record.payout, reversal=True))
        return record


class ListGatewayPayouts(ReadOperation[list[GatewayPayoutRecord]], frozen=True, kw_only=True):
    """List gateway payouts, newest first."""

    action: ClassVar[str] = "gateway-payout.list"
    columns = (
        *("id", "account_id", "amount", "currency", "reference", "paid_on", "recorded_by"),
        "reversed_at",
    )
    account_id: Annotated[int | None, option("A gateway account.", name="account")] = None
    currency: Annotated[str | None, option("A currency or token, such as THB.")] = None
    before: Annotated[UUID | None, option("The next page: the id of the last payout shown.")] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[GatewayPayoutRecord]:
        check_list_limit(self.limit)
        if self.account_id is not None:
            await _require_account(context.database, self.account_id)
        return await gateway_payout_store.TABLE.list_page(
            context.reading, self.limit, self.account_id, self.currency, self.before
        )


async def _require_account(database: Executor, account_id: int) -> PayingAccount:
    is_id = is_database_id(account_id)
    account = (
        await gateway_payout_store.find_paying_account(database, account_id) if is_id else None
    )
    if account is None:
        raise NotFoundError(f"no account {account_id}")
    return account
