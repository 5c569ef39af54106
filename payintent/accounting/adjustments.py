"""Manual ledger adjustments. Each requires two operators."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from payintent.accounting import ledger_store
from payintent.accounting.model import adjustment_entry, parse_account
from payintent.core.access import Role
from payintent.core.errors import BadRequestError, NotFoundError
from payintent.db.database import Executor, Tx
from payintent.operators.fields import argument, check_note, is_database_id, option, quote_input
from payintent.operators.operation import ChangeOperation, OperationContext

_AMOUNT = re.compile(r"[1-9][0-9]{0,76}", re.ASCII)
_CURRENCY = re.compile(r"[A-Z]{3,12}|0x[0-9a-f]{40}", re.ASCII)
_CHAIN = re.compile(r"[a-z0-9-]{1,40}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerAdjustment:
    id: str
    debit: str
    credit: str
    amount_minor: str
    currency: str
    chain: str | None
    merchant_id: int | None


class AdjustLedger(ChangeOperation[LedgerAdjustment], frozen=True, kw_only=True):
    """Enter a manual adjustment of the ledger; a second operator must approve it.

    No money moves. To undo an adjustment, swap debit and credit in a second adjustment.
    """

    action: ClassVar[str] = "ledger.adjust"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    debit: Annotated[str, argument("The account to debit, such as merchant_payable:1.")]
    credit: Annotated[str, argument("The account to credit, such as fee_income.")]
    amount_minor: Annotated[
        str, argument("In minor units; for a token, in its smallest units.", metavar="AMOUNT")
    ]
    currency: Annotated[str, option("Such as THB, or a token's symbol.")]
    chain: Annotated[str | None, option("The chain, for a token.")] = None
    note: Annotated[str, option("The purpose. Default: the reason.", or_reason=True)]

    async def needs_approval(self, context: OperationContext) -> bool:
        """Require approval always: an adjustment may change a merchant's payable balance."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        network = f" on {self.chain}" if self.chain else ""
        return [
            f"{self.debit} is debited, {self.credit} is credited",
            f"{self.amount_minor} minor units of {self.currency}{network}",
            f"note: {self.note}",
        ]

    async def check(self, context: OperationContext) -> None:
        check_note(self.note)
        for name, text, pattern in (
            ("amount", self.amount_minor, _AMOUNT),
            ("currency", self.currency, _CURRENCY),
            ("chain", self.chain, _CHAIN),
        ):
            if text is not None and not pattern.fullmatch(text):
                raise BadRequestError(f"{name} cannot be {quote_input(text)}")
        for account in (self.debit, self.credit):
            await _check_account(context.database, account)
        if self.debit == self.credit:
            raise BadRequestError("debit and credit are the same account")
        if all(_is_merchants(account) for account in (self.debit, self.credit)):
            raise BadRequestError(
                "an adjustment cannot move money between merchants; enter two, each against bank"
            )

    async def apply(self, context: OperationContext, tx: Tx) -> LedgerAdjustment:
        entry = adjustment_entry(
            tx.id_generator.new_id(),
            (self.debit, self.credit, int(self.amount_minor)),
            self.currency,
            self.chain,
        )
        await ledger_store.add(tx, [entry])
        return LedgerAdjustment(
            id=str(entry.fact_id),
            debit=entry.debit,
            credit=entry.credit,
            amount_minor=str(entry.amount_minor),
            currency=entry.currency,
            chain=entry.chain,
            merchant_id=entry.merchant_id,
        )

    def audit_details(self, result: LedgerAdjustment) -> Mapping[str, object]:
        return {"id": result.id}


async def _check_account(database: Executor, account: str) -> None:
    parsed = parse_account(account)
    if parsed is None:
        raise BadRequestError(f"{quote_input(account)} is not a ledger account")
    if parsed.number is None:
        return
    has_owner = (
        ledger_store.has_live_merchant if parsed.is_merchants else ledger_store.has_live_account
    )
    if not is_database_id(parsed.number) or not await has_owner(database, parsed.number):
        raise NotFoundError(f"account {quote_input(account)} does not exist")


def _is_merchants(account: str) -> bool:
    parsed = parse_account(account)
    return parsed is not None and parsed.is_merchants
