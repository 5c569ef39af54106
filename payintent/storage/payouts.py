"""Recorded payouts: of the operator to its merchants, and what gateways' payouts share with them.

A merchant is never paid more than it is owed.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Generic, LiteralString, TypeVar
from uuid import UUID

from payintent.domain.ledger import GatewayPayout, Payout
from payintent.domain.money import format_smallest_units
from payintent.storage.database import Executor, Row, Tx
from payintent.storage.lists import KeysetList
from payintent.storage.rows import build

#: The first number of our advisory locks on what merchants are owed; a trigger has it too.
_PAYABLE_LOCKS = 7_002

AnyPayout = TypeVar("AnyPayout", Payout, GatewayPayout)


@dataclass(frozen=True, slots=True, kw_only=True)
class PayoutRecord(Generic[AnyPayout]):
    payout: AnyPayout
    token_decimals: int | None
    reference: str
    paid_on: date
    recorded_by: str
    created_at: datetime
    reversed_at: datetime | None
    reversed_by: str | None
    reversal_note: str | None

    @property
    def amount(self) -> str | None:
        """The amount in units of its currency; None if the decimals of its token are unknown."""
        payout = self.payout
        on_chain = payout.chain is not None
        return format_smallest_units(
            payout.amount_minor, payout.currency, self.token_decimals, on_chain=on_chain
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPayout(Generic[AnyPayout]):
    payout: AnyPayout
    reference: str  # the bank's, or the gateway's
    paid_on: date | None  # None: today, in UTC
    recorded_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PayoutFilter:
    """Which payouts to list; `before` is where the last page ended."""

    owner_id: int | None = None
    currency: str | None = None
    before: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PayoutTable(Generic[AnyPayout]):
    """A table of payouts; a reference of an owner stands in it once, unless it is reversed."""

    name: LiteralString
    noun: str  # for messages
    owner: LiteralString  # the column of the merchant, or of the gateway's account
    select: LiteralString  # the columns of a record; the table is `p` in it
    read_payout: Callable[[Row], AnyPayout]

    @property
    def keyset(self) -> KeysetList:
        owner: LiteralString = "p." + self.owner + " = {}"
        return KeysetList(self.select, "p.id", owner_id=owner, currency="p.currency = {}")

    async def get(self, database: Executor, payout_id: UUID) -> PayoutRecord[AnyPayout] | None:
        row = await database.row(self.select + " WHERE p.id = $1", payout_id)
        return None if row is None else self.read(row)

    async def lock(self, tx: Tx, payout_id: UUID) -> None:
        await tx.fetch(f"SELECT id FROM {self.name} WHERE id = $1 FOR UPDATE", payout_id)

    async def reverse(self, tx: Tx, payout_id: UUID, who: str, note: str) -> None:
        await tx.fetch(
            f"UPDATE {self.name} SET reversed_at = clock(), reversed_by = $2, reversal_note = $3"
            " WHERE id = $1",
            payout_id,
            who,
            note,
        )

    async def find_standing(
        self, database: Executor, owner_id: int, reference: str
    ) -> PayoutRecord[AnyPayout] | None:
        """Return an owner's payout with this reference that is not reversed."""
        row = await database.row(
            f"{self.select}"
            f" WHERE p.{self.owner} = $1 AND p.reference = $2 AND p.reversed_at IS NULL",
            owner_id,
            reference,
        )
        return None if row is None else self.read(row)

    async def list_page(
        self, database: Executor, wanted: PayoutFilter, limit: int
    ) -> list[PayoutRecord[AnyPayout]]:
        """List payouts, newest first."""
        rows = await self.keyset.page(database, wanted.before, limit, **asdict(wanted))
        return [self.read(row) for row in rows]

    def read(self, row: Row) -> PayoutRecord[AnyPayout]:
        """Make a record of a row that `select` returned."""
        record: PayoutRecord[AnyPayout] = build(PayoutRecord, row, payout=self.read_payout(row))
        return record


async def lock_payable(tx: Tx, merchant_id: int) -> None:
    """Let one transaction after the other record payouts of a merchant."""
    await tx.fetch(
        "SELECT pg_advisory_xact_lock($1::int, hashint8($2))", _PAYABLE_LOCKS, merchant_id
    )


async def get_payable(
    database: Executor, merchant_id: int, currency: str, chain: str | None
) -> int:
    """Return what a merchant is owed, in smallest units; less than 0: it owes."""
    row = await database.row(
        "SELECT merchant_payable($1, $2, $3) AS payable", merchant_id, currency, chain
    )
    assert row is not None  # noqa: S101 - a function gives one row
    return int(row["payable"])


async def find_token_decimals(database: Executor, chain: str, symbol: str) -> int | None:
    """Return the decimals of a token that is configured on a chain."""
    row = await database.row(
        "SELECT decimals FROM chain_token WHERE chain = $1 AND symbol = $2", chain, symbol
    )
    return None if row is None else row["decimals"]


async def add(tx: Tx, new: NewPayout[Payout]) -> None:
    """Add a payout; its merchant is owed as much, or a constraint fails."""
    await tx.fetch(
        """
        INSERT INTO payout
            (id, merchant_id, currency, chain, amount_minor, reference, paid_on, recorded_by)
        VALUES ($1, $2, $3, $4, $5::text::numeric, $6,
            coalesce($7, (clock() AT TIME ZONE 'UTC')::date), $8)
        """,
        new.payout.id,
        new.payout.merchant_id,
        new.payout.currency,
        new.payout.chain,
        str(new.payout.amount_minor),
        new.reference,
        new.paid_on,
        new.recorded_by,
    )


def _read_payout(row: Row) -> Payout:
    return build(Payout, row, amount_minor=int(row["amount_minor"]))


#: The payouts to merchants.
TABLE = PayoutTable(
    name="payout",
    noun="payout",
    owner="merchant_id",
    select="""
        SELECT p.id, p.merchant_id, p.currency, p.chain, p.amount_minor, p.reference, p.paid_on,
            p.recorded_by, p.created_at, p.reversed_at, p.reversed_by, p.reversal_note,
            t.decimals AS token_decimals
        FROM payout p
        LEFT JOIN chain_token t ON t.chain = p.chain AND t.symbol = p.currency
    """,
    read_payout=_read_payout,
)
