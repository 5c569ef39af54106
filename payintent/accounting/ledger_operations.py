"""Operations that show, check, backfill and adjust the ledger."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.accounting import ledger_check_store, ledger_store
from payintent.accounting import payouts_store as payout_store
from payintent.accounting.ledger_check_store import FactKind, LedgerDifference
from payintent.accounting.ledger_store import AccountBalance
from payintent.accounting.model import make_adjustment_entry, parse_account
from payintent.core.access import Role
from payintent.core.errors import BadRequestError, NotFoundError
from payintent.core.money import MINOR_DECIMALS, to_smallest_unit
from payintent.core.texts import format_count
from payintent.db.database import Executor, Tx
from payintent.operators.fields import (
    MerchantFilter,
    argument,
    check_merchant,
    check_note,
    is_database_id,
    option,
    quote_input,
)
from payintent.operators.operation import (
    BatchOperation,
    ChangeOperation,
    OperationContext,
    ReadOperation,
)

_BATCH = 500
_AMOUNT = re.compile(r"(-?)((?:0|[1-9][0-9]{0,40})(?:\.[0-9]{1,18})?)", re.ASCII)
_AMOUNT_MINOR = re.compile(r"[1-9][0-9]{0,76}", re.ASCII)
_CURRENCY = re.compile(r"[A-Z]{3,12}|0x[0-9a-f]{40}", re.ASCII)
_CHAIN = re.compile(r"[a-z0-9-]{1,40}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerBackfill:
    facts: int
    kind: FactKind
    last_id: UUID | None


class ShowLedger(ReadOperation[list[AccountBalance]], frozen=True, kw_only=True):
    """Show the balance of each ledger account."""

    action: ClassVar[str] = "ledger.show"
    columns = ("account", "currency", "chain", "debits_minor", "credits_minor", "balance_minor")
    merchant_id: MerchantFilter = None
    currency: Annotated[str | None, option("Only this currency or token, such as THB.")] = None

    async def read(self, context: OperationContext) -> list[AccountBalance]:
        await check_merchant(context.database, self.merchant_id)
        return await ledger_store.list_balances(
            context.read_database, self.merchant_id, self.currency
        )


class CheckLedger(ReadOperation[list[LedgerDifference]], frozen=True, kw_only=True):
    """List ledger accounts that do not match the captures, refunds, disputes, cases and payouts.

    The command exits with status 1 if there are any.
    """

    action: ClassVar[str] = "ledger.check"
    columns = ("account", "currency", "chain", "ledger_minor", "facts_minor")

    async def read(self, context: OperationContext) -> list[LedgerDifference]:
        return await ledger_check_store.find_differences(context.database)


class BackfillLedger(BatchOperation[LedgerBackfill], frozen=True, kw_only=True):
    """Add entries for captures, refunds, cases and disputes that are older than the ledger.

    You can run this while payments are being processed, and more than once, because existing
    entries are skipped.
    """

    action: ClassVar[str] = "ledger.backfill"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    has_dry_run: ClassVar[bool] = True
    batch_size: ClassVar[int] = _BATCH

    async def changes(self, context: OperationContext) -> list[str]:
        total = await self.total(context)
        return [f"entries for {format_count(total, 'fact')} are added to the ledger"]

    async def total(self, context: OperationContext) -> int:
        return await ledger_check_store.count_missing_entries(context.database)

    async def count_changes(self, context: OperationContext) -> Mapping[str, object]:
        return {"facts": await self.total(context)}

    def get_cursor(self) -> tuple[FactKind, UUID]:
        """Return the batch's fact kind, and the id of the last fact in the previous batch."""
        return FactKind.CAPTURES, UUID(int=0)

    async def apply(self, context: OperationContext, tx: Tx) -> LedgerBackfill:
        kind, after = self.get_cursor()
        kinds = list(FactKind)
        for fact_kind in kinds[kinds.index(kind) :]:
            start = after if fact_kind is kind else UUID(int=0)
            fact_ids = await ledger_check_store.add_missing_entries(tx, fact_kind, start, _BATCH)
            if fact_ids:
                return LedgerBackfill(facts=len(fact_ids), kind=fact_kind, last_id=fact_ids[-1])
        return LedgerBackfill(facts=0, kind=kinds[-1], last_id=None)

    def count(self, batch: LedgerBackfill) -> int:
        return batch.facts

    def next_batch(self, batch: LedgerBackfill) -> "BackfillLedger | None":
        if batch.last_id is None:
            return None
        return _NextBackfill(kind=batch.kind, after=batch.last_id)

    def combine(self, total: LedgerBackfill, batch: LedgerBackfill) -> LedgerBackfill:
        last_id = batch.last_id or total.last_id
        return LedgerBackfill(facts=total.facts + batch.facts, kind=batch.kind, last_id=last_id)

    def audit_details(self, result: LedgerBackfill) -> Mapping[str, object]:
        return {"facts": result.facts}


class _NextBackfill(BackfillLedger, frozen=True, kw_only=True):
    kind: FactKind
    after: UUID

    def get_cursor(self) -> tuple[FactKind, UUID]:
        return self.kind, self.after


async def parse_amount_minor(
    database: Executor,
    name: str,
    amount: str,
    *,
    currency: str,
    chain: str | None,
    allows_negative: bool = False,
) -> int:
    """Parse an amount such as 1590.00 into the smallest units of its currency or token.

    Raises `BAD_REQUEST` for zero, too many decimals or an unknown currency, and for negative
    amounts unless `allows_negative` is set.
    """
    match = _AMOUNT.fullmatch(amount)
    if match is None or (match[1] and not allows_negative):
        raise BadRequestError(f"{name} must be a plain decimal, not {quote_input(amount)}")
    decimals = await _get_decimals(database, currency, chain)
    amount_minor = to_smallest_unit(Decimal(match[2]), decimals)
    if not amount_minor:
        rule = "must not be zero" if allows_negative else "must be greater than zero"
        raise BadRequestError(f"{name} {rule} and must have at most {decimals} decimals")
    return -amount_minor if match[1] else amount_minor


async def _get_decimals(database: Executor, currency: str, chain: str | None) -> int:
    decimals = MINOR_DECIMALS.get(currency)
    if chain is not None:
        decimals = await payout_store.find_token_decimals(database, chain, currency)
    if decimals is None:
        network = "" if chain is None else f" on {quote_input(chain)}"
        raise BadRequestError(f"currency {quote_input(currency)}{network} is unknown")
    return decimals


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
    """Adjust the ledger manually. A second operator must approve the adjustment.

    An adjustment does not move money. To undo it, swap debit and credit in a second adjustment.
    """

    action: ClassVar[str] = "ledger.adjust"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    debit: Annotated[str, argument("The account to debit, such as merchant_payable:1.")]
    credit: Annotated[str, argument("The account to credit, such as fee_income.")]
    amount_minor: Annotated[
        str,
        argument("The amount in minor units, or in a token's smallest units.", metavar="AMOUNT"),
    ]
    currency: Annotated[str, option("The currency, such as THB, or a token's symbol.")]
    chain: Annotated[str | None, option("The token's chain; only for tokens.")] = None
    note: Annotated[str, option("The purpose; defaults to the reason.", defaults_to_reason=True)]

    async def needs_approval(self, context: OperationContext) -> bool:
        """Require approval, because an adjustment may change the amount that a merchant is owed."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        network = f" on {self.chain}" if self.chain else ""
        return [
            f"debit {self.debit}, credit {self.credit}",
            f"{self.amount_minor} {self.currency}{network}, in minor units",
            f"note: {self.note}",
        ]

    async def check(self, context: OperationContext) -> None:
        check_note(self.note)
        for name, text, pattern in (
            ("amount", self.amount_minor, _AMOUNT_MINOR),
            ("currency", self.currency, _CURRENCY),
            ("chain", self.chain, _CHAIN),
        ):
            if text is not None and not pattern.fullmatch(text):
                raise BadRequestError(f"{name} is not valid: {quote_input(text)}")
        for account in (self.debit, self.credit):
            await _check_account(context.database, account)
        if self.debit == self.credit:
            raise BadRequestError("debit and credit must be different accounts")
        if all(_is_payable(account) for account in (self.debit, self.credit)):
            raise BadRequestError(
                "an adjustment cannot move money between merchants; record two adjustments, each"
                " with the `bank` account"
            )

    async def apply(self, context: OperationContext, tx: Tx) -> LedgerAdjustment:
        entry = make_adjustment_entry(
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
    parsed_account = parse_account(account)
    if parsed_account is None:
        raise BadRequestError(f"{quote_input(account)} is not a ledger account")
    if parsed_account.number is None:
        return
    has_owner = (
        ledger_store.has_live_merchant
        if parsed_account.is_payable
        else ledger_store.has_live_account
    )
    if not is_database_id(parsed_account.number) or not await has_owner(
        database, parsed_account.number
    ):
        raise NotFoundError(f"account {quote_input(account)} does not exist")


def _is_payable(account: str) -> bool:
    parsed_account = parse_account(account)
    return parsed_account is not None and parsed_account.is_payable
