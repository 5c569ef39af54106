"""Refunds as an operator works on them: listed, shown, approved."""

from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import LiteralString
from uuid import UUID

from payintent.domain.refund import OUTSIDE
from payintent.storage.database import Executor, Tx
from payintent.storage.lists import SCANNED_MAX, KeysetList


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundReview:
    id: UUID
    status: str
    step: str
    failure_reason: str | None
    merchant_id: int | None
    payment_id: UUID | None
    capture_id: UUID
    case_id: UUID | None
    account_id: int
    provider: str
    capture_reference: str
    capture_currency: str
    amount_text: str | None  # of the payment's amount
    currency: str
    amount_minor: str  # what the gateway refunds, in the capture's smallest units
    token_symbol: str | None  # of a token that is taken on its chain
    token_decimals: int | None
    chain: str | None
    payer: bytes | None  # the sender's address on its chain
    destination: str | None
    reason: str | None
    requested_by: str
    approved_by: str | None
    note: str
    reference: str | None  # the gateway's own id of the refund
    inquiries: int
    sent_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundFilter:
    """Which refunds to list; None means any."""

    merchant_id: int | None = None
    payment_id: UUID | None = None
    status: str | None = None
    step: str | None = None
    currency: str | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None
    updated_from: datetime | None = None
    updated_before: datetime | None = None
    oldest_first: bool = False  # of refunds that need approval
    last: UUID | None = None  # ended the page before


_ASKED = """
    SELECT f.id, f.status, f.step, f.failure_reason, f.merchant_id, f.payment_id, f.capture_id,
        f.case_id, c.account_id, a.provider, c.reference AS capture_reference,
        c.currency AS capture_currency, f.amount_text, f.currency,
        f.amount_minor::text AS amount_minor, r.chain, r.payer, f.destination, f.reason,
        f.requested_by, f.approved_by, f.note, f.reference, f.inquiries, f.sent_at, f.created_at,
        f.updated_at,
        t.symbol AS token_symbol, t.decimals AS token_decimals
    FROM refund f
    JOIN capture c ON c.id = f.capture_id
    JOIN provider_account a ON a.id = c.account_id
    LEFT JOIN chain_receipt r ON r.id = c.receipt_id
    LEFT JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
"""


# Each begins at an index; what no index holds in order is looked for among the newest.
_SCANNED: LiteralString = (
    "SELECT id, merchant_id, payment_id, status, step, currency, created_at, updated_at FROM "
)
_UNDER_WAY: LiteralString = (
    "((" + _SCANNED + "refund WHERE step IN ('queued', 'sent') ORDER BY next_at LIMIT 10000)"
    " UNION ALL (" + _SCANNED + "refund WHERE step = 'approval' ORDER BY id LIMIT 10000)) u"
)


def _refunds(
    *index: LiteralString, source: LiteralString = "refund", oldest_first: bool = False
) -> KeysetList:
    return (
        KeysetList(_SCANNED + source, "id", *index, oldest_first=oldest_first)
        .within(
            "first AS MATERIALIZED",
            SCANNED_MAX,
            "SELECT id FROM first",
            "id",
            merchant_id="merchant_id = {}",
            payment_id="payment_id = {}",
            status="status = {}",
            step="step = {}",
            currency="currency = {}",
            created_from="created_at >= {}",
            created_before="created_at < {}",
            updated_from="updated_at >= {}",
            updated_before="updated_at < {}",
        )
        .within(
            "chosen AS MATERIALIZED",
            "{limit}",
            _ASKED + "JOIN chosen n ON n.id = f.id",
            "f.id",
        )
    )


_NEWEST, _OF_PAYMENT = _refunds(), _refunds("payment_id = {payment_id}")
_OF_MERCHANT = _refunds("merchant_id = {merchant_id}")
_OF_UNDER_WAY = _refunds(source=_UNDER_WAY)
_WAITING = _refunds("step = 'approval'")
_WAITING_LONGEST = _refunds("step = 'approval'", oldest_first=True)


async def list_refunds(database: Executor, wanted: RefundFilter, limit: int) -> list[RefundReview]:
    """List refunds; if no index holds them in order, of the newest 10,000."""
    if wanted.oldest_first:
        refunds = _WAITING_LONGEST
    elif wanted.payment_id is not None:
        refunds = _OF_PAYMENT
    elif wanted.step == "approval":
        refunds = _WAITING
    elif wanted.status == "PENDING" or wanted.step in {"queued", "sent"}:
        refunds = _OF_UNDER_WAY
    else:
        refunds = _NEWEST if wanted.merchant_id is None else _OF_MERCHANT
    rows = await refunds.page(database, wanted.last, limit, **asdict(wanted))
    return [RefundReview(**row) for row in rows]


async def get(database: Executor, refund_id: UUID) -> RefundReview | None:
    row = await database.row(_ASKED + "WHERE f.id = $1", refund_id)
    return RefundReview(**row) if row else None


async def approve(tx: Tx, refund_id: UUID, approved_by: str, note: str, at: datetime) -> None:
    """Approve a locked refund that waits for approval, so that it is sent."""
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


async def sum_unapproved(tx: Tx, merchant_id: int | None, chain: str) -> Decimal:
    """Sum up what a merchant refunded on a chain within a day without a second operator, in tokens.

    Until the end of the transaction no other can add to it. A token that is not at its address
    any more adds nothing: its refunds always need a second operator.
    """
    await tx.fetch(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
        f"refund approval {merchant_id} {chain}",
    )
    row = await tx.row(
        """
        SELECT coalesce(sum(f.amount_minor / 10::numeric ^ t.decimals), 0) AS tokens
        FROM refund f
        JOIN capture c ON c.id = f.capture_id
        JOIN chain_receipt r ON r.id = c.receipt_id
        JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
        WHERE (f.merchant_id = $1 OR f.merchant_id IS NULL AND $1::bigint IS NULL)
            AND r.chain = $2 AND f.destination IS NOT NULL AND f.approved_by IS NULL
            AND f.created_at > clock() - interval '1 day'
            AND f.step <> 'approval' AND f.status <> 'FAILED'
        """,
        merchant_id,
        chain,
    )
    assert row is not None  # noqa: S101 - a sum is always one row
    return row["tokens"]


async def sum_unapproved_at_gateways(tx: Tx, merchant_id: int, currency: str) -> Decimal:
    """Sum up what a merchant refunded at gateways within a day without a second operator.

    In smallest units of the currency in which gateways took the money. Until the end of the
    transaction no other can add to it. Refunds made at a gateway itself do not count.
    """
    await tx.fetch(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
        f"refund approval {merchant_id} at gateways in {currency}",
    )
    row = await tx.row(
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
        OUTSIDE,
    )
    assert row is not None  # noqa: S101 - a sum is always one row
    return row["amount_minor"]
