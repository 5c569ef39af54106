"""Store payouts from gateways. References are unique per gateway account."""

from collections.abc import Sequence
from dataclasses import dataclass

from payintent.accounting import ledger_store
from payintent.accounting import payouts_store as payout_store
from payintent.accounting.model import GatewayPayout, make_gateway_payout_entries
from payintent.accounting.payouts_store import NewPayout, PayoutTable, RecordedPayout
from payintent.core.errors import ConflictError
from payintent.db.database import Executor, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPayoutRecord(RecordedPayout):
    account_id: int
    merchant_id: int | None  # the account's owner, or None for the operator
    fee_minor: str

    @property
    def payout(self) -> GatewayPayout:
        return GatewayPayout(
            id=self.id,
            account_id=self.account_id,
            merchant_id=self.merchant_id,
            amount_minor=int(self.amount_minor),
            fee_minor=int(self.fee_minor),
            currency=self.currency,
            chain=self.chain,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PayingAccount:
    merchant_id: int | None  # None means the operator
    chain: str | None  # set for gateway contracts
    livemode: bool


async def find_paying_account(database: Executor, account_id: int) -> PayingAccount | None:
    row = await database.row(
        """
        SELECT a.merchant_id, k.chain, a.livemode
        FROM provider_account a
        LEFT JOIN chain_contract k ON k.account_id = a.id
        WHERE a.id = $1
        """,
        account_id,
    )
    return PayingAccount(**row) if row else None


async def add(tx: Tx, new_payout: NewPayout[GatewayPayout]) -> bool:
    """Add a payout; return False if an active payout of the account has this reference."""
    row = await tx.row(
        """
        INSERT INTO gateway_payout
            (id, account_id, currency, chain, amount_minor, fee_minor, reference, paid_on,
            recorded_by)
        VALUES ($1, $2, $3, $4, $5::text::numeric, $6::text::numeric, $7,
            coalesce($8, (clock() AT TIME ZONE 'UTC')::date), $9)
        ON CONFLICT (account_id, reference) WHERE reversed_at IS NULL DO NOTHING
        RETURNING id
        """,
        new_payout.payout.id,
        new_payout.payout.account_id,
        new_payout.payout.currency,
        new_payout.payout.chain,
        str(new_payout.payout.amount_minor),
        str(new_payout.payout.fee_minor),
        new_payout.reference,
        new_payout.paid_on,
        new_payout.recorded_by,
    )
    return row is not None


async def has_reversed(database: Executor, account_id: int, reference: str, operator: str) -> bool:
    """Return whether this operator has reversed an account's payout with this reference."""
    row = await database.row(
        """
        SELECT FROM gateway_payout
        WHERE account_id = $1 AND reference = $2 AND reversed_at IS NOT NULL AND reversed_by = $3
        LIMIT 1
        """,
        account_id,
        reference,
        operator,
    )
    return row is not None


async def find_latest(
    database: Executor, account_id: int, references: Sequence[str]
) -> dict[str, GatewayPayoutRecord]:
    """Return an account's latest payout for each reference, preferring active payouts."""
    rows = await database.fetch(
        TABLE.select
        + """
        JOIN (
            SELECT DISTINCT ON (g.reference) g.id
            FROM gateway_payout g
            WHERE g.account_id = $1 AND g.reference = ANY($2::text[])
            ORDER BY g.reference, g.reversed_at IS NULL DESC, g.id DESC
        ) last ON last.id = p.id
        """,
        account_id,
        references,
    )
    return {row["reference"]: TABLE.read(row) for row in rows}


TABLE = PayoutTable(
    name="gateway_payout",
    noun="gateway payout",
    owner="account_id",
    select="SELECT p.account_id, a.merchant_id, p.fee_minor::text AS fee_minor,"
    + payout_store.COLUMNS
    + "FROM gateway_payout p JOIN provider_account a ON a.id = p.account_id"
    + payout_store.TOKENS,
    record=GatewayPayoutRecord,
)


async def record_gateway_payout(tx: Tx, new_payout: NewPayout[GatewayPayout]) -> bool:
    """Record a payout and its ledger entries; return False if it is already recorded.

    Raises `CONFLICT` if the reference is already recorded with a different amount.
    """
    payout = new_payout.payout
    if await add(tx, new_payout):
        await ledger_store.add(tx, make_gateway_payout_entries(payout))
        return True
    active_payout = await TABLE.find_active(tx, payout.account_id, new_payout.reference)
    if active_payout is None or _get_amounts(active_payout.payout) != _get_amounts(payout):
        raise ConflictError(
            f"payout {new_payout.reference!r} is already recorded with a different amount"
        )
    return False


async def reverse_gateway_payout(tx: Tx, account_id: int, reference: str, operator: str) -> bool:
    """Reverse a returned payout; return False if there is nothing to reverse.

    Gateways may list a return repeatedly, so only the first return is recorded. A payout that an
    operator has since recorded under the same reference is not reversed.
    """
    active_payout = await TABLE.find_active(tx, account_id, reference)
    # Checked second, so that a payout recorded after a concurrent reversal is left unchanged.
    if active_payout is None or await has_reversed(tx, account_id, reference, operator):
        return False
    note = "returned, according to the gateway"
    if not await TABLE.reverse(tx, active_payout.id, operator, note):
        return False
    await ledger_store.add(tx, make_gateway_payout_entries(active_payout.payout, is_reversal=True))
    return True


def _get_amounts(payout: GatewayPayout) -> tuple[int, int, str]:
    return payout.amount_minor, payout.fee_minor, payout.currency
