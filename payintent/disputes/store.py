"""Store disputes and the amounts that they hold, and list disputes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import LiteralString
from uuid import UUID

from payintent.accounting import ledger_store
from payintent.core import ids
from payintent.core.money import format_smallest_units
from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import SCANNED_MAX, KeysetList, build
from payintent.disputes.model import Dispute
from payintent.gateways.port import DisputedFunds, DisputeState

_COLUMNS = """
    d.id, d.capture_id, d.case_id, d.account_id, d.reference, d.state, d.funds, d.amount_minor,
    d.currency, d.reason, d.respond_by
"""


async def lock(tx: Tx, account_id: int, reference: str) -> Dispute | None:
    """Lock a dispute by the gateway's reference. Its capture must already be locked."""
    row = await tx.row(
        "SELECT"
        + _COLUMNS
        + """
        FROM dispute d
        WHERE d.account_id = $1 AND d.reference = $2
        FOR NO KEY UPDATE
        """,
        account_id,
        reference,
    )
    return _build_dispute(row) if row else None


async def has_undecided(tx: Tx, capture_id: UUID) -> bool:
    """Return whether an undecided dispute holds some of a capture's money."""
    return await tx.value(
        """
        SELECT EXISTS (
            SELECT FROM dispute WHERE capture_id = $1 AND held_minor > 0 AND state <> 'lost'
        )
        """,
        capture_id,
    )


async def write(tx: Tx, dispute: Dispute) -> None:
    """Store a new or changed dispute, and the amount that it holds."""
    await tx.fetch(
        """
        INSERT INTO dispute
            (id, account_id, reference, capture_id, case_id, state, funds, amount_minor, currency,
             reason, respond_by, held_minor)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        ON CONFLICT (id) DO UPDATE
        SET state = excluded.state, funds = excluded.funds, amount_minor = excluded.amount_minor,
            currency = excluded.currency, reason = excluded.reason,
            respond_by = excluded.respond_by, held_minor = excluded.held_minor,
            updated_at = clock()
        """,
        dispute.id,
        dispute.account_id,
        dispute.reference,
        dispute.capture_id,
        dispute.case_id,
        dispute.state,
        dispute.funds,
        Decimal(dispute.amount_minor),
        dispute.currency,
        dispute.reason,
        dispute.respond_by,
        Decimal(dispute.held_minor),
    )
    await _update_disputed_amount(tx, dispute.capture_id)


async def _update_disputed_amount(tx: Tx, capture_id: UUID) -> None:
    """Update a capture's disputed amount and write a ledger entry. The capture must be locked.

    A dispute in a different currency holds the full capture.
    """
    await tx.fetch(
        """
        UPDATE capture c
        SET disputed_minor = (
            SELECT coalesce(sum(
                CASE WHEN d.currency = c.currency OR d.held_minor = 0
                    THEN d.held_minor ELSE c.amount_minor END), 0)
            FROM dispute d
            WHERE d.capture_id = c.id
        )
        WHERE c.id = $1
        """,
        capture_id,
    )
    await ledger_store.record_disputes(tx, [capture_id])


def _build_dispute(row: Row) -> Dispute:
    return build(
        Dispute,
        row,
        amount_minor=int(row["amount_minor"]),
        state=DisputeState(row["state"]),
        funds=DisputedFunds(row["funds"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeFilter:
    """Filters for dispute lists; filters that are None are ignored."""

    merchant_id: int | None = None
    only_running: bool = True  # only disputes that the bank has not decided
    payment_ids: Sequence[UUID] | None = None
    currency: str | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None
    oldest_first: bool = False
    last: UUID | None = None  # the last dispute on the previous page


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeDetails:
    id: UUID
    reference: str  # the gateway's dispute id
    state: str
    funds: str  # untouched, withdrawn or reinstated
    amount: str | None
    amount_minor: str
    currency: str
    reason: str
    respond_by: datetime | None
    case_id: str
    case_status: str
    payment_id: str | None
    merchant_id: int | None
    account_id: int
    created_at: datetime
    updated_at: datetime


def _build_list(*where: LiteralString, oldest_first: bool = False) -> KeysetList:
    return KeysetList("SELECT id FROM dispute", "id", *where, oldest_first=oldest_first).as_cte(
        "candidate AS",
        SCANNED_MAX,
        """
        SELECT d.id, d.case_id, m.status AS case_status, m.merchant_id, m.payment_id,
            d.account_id, d.reference, d.state, d.funds, d.amount_minor::text AS amount_minor,
            d.currency, d.reason, d.respond_by, d.created_at, d.updated_at
        FROM candidate n
        CROSS JOIN LATERAL (SELECT * FROM dispute WHERE id = n.id LIMIT 1) d
        CROSS JOIN LATERAL (
            SELECT status, merchant_id, payment_id FROM money_case WHERE id = d.case_id LIMIT 1
        ) m
        """,
        "n.id",
        merchant_id="m.merchant_id = {}",
        payment_ids="m.payment_id = ANY({}::uuid[])",
        currency="d.currency = {}",
        created_from="d.created_at >= {}",
        created_before="d.created_at < {}",
    )


_IS_RUNNING: LiteralString = "state IN ('inquiry', 'open', 'under_review')"


def _build_lists(*where: LiteralString) -> dict[bool, KeysetList]:
    """Return the list for each value of `oldest_first`."""
    return {order: _build_list(*where, oldest_first=order) for order in (False, True)}


_ALL, _RUNNING = _build_lists(), _build_lists(_IS_RUNNING)
_BY_PAYMENT = _build_lists(
    "case_id IN (SELECT id FROM money_case WHERE payment_id = ANY({payment_ids}::uuid[]))",
    "(NOT {only_running}::boolean OR " + _IS_RUNNING + ")",
)


def _choose_list(dispute_filter: DisputeFilter) -> KeysetList:
    lists = _RUNNING if dispute_filter.only_running else _ALL
    if dispute_filter.payment_ids is not None:
        lists = _BY_PAYMENT
    return lists[dispute_filter.oldest_first]


async def list_disputes(
    database: Executor, dispute_filter: DisputeFilter, limit: int
) -> list[DisputeDetails]:
    """List disputes; filters apply only to the first 10,000 disputes."""
    dispute_list = _choose_list(dispute_filter)
    rows = await dispute_list.page(database, dispute_filter.last, limit, **asdict(dispute_filter))
    return [
        build(
            DisputeDetails,
            row,
            amount=format_smallest_units(
                int(row["amount_minor"]), row["currency"], None, on_chain=False
            ),
            case_id=ids.format_id(ids.CASE, row["case_id"]),
            payment_id=row["payment_id"] and ids.format_id(ids.PAYMENT, row["payment_id"]),
        )
        for row in rows
    ]
