"""Store payouts to merchants, and define the queries that they share with gateway payouts.

A payout never exceeds the amount that the merchant is owed.
"""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Generic, LiteralString, TypeVar
from uuid import UUID

from payintent.accounting.model import GatewayPayout, Payout
from payintent.core.money import format_smallest_units
from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import KeysetList

#: First key of the advisory locks on merchants' payable balances. A trigger uses the same key.
_PAYABLE_LOCKS = 7_002

AnyPayout = TypeVar("AnyPayout", Payout, GatewayPayout)
AnyRecord = TypeVar("AnyRecord", bound="RecordedPayout")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPayout:
    """Fields shared by payouts to merchants and gateway payouts."""

    id: UUID
    amount: str | None  # in currency units; None if the token's decimals are unknown
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
class PayoutRecord(RecordedPayout):
    merchant_id: int

    @property
    def payout(self) -> Payout:
        return Payout(
            id=self.id,
            merchant_id=self.merchant_id,
            amount_minor=int(self.amount_minor),
            currency=self.currency,
            chain=self.chain,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPayout(Generic[AnyPayout]):
    payout: AnyPayout
    reference: str  # assigned by the bank or gateway
    paid_on: date | None  # None means today (UTC)
    recorded_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PayoutTable(Generic[AnyRecord]):
    """A table of payouts. References are unique among an owner's payouts that are not reversed."""

    name: LiteralString
    noun: str  # used in messages
    owner: LiteralString  # the merchant or gateway account column
    select: LiteralString  # the query for records, with the table aliased as `p`
    record: type[AnyRecord]

    @property
    def keyset(self) -> KeysetList:
        owner: LiteralString = "p." + self.owner + " = {}"
        return KeysetList(self.select, "p.id", owner_id=owner, currency="p.currency = {}")

    async def get(self, database: Executor, payout_id: UUID) -> AnyRecord | None:
        row = await database.row(self.select + " WHERE p.id = $1", payout_id)
        return None if row is None else self.read(row)

    async def reverse(self, tx: Tx, payout_id: UUID, operator: str, note: str) -> bool:
        """Mark a payout as reversed; return False if it has already been reversed."""
        row = await tx.row(
            f"UPDATE {self.name} SET reversed_at = clock(), reversed_by = $2, reversal_note = $3"
            " WHERE id = $1 AND reversed_at IS NULL RETURNING id",
            payout_id,
            operator,
            note,
        )
        return row is not None

    async def find_active(
        self, database: Executor, owner_id: int, reference: str
    ) -> AnyRecord | None:
        """Return the owner's payout with this reference, unless it has been reversed."""
        row = await database.row(
            f"{self.select}"
            f" WHERE p.{self.owner} = $1 AND p.reference = $2 AND p.reversed_at IS NULL",
            owner_id,
            reference,
        )
        return None if row is None else self.read(row)

    async def list_page(
        self,
        database: Executor,
        limit: int,
        owner_id: int | None,
        currency: str | None,
        before: UUID | None,
    ) -> list[AnyRecord]:
        """List payouts before an id, newest first."""
        rows = await self.keyset.page(database, before, limit, owner_id=owner_id, currency=currency)
        return [self.read(row) for row in rows]

    def read(self, row: Row) -> AnyRecord:
        values = dict(row)
        amount = format_smallest_units(
            int(row["amount_minor"]),
            row["currency"],
            values.pop("token_decimals"),
            on_chain=row["chain"] is not None,
        )
        return self.record(**values, amount=amount)


async def lock_payable(tx: Tx, merchant_id: int) -> None:
    """Serialize transactions that record payouts to the same merchant."""
    await tx.fetch(
        "SELECT pg_advisory_xact_lock($1::int, hashint8($2))", _PAYABLE_LOCKS, merchant_id
    )


async def get_payable(
    database: Executor, merchant_id: int, currency: str, chain: str | None
) -> int:
    """Return a merchant's balance in smallest units; negative if the merchant owes money."""
    payable = await database.value(
        "SELECT merchant_payable($1, $2, $3)", merchant_id, currency, chain
    )
    return int(payable)


async def find_token_decimals(database: Executor, chain: str, symbol: str) -> int | None:
    return await database.value(
        "SELECT decimals FROM chain_token WHERE chain = $1 AND symbol = $2", chain, symbol
    )


async def add(tx: Tx, new_payout: NewPayout[Payout]) -> None:
    """Add a payout. The database rejects it if it exceeds the amount that the merchant is owed."""
    await tx.fetch(
        """
        INSERT INTO payout
            (id, merchant_id, currency, chain, amount_minor, reference, paid_on, recorded_by)
        VALUES ($1, $2, $3, $4, $5::text::numeric, $6,
            coalesce($7, (clock() AT TIME ZONE 'UTC')::date), $8)
        """,
        new_payout.payout.id,
        new_payout.payout.merchant_id,
        new_payout.payout.currency,
        new_payout.payout.chain,
        str(new_payout.payout.amount_minor),
        new_payout.reference,
        new_payout.paid_on,
        new_payout.recorded_by,
    )


#: Columns for `RecordedPayout`; they require the join in `TOKENS`.
COLUMNS: LiteralString = """
    p.id, p.currency, p.chain, p.amount_minor::text AS amount_minor, p.reference, p.paid_on,
    p.recorded_by, p.created_at, p.reversed_at, p.reversed_by, p.reversal_note,
    t.decimals AS token_decimals
"""
TOKENS: LiteralString = " LEFT JOIN chain_token t ON t.chain = p.chain AND t.symbol = p.currency "

TABLE = PayoutTable(
    name="payout",
    noun="payout",
    owner="merchant_id",
    select="SELECT p.merchant_id," + COLUMNS + "FROM payout p" + TOKENS,
    record=PayoutRecord,
)
