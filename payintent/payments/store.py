"""Read, lock and update payments."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any, LiteralString, cast
from uuid import UUID

from payintent.core import ids
from payintent.core.errors import NotFoundError, quote_input
from payintent.db.database import Executor, Row, Tx
from payintent.db.sealing import PayerSealing, is_sealed, report_unreadable
from payintent.gateways.port import FailureReason
from payintent.merchants.model import TaxManager
from payintent.payments import sessions_store as session_store
from payintent.payments.model import (
    Payment,
    PaymentStatus,
    PaymentTrigger,
    Session,
    TransitionRequest,
)
from payintent.runtime.encryption import EncryptionKeyError

_FIELDS = tuple(field.name for field in fields(Payment))
COLUMNS = cast("LiteralString", " " + ", ".join(f"p.{name}" for name in _FIELDS))
SNAPSHOT: LiteralString = "SELECT clock() AS now," + COLUMNS + "," + session_store.COLUMNS
_SELECT: LiteralString = SNAPSHOT + "FROM payment p LEFT JOIN session s ON s.id = p.session_id "
_SELECT_BY_CHECKOUT: LiteralString = _SELECT + "JOIN checkout c ON c.payment_id = p.id "
# Reading columns by position is fast, and payments are read more often than any other rows.
_get_column_values = cast("Callable[[Row], tuple[Any, ...]]", itemgetter(*_FIELDS))
_STATUS_INDEX = _FIELDS.index("status")
_PAYER_EMAIL_INDEX = _FIELDS.index("payer_email")
_METADATA_INDEX = _FIELDS.index("metadata")
_TAX_MANAGER_INDEX = _FIELDS.index("tax_manager")
_FAILURE_REASON_INDEX = _FIELDS.index("failure_reason")


@dataclass(frozen=True, slots=True)
class PaymentSnapshot:
    """A payment with its current session."""

    payment: Payment
    session: Session | None
    now: datetime  # the database's time


@dataclass(frozen=True, slots=True)
class LockedPayments:
    payments: list[Payment]
    now: datetime  # the database's time, read before the rows were locked


async def get(database: Executor, payment_id: UUID) -> PaymentSnapshot | None:
    """Return a payment. Raises `EncryptionKeyError` if it cannot be decrypted."""
    row = await database.row(_SELECT + "WHERE p.id = $1", payment_id)
    return _decrypt_snapshot(row, database.payer_sealing) if row else None


async def find_by_checkout(database: Executor, checkout_id: str) -> PaymentSnapshot | None:
    row = await database.row(_SELECT_BY_CHECKOUT + "WHERE c.id = $1", checkout_id)
    return _decrypt_snapshot(row, database.payer_sealing) if row else None


async def get_batch(
    database: Executor, payment_ids: Sequence[UUID]
) -> list[PaymentSnapshot | None]:
    """Return payments in the order of `payment_ids`, with None for missing payments.

    Values that cannot be decrypted stay sealed.
    """
    rows = await database.fetch(_SELECT + "WHERE p.id = ANY($1::uuid[]) LIMIT 10000", payment_ids)
    snapshots = {row["id"]: snapshot_from_row(row, database.payer_sealing) for row in rows}
    return [snapshots.get(payment_id) for payment_id in payment_ids]


async def find_by_checkouts(
    database: Executor, checkout_ids: Sequence[str]
) -> list[PaymentSnapshot | None]:
    """Return payments in the order of `checkout_ids`. See `get_batch`."""
    rows = await database.fetch(
        _SELECT_BY_CHECKOUT + "WHERE c.id = ANY($1::text[]) LIMIT 10000", checkout_ids
    )
    snapshots = {row["checkout_id"]: snapshot_from_row(row, database.payer_sealing) for row in rows}
    return [snapshots.get(checkout_id) for checkout_id in checkout_ids]


async def lock(tx: Tx, payment_ids: Sequence[UUID]) -> LockedPayments:
    """Lock payments in ascending id order, so that callers cannot deadlock.

    Values that cannot be decrypted stay sealed and are logged, so that the payment can still
    settle or expire. See `is_readable`.
    """
    rows = await tx.fetch(
        "SELECT clock() AS now,"
        + COLUMNS
        + """
        FROM payment p
        WHERE p.id = ANY($1::uuid[])
        ORDER BY p.id
        LIMIT 10000
        FOR UPDATE
        """,
        sorted(payment_ids),
    )
    return _payments_from_rows(tx, rows)


async def lock_payment(tx: Tx, payment_id: UUID) -> tuple[Payment, datetime]:
    """Lock a payment, and return it with the database's time. See `lock`."""
    locked_payments = await lock(tx, [payment_id])
    return locked_payments.payments[0], locked_payments.now


async def lock_due_pending(tx: Tx, limit: int) -> LockedPayments | None:
    """Lock up to `limit` PENDING payments past their deadline, earliest deadline first.

    Payments that are already locked are skipped. Returns None if no payment is due.
    """
    rows = await tx.fetch(
        "SELECT clock() AS now,"
        + COLUMNS
        + """
        FROM payment p
        WHERE p.status = 'PENDING' AND p.expires_at <= clock()
        ORDER BY p.expires_at
        LIMIT $1
        FOR UPDATE SKIP LOCKED
        """,
        limit,
    )
    return _payments_from_rows(tx, rows) if rows else None


async def lock_due_processing(tx: Tx, limit: int, timeout_s: float) -> list[PaymentSnapshot]:
    """Lock overdue PROCESSING payments that can expire or whose session must be closed.

    The session is open or has ended, or its gateway has not responded for `timeout_s`. Payments
    whose gateway is still deciding are skipped so that they do not block the queue.
    """
    rows = await tx.fetch(
        SNAPSHOT
        + """
        FROM payment p
        JOIN session s ON s.id = p.session_id
        WHERE p.status = 'PROCESSING' AND p.expires_at <= clock()
            AND (s.life IN ('open', 'ended')
                OR (s.life <> 'opening'
                    AND s.silent_since <= clock() - $2 * interval '1 second'))
        ORDER BY p.expires_at
        LIMIT $1
        FOR UPDATE OF p SKIP LOCKED
        """,
        limit,
        timeout_s,
    )
    return [snapshot_from_row(row, tx.payer_sealing) for row in rows]


async def get_oldest_processing_age_s(database: Executor) -> float:
    """Return the age in seconds of the PROCESSING payment with the earliest deadline, or 0."""
    age_s = await database.value(
        """
        SELECT extract(epoch FROM clock() - created_at)::float8 AS age_s
        FROM payment
        WHERE status = 'PROCESSING'
        ORDER BY expires_at
        LIMIT 1
        """
    )
    return age_s or 0.0


async def write_changes(tx: Tx, requests: Sequence[TransitionRequest]) -> list[Payment]:
    """Write transitions and return the updated payments. Skips payments whose version differs.

    Raises `INVALID_TRANSITION`, without writing anything, if a transition does not exist.
    """
    rows = await tx.fetch(
        """
        UPDATE payment p
        SET status = c.status,
            version = p.version + 1,
            updated_at = greatest(p.updated_at, c.at),
            session_id = coalesce(c.session_id, p.session_id),
            receipt_id = coalesce(c.receipt_id, p.receipt_id),
            failure_reason = coalesce(c.failure_reason, p.failure_reason),
            refunded_amount = p.refunded_amount + coalesce(c.refunded, 0),
            reserved_amount = p.reserved_amount - coalesce(c.refunded, 0),
            paid_at = CASE c.status WHEN 'PAID' THEN c.at ELSE p.paid_at END,
            failed_at = CASE c.status WHEN 'FAILED' THEN c.at ELSE p.failed_at END,
            expired_at = CASE c.status WHEN 'EXPIRED' THEN c.at ELSE p.expired_at END,
            cancelled_at = CASE c.status WHEN 'CANCELLED' THEN c.at ELSE p.cancelled_at END
        FROM unnest($1::uuid[], $2::int[], $3::text[], $4::timestamptz[], $5::uuid[], $6::uuid[],
            $7::text[], $8::numeric[])
            AS c (id, version, status, at, session_id, receipt_id, failure_reason, refunded)
        WHERE p.id = c.id AND p.version = c.version
        RETURNING"""
        + COLUMNS,
        [request.payment.id for request in requests],
        [request.payment.version for request in requests],
        [request.transition.new_status for request in requests],
        [request.at for request in requests],
        [request.selected_session_id for request in requests],
        [
            tx.id_generator.new_id() if request.trigger is PaymentTrigger.CONFIRM else None
            for request in requests
        ],
        [request.reason for request in requests],
        [request.refund_amount for request in requests],
    )
    return [_payment_from_row(row, tx.payer_sealing) for row in rows]


async def get_reserved_amount(tx: Tx, payment_id: UUID) -> Decimal:
    """Return the amount reserved for refunds. The payment must be locked."""
    return await tx.value("SELECT reserved_amount FROM payment WHERE id = $1", payment_id)


async def set_payer_emails(tx: Tx, emails: Mapping[UUID, str]) -> None:
    """Store the email addresses that buyers entered, replacing the merchant's values (spec 2.2)."""
    await tx.fetch(
        """
        UPDATE payment p
        SET payer_email = e.payer_email
        FROM unnest($1::uuid[], $2::text[]) AS e (id, payer_email)
        WHERE p.id = e.id
        """,
        list(emails),
        [tx.payer_sealing.seal_email(payment_id, email) for payment_id, email in emails.items()],
    )


def _payments_from_rows(tx: Tx, rows: Sequence[Row]) -> LockedPayments:
    payments = [_payment_from_row(row, tx.payer_sealing) for row in rows]
    return LockedPayments(payments, rows[0]["now"])


def is_readable(payment: Payment) -> bool:
    """Return whether all sealed values of a payment have been decrypted."""
    return not (is_sealed(payment.payer_email) or is_sealed(payment.metadata))


def snapshot_from_row(row: Row, payer_sealing: PayerSealing) -> PaymentSnapshot:
    """Build a snapshot from a `SNAPSHOT` row. Values that cannot be decrypted stay sealed."""
    session = session_store.from_row(row) if row["session_id"] is not None else None
    return PaymentSnapshot(_payment_from_row(row, payer_sealing), session, row["now"])


def _decrypt_snapshot(row: Row, payer_sealing: PayerSealing) -> PaymentSnapshot:
    session = session_store.from_row(row) if row["session_id"] is not None else None
    email = payer_sealing.unseal_email(row["id"], row["payer_email"])
    metadata = payer_sealing.unseal_metadata(row["id"], row["metadata"])
    return PaymentSnapshot(_build_payment(row, email, metadata), session, row["now"])


def _payment_from_row(row: Row, payer_sealing: PayerSealing) -> Payment:
    """Build a payment. Values that cannot be decrypted stay sealed."""
    email, metadata = row["payer_email"], row["metadata"]
    try:
        metadata = payer_sealing.unseal_metadata(row["id"], metadata)
        email = payer_sealing.unseal_email(row["id"], email)
    except EncryptionKeyError as error:
        report_unreadable("payment", row["id"], error)
    return _build_payment(row, email, metadata)


def _build_payment(row: Row, payer_email: str | None, metadata: str) -> Payment:
    values = list(_get_column_values(row))
    values[_PAYER_EMAIL_INDEX] = payer_email
    values[_METADATA_INDEX] = metadata
    values[_STATUS_INDEX] = PaymentStatus(values[_STATUS_INDEX])
    values[_TAX_MANAGER_INDEX] = TaxManager(values[_TAX_MANAGER_INDEX])
    if values[_FAILURE_REASON_INDEX] is not None:
        values[_FAILURE_REASON_INDEX] = FailureReason(values[_FAILURE_REASON_INDEX])
    return Payment(*values)


async def get_change_markers(database: Executor, payment_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return, for each payment, a marker that changes whenever the checkout page changes.

    It covers the payment's version, the session's status and its chain transfers. If there is a
    transfer, it also covers the chain head, which determines the number of confirmations. Final
    deposits are included, because a transfer can be final when it is first seen.
    """
    rows = await database.fetch(
        """
        SELECT p.id, concat_ws('/', p.version, s.life, s.declines, h.states, g.seen, r.deposits,
            CASE WHEN g.seen IS NOT NULL THEN k.head END) AS mark
        FROM payment p
        LEFT JOIN session s ON s.id = p.session_id
        LEFT JOIN chain_cursor k ON k.chain = s.chain
        LEFT JOIN LATERAL (
            SELECT string_agg(encode(tx_hash, 'hex') || state || final, ',' ORDER BY tx_hash)
                AS states
            FROM chain_hint
            WHERE session_id = s.id AND s.chain IS NOT NULL
        ) h ON true
        LEFT JOIN LATERAL (
            SELECT md5(string_agg(encode(tx_hash, 'hex') || (gone_at IS NULL), ','
                ORDER BY tx_hash)) AS seen
            FROM chain_sighting
            WHERE session_id = s.id AND s.chain IS NOT NULL
        ) g ON true
        LEFT JOIN LATERAL (
            SELECT count(*) AS deposits
            FROM chain_receipt
            WHERE session_id = s.id AND s.chain IS NOT NULL
        ) r ON true
        WHERE p.id = ANY($1::uuid[])
        """,
        payment_ids,
    )
    return {row["id"]: row["mark"] for row in rows}


async def require_payment(database: Executor, payment_id: str) -> PaymentSnapshot:
    """Return a payment with its session. Raises `NOT_FOUND` if it does not exist."""
    uuid = ids.parse_id(ids.PAYMENT, payment_id)
    snapshot = await get(database, uuid) if uuid else None
    if snapshot is None:
        raise NotFoundError(f"no payment {quote_input(payment_id)}")
    return snapshot
