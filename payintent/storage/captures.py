"""Captures: money that a gateway or a chain says it took."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.domain.case import MoneyOrigin
from payintent.domain.gateway import Capture
from payintent.storage.database import Row, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedCapture:
    """A locked capture: what is left of it, and where it came from."""

    id: UUID
    account_id: int
    provider: str
    merchant_id: int | None
    payment_id: UUID | None
    currency: str
    amount_minor: int
    remaining_minor: int  # neither refunded nor reserved
    left_minor: int  # of that, what no dispute holds
    credited: bool
    chain: str | None
    payer: bytes | None  # on its chain
    approval_above_minor: int | None  # more than this in a day needs a second person
    token_decimals: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A capture, and whose it is."""

    id: UUID
    merchant_id: int | None
    payment_id: UUID | None
    session_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierReport:
    """A locked capture that was reported before."""

    id: UUID
    adoptable: bool  # it came for a session that nobody knew
    given_back: bool  # some of it went back, or is promised back


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownCapture:
    """A capture that was kept without a session."""

    id: UUID
    merchant_id: int | None  # whose the account is; None: the platform's
    at: datetime


async def find_reported(tx: Tx, account_id: int, reference: str) -> EarlierReport | None:
    """Lock a capture that was reported before; its session is locked before."""
    row = await tx.row(
        """
        SELECT id, session_id IS NULL AND receipt_id IS NULL AS adoptable,
            refunded_minor + reserved_minor > 0 AS given_back
        FROM capture
        WHERE account_id = $1 AND reference = $2
        FOR UPDATE
        """,
        account_id,
        reference,
    )
    return EarlierReport(**row) if row else None


async def add_unknown(
    tx: Tx, capture_id: UUID, account_id: int, callback_id: str, capture: Capture
) -> UnknownCapture | None:
    """Keep a capture for a session that nobody knows; None where it was reported before."""
    row = await tx.row(
        """
        INSERT INTO capture
            (id, account_id, reference, callback_id, currency, amount_minor, credited, captured_at)
        VALUES ($1, $2, $3, $4, $5, $6, false, clock())
        ON CONFLICT ON CONSTRAINT capture_reference DO NOTHING
        RETURNING id, captured_at AS at,
            (SELECT merchant_id FROM provider_account WHERE id = $2) AS merchant_id
        """,
        capture_id,
        account_id,
        capture.reference,
        callback_id,
        capture.currency,
        capture.amount_minor,
    )
    return UnknownCapture(**row) if row else None


async def adopt(tx: Tx, capture_id: UUID, origin: MoneyOrigin, *, credited: bool) -> None:
    """Give a locked capture to the session that it was taken for, which has appeared since."""
    await tx.fetch(
        """
        UPDATE capture
        SET session_id = $2, payment_id = $3, credited = $4
        WHERE id = $1
        """,
        capture_id,
        origin.session_id,
        origin.payment_id,
        credited,
    )


async def add(
    tx: Tx,
    capture_id: UUID,
    account_id: int,
    origin: MoneyOrigin,
    capture: Capture,
    at: datetime,
    *,
    credited: bool,
) -> None:
    """Keep a capture that nobody reported before."""
    await tx.fetch(
        """
        INSERT INTO capture
            (id, account_id, reference, session_id, payment_id, currency, amount_minor, credited,
             captured_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        """,
        capture_id,
        account_id,
        capture.reference,
        origin.session_id,
        origin.payment_id,
        capture.currency,
        capture.amount_minor,
        credited,
        at,
    )


async def find(tx: Tx, account_id: int, reference: str) -> Found | None:
    """Find a capture by its provider's name for it."""
    row = await tx.row(
        """
        SELECT c.id, c.payment_id, c.session_id,
            coalesce(p.merchant_id, a.merchant_id) AS merchant_id
        FROM capture c
        JOIN provider_account a ON a.id = c.account_id
        LEFT JOIN payment p ON p.id = c.payment_id
        WHERE c.account_id = $1 AND c.reference = $2
        """,
        account_id,
        reference,
    )
    return Found(**row) if row else None


async def lock(tx: Tx, capture_id: UUID) -> LockedCapture:
    """Lock a capture, to give back of it; its payment must be locked before."""
    row = await tx.row(_HELD + "WHERE c.id = $1 FOR UPDATE OF c", capture_id)
    assert row is not None  # noqa: S101 - captures are never deleted
    return _held(row)


async def lock_credited(tx: Tx, payment_id: UUID) -> LockedCapture:
    """Lock the capture that paid a payment, which is locked and was paid."""
    row = await tx.row(_HELD + "WHERE c.payment_id = $1 AND c.credited FOR UPDATE OF c", payment_id)
    assert row is not None  # noqa: S101 - what is PAID has one
    return _held(row)


_HELD = """
    SELECT c.id, c.account_id, a.provider, p.merchant_id, c.payment_id, c.currency, c.amount_minor,
        c.amount_minor - c.refunded_minor - c.reserved_minor AS remaining_minor,
        greatest(c.amount_minor - c.refunded_minor - c.reserved_minor - c.disputed_minor, 0)
            AS left_minor,
        c.credited, r.chain, r.payer,
        trunc(h.refund_approval_above * 10::numeric ^ t.decimals) AS approval_above_minor,
        t.decimals AS token_decimals
    FROM capture c
    JOIN provider_account a ON a.id = c.account_id
    LEFT JOIN payment p ON p.id = c.payment_id
    LEFT JOIN chain_receipt r ON r.id = c.receipt_id
    LEFT JOIN chain h ON h.slug = r.chain
    LEFT JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
"""


def _held(row: Row) -> LockedCapture:
    values = dict(row)
    for name in ("amount_minor", "remaining_minor", "left_minor"):
        values[name] = int(values[name])
    above = values["approval_above_minor"]
    unknown_token = values["chain"] is not None and above is None
    values["approval_above_minor"] = 0 if unknown_token else above and int(above)
    return LockedCapture(**values)


async def has_auto_refund(tx: Tx, merchant_id: int) -> bool:
    """Tell whether a merchant gives back at once what no payment may own."""
    row = await tx.row("SELECT auto_refund FROM merchant WHERE id = $1", merchant_id)
    return row is not None and row["auto_refund"]
