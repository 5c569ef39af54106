"""List and approve refunds, and sum the unapproved refunds of the last day."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import LiteralString
from uuid import UUID

from payintent.core import ids
from payintent.core.money import format_smallest_units
from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import LAST_ID, SCANNED_MAX, KeysetList, build
from payintent.refunds import store as refund_store
from payintent.refunds.address_store import CAN_ENTER_ADDRESS
from payintent.refunds.model import OUTSIDE_REQUESTER, Refund


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundDetails:
    id: str
    status: str
    step: str
    failure_reason: str | None
    merchant_id: int | None
    payment_id: str | None
    case_id: str | None
    provider: str
    account_id: int
    capture_reference: str
    amount: str | None  # in the payment's currency; None for refunds of cases
    currency: str
    amount_minor: str  # in the capture's smallest units
    goes_back: str | None  # `amount_minor` with its currency; None if decimals are unknown
    chain: str | None
    payer: str | None  # the sender's on-chain address
    destination: str | None
    address_entries: int  # for a deposit: the number of times the buyer has entered the destination
    can_enter_address: bool  # for a deposit: whether the buyer can enter or correct it
    reason: str | None
    requested_by: str
    approved_by: str | None
    note: str
    reference: str | None  # the gateway's refund id
    inquiries: int
    sent_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundFilter:
    """Filters for refund lists; filters that are None are ignored."""

    merchant_id: int | None = None
    payment_ids: Sequence[UUID] | None = None
    status: str | None = None
    step: str | None = None
    currency: str | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None
    updated_from: datetime | None = None
    updated_before: datetime | None = None
    oldest_first: bool = False
    last: UUID | None = None  # the last refund on the previous page


_SELECT_DETAILS = f"""
    SELECT f.id, f.status, f.step, f.failure_reason, f.merchant_id, f.payment_id, f.case_id,
        c.account_id, a.provider, c.reference AS capture_reference,
        c.currency AS capture_currency, f.amount_text AS amount, f.currency,
        f.amount_minor::text AS amount_minor, r.chain, '0x' || encode(r.payer, 'hex') AS payer,
        f.destination, f.address_entries,
        r.disposition = 'deposit' AND {CAN_ENTER_ADDRESS} AS can_enter_address, f.reason,
        f.requested_by, f.approved_by, f.note, f.reference, f.inquiries,
        f.sent_at, f.created_at, f.updated_at,
        t.symbol AS token_symbol, t.decimals AS token_decimals
    FROM refund f
    JOIN capture c ON c.id = f.capture_id
    JOIN provider_account a ON a.id = c.account_id
    LEFT JOIN chain_receipt r ON r.id = c.receipt_id
    LEFT JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
"""


# Each list uses an index.
_SELECT_LIST_COLUMNS: LiteralString = (
    "SELECT id, merchant_id, payment_id, status, step, currency, created_at, updated_at FROM "
)
_PENDING: LiteralString = (
    "(("
    + _SELECT_LIST_COLUMNS
    + "refund WHERE step IN ('queued', 'sent') ORDER BY next_at LIMIT 10000)"
    " UNION ALL (" + _SELECT_LIST_COLUMNS + "refund WHERE step = 'address' ORDER BY id LIMIT 10000)"
    " UNION ALL ("
    + _SELECT_LIST_COLUMNS
    + "refund WHERE step = 'approval' ORDER BY id LIMIT 10000)) u"
)


def _build_list(
    *index: LiteralString, source: LiteralString = "refund", oldest_first: bool = False
) -> KeysetList:
    return (
        KeysetList(_SELECT_LIST_COLUMNS + source, "id", *index, oldest_first=oldest_first)
        .as_cte(
            "first AS MATERIALIZED",
            SCANNED_MAX,
            "SELECT id FROM first",
            "id",
            merchant_id="merchant_id = {}",
            payment_ids="payment_id = ANY({}::uuid[])",
            status="status = {}",
            step="step = {}",
            currency="currency = {}",
            created_from="created_at >= {}",
            created_before="created_at < {}",
            updated_from="updated_at >= {}",
            updated_before="updated_at < {}",
        )
        .as_cte(
            "chosen AS MATERIALIZED",
            "{limit}",
            _SELECT_DETAILS + "JOIN chosen n ON n.id = f.id",
            "f.id",
        )
    )


def _build_lists(*index: LiteralString, source: LiteralString = "refund") -> dict[bool, KeysetList]:
    """Build the list for each value of `oldest_first`."""
    return {
        order: _build_list(*index, source=source, oldest_first=order) for order in (False, True)
    }


_ALL_REFUNDS = _build_lists()
_PAYMENT_REFUNDS = _build_lists("payment_id = ANY({payment_ids}::uuid[])")
_MERCHANT_REFUNDS = _build_lists("merchant_id = {merchant_id}")
_PENDING_REFUNDS = _build_lists(source=_PENDING)
_UNDECIDED_REFUNDS = {
    "address": _build_lists("step = 'address'"),
    "approval": _build_lists("step = 'approval'"),
}


async def list_refunds(
    database: Executor, criteria: RefundFilter, limit: int
) -> list[RefundDetails]:
    """List refunds. Filters that no index covers apply only to the first 10,000 refunds."""
    if criteria.payment_ids is not None:
        lists = _PAYMENT_REFUNDS
    elif criteria.step in _UNDECIDED_REFUNDS:
        lists = _UNDECIDED_REFUNDS[criteria.step]
    elif criteria.status == "PENDING" or criteria.step in {"queued", "sent"}:
        lists = _PENDING_REFUNDS
    else:
        lists = _ALL_REFUNDS if criteria.merchant_id is None else _MERCHANT_REFUNDS
    refunds = lists[criteria.oldest_first]
    rows = await refunds.page(database, criteria.last, limit, **asdict(criteria))
    return [_from_row(row) for row in rows]


async def get(database: Executor, refund_id: UUID) -> RefundDetails | None:
    row = await database.row(_SELECT_DETAILS + "WHERE f.id = $1", refund_id)
    return _from_row(row) if row else None


def _from_row(row: Row) -> RefundDetails:
    currency = row["token_symbol"] or row["capture_currency"]
    amount = format_smallest_units(
        int(row["amount_minor"]),
        currency,
        row["token_decimals"],
        on_chain=row["chain"] is not None,
    )
    return build(
        RefundDetails,
        row,
        id=ids.format_id(ids.REFUND, row["id"]),
        payment_id=row["payment_id"] and ids.format_id(ids.PAYMENT, row["payment_id"]),
        case_id=row["case_id"] and ids.format_id(ids.CASE, row["case_id"]),
        can_enter_address=bool(row["can_enter_address"]),
        goes_back=None if amount is None else f"{amount} {currency}",
    )


async def approve(tx: Tx, refund_id: UUID, approved_by: str, note: str, at: datetime) -> None:
    """Approve and queue a refund. The refund must be locked."""
    await tx.fetch(
        """
        UPDATE refund
        SET step = 'queued', next_at = $4, approved_by = $2, note = $3, updated_at = $4
        WHERE id = $1 AND step = 'approval'
        """,
        refund_id,
        approved_by,
        note,
        at,
    )


async def add_note(tx: Tx, refund_id: UUID, note: str) -> None:
    await tx.fetch("UPDATE refund SET note = $2 WHERE id = $1", refund_id, note)


async def sum_unapproved_on_chain(
    tx: Tx, merchant_id: int | None, chain: str, except_refund: UUID | None = None
) -> Decimal:
    """Return a merchant's total of unapproved refunds on a chain in the last day, in tokens.

    A refund of a deposit counts from the day on which its buyer enters the address.

    Takes a lock, so that no concurrent transaction can add to the total. Tokens that are no longer
    configured do not count, because their refunds always need a second operator.
    """
    await tx.fetch(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
        f"refund approval {merchant_id} {chain}",
    )
    return await tx.value(
        """
        SELECT coalesce(sum(f.amount_minor / 10::numeric ^ t.decimals), 0) AS tokens
        FROM refund f
        JOIN capture c ON c.id = f.capture_id
        JOIN chain_receipt r ON r.id = c.receipt_id
        JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
        WHERE (f.merchant_id = $1 OR f.merchant_id IS NULL AND $1::bigint IS NULL)
            AND r.chain = $2 AND f.destination IS NOT NULL AND f.approved_by IS NULL
            AND f.updated_at > clock() - interval '1 day'
            AND (f.created_at > clock() - interval '1 day' OR f.address_entries > 0)
            AND f.step <> 'approval' AND f.status <> 'FAILED' AND f.id IS DISTINCT FROM $3
        """,
        merchant_id,
        chain,
        except_refund,
    )


async def sum_unapproved_at_gateways(tx: Tx, merchant_id: int, currency: str) -> Decimal:
    """Return a merchant's total of unapproved gateway refunds in the last day.

    The total is in the smallest units of the captures' currency. Refunds made directly at the
    gateway do not count. Takes a lock, so that no concurrent transaction can add to the total.
    """
    await tx.fetch(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
        f"refund approval {merchant_id} at gateways in {currency}",
    )
    return await tx.value(
        """
        SELECT coalesce(sum(f.amount_minor), 0) AS amount_minor
        FROM refund f
        JOIN capture c ON c.id = f.capture_id
        WHERE f.merchant_id = $1 AND c.currency = $2 AND c.receipt_id IS NULL
            AND f.updated_at > clock() - interval '1 day'
            AND f.created_at > clock() - interval '1 day'
            AND f.approved_by IS NULL AND f.requested_by <> $3
            AND f.step <> 'approval' AND f.status <> 'FAILED'
        """,
        merchant_id,
        currency,
        OUTSIDE_REQUESTER,
    )


_MAX_TIME = datetime.max.replace(tzinfo=UTC)
_SELECT_REFUNDS: LiteralString = "SELECT" + refund_store.COLUMNS + "FROM refund r"
_NEWEST_PAYMENT_REFUNDS = KeysetList(
    _SELECT_REFUNDS, "r.id", "r.payment_id = {payment_id} AND r.case_id IS NULL"
)
_NEWEST_ORDER_REFUNDS = KeysetList(
    _SELECT_REFUNDS,
    "r.id",
    "r.payment_id = ANY({payment_ids}::uuid[]) AND r.case_id IS NULL",
    status="r.status = {}",
)
_NEWEST_MERCHANT_REFUNDS = KeysetList(
    _SELECT_REFUNDS,
    "r.id",
    "r.payment_id IS NOT NULL AND r.case_id IS NULL",
    merchant="r.merchant_id",
)


def _build_list_by_update(*where: LiteralString) -> KeysetList:
    return KeysetList(
        _SELECT_REFUNDS,
        "r.updated_at, r.id",
        "r.merchant_id = {merchant_id} AND r.payment_id IS NOT NULL AND r.case_id IS NULL",
        *where,
        updated_since="r.updated_at >= {}",
    )


_UPDATED_REFUNDS = _build_list_by_update()
_UPDATED_REFUNDS_BY_STATUS = _build_list_by_update("r.status = {status}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantRefundFilter:
    merchant_id: int
    status: str | None = None
    updated_since: datetime | None = None
    before: tuple[datetime, UUID] | None = None  # keyset cursor: (updated_at, id)


async def list_for_payment(
    database: Executor, payment_id: UUID, before: UUID | None, limit: int
) -> list[Refund]:
    """List a payment's refunds, newest first. Refunds of cases are excluded."""
    rows = await _NEWEST_PAYMENT_REFUNDS.page(database, before, limit, payment_id=payment_id)
    return [refund_store.from_row(row) for row in rows]


async def list_for_order(
    database: Executor,
    payment_ids: Sequence[UUID],
    before: UUID | None,
    limit: int,
    *,
    status: str | None = None,
) -> list[Refund]:
    """List the refunds of an order's payments, newest first. Refunds of cases are excluded."""
    rows = await _NEWEST_ORDER_REFUNDS.page(
        database, before, limit, payment_ids=payment_ids, status=status
    )
    return [refund_store.from_row(row) for row in rows]


async def list_for_merchant(
    database: Executor, merchant_id: int, before: UUID | None, limit: int
) -> list[Refund]:
    """List a merchant's refunds, newest first. Refunds of cases are excluded."""
    rows = await _NEWEST_MERCHANT_REFUNDS.page(database, before, limit, merchant_id=merchant_id)
    return [refund_store.from_row(row) for row in rows]


async def list_by_update(
    database: Executor, criteria: MerchantRefundFilter, limit: int
) -> list[Refund]:
    """List a merchant's refunds, most recently updated first. Refunds of cases are excluded.

    Filtering by status uses a separate index, so that rare statuses are found quickly.
    """
    refund_list = _UPDATED_REFUNDS if criteria.status is None else _UPDATED_REFUNDS_BY_STATUS
    cursor = criteria.before or (_MAX_TIME, LAST_ID)
    rows = await refund_list.page(database, cursor, limit, **asdict(criteria))
    return [refund_store.from_row(row) for row in rows]
