"""Open, update and close cases. No other module writes to the `money_case` table."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.accounting import ledger_store
from payintent.cases.model import AUTO_REFUND_KINDS, CaseKind
from payintent.db.database import Executor, Tx
from payintent.payments.captures_store import MoneyOrigin

STATUSES = ("OPEN", "REFUNDED", "ACCEPTED", "DISMISSED")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRecord:
    """A case's status, and whether its money can be refunded."""

    id: UUID
    kind: str
    status: str
    payment_id: UUID | None
    capture_id: UUID | None
    credited: bool  # the money belongs to a payment, which must be refunded instead
    holds_money: bool  # whether this kind of case holds its capture's money
    refund_id: UUID | None  # the latest refund of the case's money
    refund_status: str | None


async def get(database: Executor, case_id: UUID) -> CaseRecord | None:
    row = await database.row(
        f"""
        SELECT m.id, m.kind, m.status, m.payment_id, m.capture_id,
            coalesce(c.credited, false) AS credited,
            m.kind NOT IN {ledger_store.KINDS_WITHOUT_MONEY} AS holds_money,
            f.id AS refund_id, f.status AS refund_status
        FROM money_case m
        LEFT JOIN capture c ON c.id = m.capture_id
        LEFT JOIN LATERAL (
            SELECT id, status
            FROM refund
            WHERE case_id = m.id
            ORDER BY id DESC
            LIMIT 1
        ) f ON true
        WHERE m.id = $1
        """,
        case_id,
    )
    return CaseRecord(**row) if row else None


async def lock(tx: Tx, case_id: UUID) -> None:
    """Lock a case. If you also need its payment, capture or refund, lock that first."""
    await tx.row("SELECT id FROM money_case WHERE id = $1 FOR NO KEY UPDATE", case_id)


async def add_note(tx: Tx, case_id: UUID, note: str) -> None:
    """Append a note if the case is open."""
    await tx.fetch(
        """
        UPDATE money_case
        SET note = coalesce(nullif(note, '') || '; ', '') || $2::text
        WHERE id = $1 AND status = 'OPEN'
        """,
        case_id,
        note,
    )


async def close(tx: Tx, case_id: UUID, status: str, closed_by: str, note: str) -> None:
    """Close an open case and append a note."""
    await tx.fetch(
        """
        UPDATE money_case
        SET status = $2, closed_at = clock(), closed_by = $3,
            note = coalesce(nullif(note, '') || '; ', '') || $4::text
        WHERE id = $1 AND status = 'OPEN'
        """,
        case_id,
        status,
        closed_by,
        note,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCase:
    """A case to open, unless a case of this kind already exists for the same objects."""

    id: UUID
    kind: CaseKind
    origin: MoneyOrigin
    capture_id: UUID | None = None
    receipt_id: UUID | None = None  # of a chain transfer
    refund_id: UUID | None = None
    subject: str | None = None
    note: str = ""
    opened_at: datetime | None = None  # default: now


async def open_cases(tx: Tx, cases: Sequence[NewCase]) -> set[UUID]:
    """Open the cases that do not exist yet, and return the ids of the new cases."""
    if not cases:
        return set()
    rows = await tx.fetch(
        """
        INSERT INTO money_case
            (id, kind, merchant_id, payment_id, session_id, capture_id, receipt_id, refund_id,
             subject, note, opened_at)
        SELECT id, kind, merchant_id, payment_id, session_id, capture_id, receipt_id, refund_id,
            subject, note, coalesce(opened_at, clock())
        FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::uuid[], $5::uuid[], $6::uuid[],
            $7::uuid[], $8::uuid[], $9::text[], $10::text[], $11::timestamptz[])
            AS c (id, kind, merchant_id, payment_id, session_id, capture_id, receipt_id, refund_id,
                subject, note, opened_at)
        ON CONFLICT ON CONSTRAINT money_case_once DO NOTHING
        RETURNING id
        """,
        [case.id for case in cases],
        [case.kind for case in cases],
        [case.origin.merchant_id for case in cases],
        [case.origin.payment_id for case in cases],
        [case.origin.session_id for case in cases],
        [case.capture_id for case in cases],
        [case.receipt_id for case in cases],
        [case.refund_id for case in cases],
        [case.subject for case in cases],
        [case.note for case in cases],
        [case.opened_at for case in cases],
    )
    return {row["id"] for row in rows}


async def open_case(
    tx: Tx,
    kind: CaseKind,
    origin: MoneyOrigin,
    *,
    capture_id: UUID | None = None,
    refund_id: UUID | None = None,
    subject: str | None = None,
    note: str = "",
) -> UUID | None:
    """Open a case; return None if a case of this kind already exists for the same objects."""
    case = NewCase(
        id=tx.id_generator.new_id(),
        kind=kind,
        origin=origin,
        capture_id=capture_id,
        refund_id=refund_id,
        subject=subject,
        note=note,
    )
    return case.id if await open_cases(tx, [case]) else None


async def find_by_subject(
    tx: Tx, kind: CaseKind, subject: str, session_id: UUID | None
) -> UUID | None:
    return await tx.value(
        """
        SELECT id FROM money_case WHERE kind = $1 AND subject = $2 AND session_id = $3
        UNION ALL
        SELECT id FROM money_case
        WHERE kind = $1 AND subject = $2 AND session_id IS NULL AND $3::uuid IS NULL
        LIMIT 1
        """,
        kind,
        subject,
        session_id,
    )


async def close_refunded_cases(tx: Tx, capture_id: UUID, closed_by: str, note: str) -> None:
    """Close a capture's open cases if the capture is fully refunded."""
    await tx.fetch(
        """
        UPDATE money_case m
        SET status = 'REFUNDED', closed_at = clock(), closed_by = $2,
            note = coalesce(nullif(m.note, '') || '; ', '') || $3::text
        FROM capture c
        WHERE m.capture_id = $1 AND m.status = 'OPEN' AND m.kind = ANY($4::text[])
            AND c.id = $1 AND NOT c.credited AND c.refunded_minor = c.amount_minor
        """,
        capture_id,
        closed_by,
        note,
        [*AUTO_REFUND_KINDS, CaseKind.UNKNOWN_REFERENCE],
    )


async def update_undecided_cases(tx: Tx, cases: Sequence[NewCase]) -> dict[UUID, UUID]:
    """Record late money in its session's open UNDECIDED case, if there is one.

    Returns the updated cases: a mapping from the ids in `cases` to the ids of existing cases.
    """
    late_cases = [case for case in cases if case.origin.session_id and case.capture_id]
    if not late_cases:
        return {}
    rows = await tx.fetch(
        """
        UPDATE money_case m
        SET kind = c.kind, capture_id = c.capture_id, receipt_id = c.receipt_id,
            note = CASE WHEN m.note = '' OR c.note = '' THEN m.note || c.note
                ELSE m.note || '; ' || c.note END
        FROM (
            SELECT DISTINCT ON (session_id) id, session_id, kind, capture_id, receipt_id, note
            FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::uuid[], $6::text[])
                WITH ORDINALITY
                AS n (id, session_id, kind, capture_id, receipt_id, note, position)
            ORDER BY session_id, position
        ) c
        WHERE m.session_id = c.session_id AND m.kind = 'UNDECIDED' AND m.status = 'OPEN'
        RETURNING m.id, c.id AS new_id
        """,
        [case.id for case in late_cases],
        [case.origin.session_id for case in late_cases],
        [case.kind for case in late_cases],
        [case.capture_id for case in late_cases],
        [case.receipt_id for case in late_cases],
        [case.note for case in late_cases],
    )
    return {row["new_id"]: row["id"] for row in rows}


async def dismiss_undecided_case(tx: Tx, session_id: UUID, note: str) -> None:
    """Close the UNDECIDED case of a session that ended without payment."""
    await tx.fetch(
        """
        UPDATE money_case
        SET status = 'DISMISSED', closed_at = clock(), closed_by = 'payintent',
            note = coalesce(nullif(note, '') || '; ', '') || $2::text
        WHERE session_id = $1 AND kind = 'UNDECIDED' AND status = 'OPEN'
        """,
        session_id,
        note,
    )


async def dismiss_unknown_captures(tx: Tx, capture_ids: Sequence[UUID]) -> None:
    """Close the UNKNOWN_REFERENCE cases of captures whose session was found later.

    An operator's earlier decision is overridden and recorded in the note.
    """
    await tx.fetch(
        """
        UPDATE money_case
        SET status = 'DISMISSED', closed_at = clock(), closed_by = 'policy:session_appeared',
            note = coalesce(nullif(note, '') || '; ', '') || 'its payment session was found later'
                || coalesce('; it had been ' || status || ' by ' || closed_by, '')
        WHERE capture_id = ANY($1::uuid[]) AND kind = 'UNKNOWN_REFERENCE'
        """,
        capture_ids,
    )


async def assign_disputes_to_payments(tx: Tx, capture_ids: Sequence[UUID]) -> None:
    """Assign captures' dispute cases to their new payments. The captures must be locked."""
    await tx.fetch(
        """
        UPDATE money_case m
        SET merchant_id = p.merchant_id, payment_id = p.id, session_id = c.session_id
        FROM capture c
        JOIN payment p ON p.id = c.payment_id
        WHERE c.id = ANY($1::uuid[]) AND m.capture_id = c.id AND m.kind = 'DISPUTE'
        """,
        capture_ids,
    )


async def dismiss_proven_transfers(tx: Tx, subjects: Sequence[str]) -> None:
    """Close the open cases for chain logs that have since been proven."""
    await tx.fetch(
        """
        UPDATE money_case
        SET status = 'DISMISSED', closed_at = clock(), closed_by = 'policy:log_proven',
            note = coalesce(nullif(note, '') || '; ', '') || 'its log has been confirmed'
        WHERE status = 'OPEN' AND subject = ANY($1::text[])
        """,
        subjects,
    )


async def dismiss_stranded_cases(database: Executor, limit: int) -> int:
    """Close the cases of stranded payments that ended after their chain was read again.

    Returns the number of closed cases.

    A case stays open if its money is unaccounted for. This applies if the session has another
    open case, or if no capture was credited although an exact transfer was seen or a submitted
    transaction is not final.
    """
    rows = await database.fetch(
        """
        UPDATE money_case d
        SET status = 'DISMISSED', closed_at = clock(), closed_by = 'policy:chain_read',
            note = coalesce(nullif(d.note, '') || '; ', '')
                || 'its chain was read again: the payment is ' || w.status
        FROM (
            SELECT m.id, p.status
            FROM money_case m
            JOIN session s ON s.id = m.session_id
            JOIN payment p ON p.id = m.payment_id
            WHERE m.status = 'OPEN' AND m.kind = 'RECONCILIATION'
                AND num_nonnulls(m.capture_id, m.receipt_id, m.refund_id, m.subject) = 0
                AND s.chain IS NOT NULL AND s.life = 'ended'
                AND p.status NOT IN ('PENDING', 'PROCESSING')
                AND NOT EXISTS (SELECT FROM money_case o
                    WHERE o.session_id = s.id AND o.status = 'OPEN' AND o.id <> m.id)
                AND (EXISTS (SELECT FROM capture c
                        WHERE c.payment_id = p.id AND c.session_id = s.id AND c.credited)
                    OR NOT EXISTS (SELECT FROM chain_sighting g
                        WHERE g.session_id = s.id AND g.exact)
                    AND NOT EXISTS (SELECT FROM chain_hint h
                        WHERE h.session_id = s.id AND h.step = 'pay' AND h.state <> 'foreign'
                            AND NOT h.final))
            ORDER BY m.id
            LIMIT $1
            FOR UPDATE OF m SKIP LOCKED
        ) w
        WHERE d.id = w.id
        RETURNING d.id
        """,
        limit,
    )
    return len(rows)


async def count_open(database: Executor, subject_prefix: str) -> int:
    return await database.value(
        "SELECT count(*) AS n FROM money_case WHERE status = 'OPEN' AND subject LIKE $1 || '%'",
        subject_prefix,
    )


async def reopen(tx: Tx, case_id: UUID) -> None:
    """Reopen a closed case without changing its notes."""
    await tx.fetch(
        """
        UPDATE money_case
        SET status = 'OPEN', closed_at = NULL, closed_by = NULL
        WHERE id = $1 AND status <> 'OPEN'
        """,
        case_id,
    )


async def reopen_for_refund(tx: Tx, refund_id: UUID, note: str, *, once: bool = False) -> bool:
    """Append a note to a refund's RECONCILIATION case, and reopen the case if it is closed.

    Returns whether a case was updated. If `once` is set, a case that already contains the note is
    not updated.
    """
    row = await tx.row(
        """
        UPDATE money_case
        SET status = 'OPEN', closed_at = NULL, closed_by = NULL,
            note = coalesce(nullif(note, '') || '; ', '') || $2::text
        WHERE refund_id = $1 AND kind = 'RECONCILIATION'
            AND NOT ($3 AND note LIKE '%' || $2::text || '%')
        RETURNING id
        """,
        refund_id,
        note,
        once,
    )
    return row is not None
