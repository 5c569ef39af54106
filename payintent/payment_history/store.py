"""Read a payment's stored history in a single statement."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

import msgspec

from payintent.db.database import Executor, Row
from payintent.db.sealing import PayerSealing
from payintent.gateway_accounts.calls import CALL_ENTRIES
from payintent.operators.audit_store import AuditEntry

_ENTRIES_MAX = 5_000
_KIND_MAX = 1_000
PAGED_KIND_MAX = 20_000  # per kind of entry, if the history is read page by page
_AUDIT_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    at: datetime
    kind: str
    id: UUID | None  # of the session, refund, case or event
    details: dict[str, Any]  # missing values are omitted


#: CTEs that read the rows of payment `$1`, up to `$3` of each kind.
_SOURCES: LiteralString = """
    WITH sessions AS (
        SELECT id, provider, account_id, kind, label, country, chain, token, amount,
            fee_amount, estimated_tax, total_amount, currency, reference, inquiries, declines,
            outcome, opened_at, returned_at, closing_at, silent_since, ended_at
        FROM session
        WHERE payment_id = $1
        ORDER BY id
        LIMIT $3
    ), captures AS (
        SELECT c.id, c.account_id, c.reference, c.session_id, c.currency, c.amount_minor,
            c.credited, c.captured_at, r.chain, t.decimals
        FROM capture c
        LEFT JOIN chain_receipt r ON r.id = c.receipt_id
        LEFT JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
        WHERE c.payment_id = $1
        ORDER BY c.id
        LIMIT $3
    ), refunds AS (
        SELECT f.id, f.case_id, f.amount_text, f.currency, f.amount_minor, f.reason,
            f.destination, f.status, f.failure_reason, f.step, f.reference, f.requested_by,
            f.approved_by, f.note, f.inquiries, f.sent_at, f.created_at, f.updated_at,
            m.chain, m.decimals, m.currency AS capture_currency
        FROM refund f
        JOIN captures m ON m.id = f.capture_id
        WHERE f.payment_id = $1
        ORDER BY f.id
        LIMIT $3
    ), events AS (
        SELECT e.id, e.type, e.body, e.occurred_at, d.state, d.attempts
        FROM event e
        JOIN delivery d ON d.event_id = e.id
        WHERE e.payment_id = $1
    )
"""

# Status changes and fraud denials.
_PAYMENT_ENTRIES: LiteralString = """
    SELECT created_at, 0, 'created', NULL::uuid, json_build_object(
        'amount', amount_text, 'currency', currency, 'payer_uid', payer_uid,
        'merchant_id', merchant_id)
    FROM payment
    WHERE id = $1
    UNION ALL
    SELECT n.at, 46, n.kind, NULL, json_build_object(
        'amount', p.amount_text, 'currency', p.currency,
        'failure_reason', p.failure_reason, 'has_event', EXISTS (SELECT FROM events))
    FROM payment p
    CROSS JOIN LATERAL (
        VALUES (p.paid_at, 'paid'), (p.failed_at, 'failed'), (p.expired_at, 'expired'),
            (p.cancelled_at, 'cancelled')
    ) n (at, kind)
    WHERE p.id = $1 AND n.at IS NOT NULL
    UNION ALL
    SELECT decided_at, 2, 'denied', NULL, json_build_object(
        'rule_id', rule_id, 'code', code, 'level', level, 'score', score)
    FROM fraud_decision
    WHERE payment_id = $1
"""

# Selections with their quotes, and reports from gateways.
_SESSION_ENTRIES: LiteralString = """
    SELECT opened_at, 10, 'selected', id, json_build_object(
        'provider', provider, 'account_id', account_id, 'kind', kind, 'label', label,
        'country', country, 'chain', chain, 'token', token, 'amount', amount,
        'fee_amount', fee_amount, 'estimated_tax', estimated_tax,
        'total_amount', total_amount, 'currency', currency, 'reference', reference,
        'inquiries', inquiries, 'declines', declines)
    FROM sessions
    UNION ALL
    SELECT returned_at, 12, 'returned', id, '{}' FROM sessions WHERE returned_at IS NOT NULL
    UNION ALL
    SELECT closing_at, 40, 'closing', id, json_build_object(
        'provider', provider, 'account_id', account_id)
    FROM sessions
    WHERE closing_at IS NOT NULL
    UNION ALL
    SELECT silent_since, 42, 'silent', id, json_build_object(
        'provider', provider, 'account_id', account_id)
    FROM sessions
    WHERE silent_since IS NOT NULL
    UNION ALL
    SELECT ended_at, 44, 'session-ended', id, json_build_object(
        'provider', provider, 'account_id', account_id, 'outcome', outcome,
        'declines', declines)
    FROM sessions
    WHERE ended_at IS NOT NULL
    UNION ALL
    (
        SELECT b.received_at, 14, 'callback', b.session_id, json_build_object(
            'account_id', b.account_id, 'callback_id', b.callback_id,
            'applied', b.applied_at IS NOT NULL, 'report', b.report::text)
        FROM sessions s
        JOIN callback b ON b.session_id = s.id
        ORDER BY b.received_at DESC
        LIMIT $3
    )
"""

# Submitted, seen, replaced and final transactions.
_CHAIN_ENTRIES: LiteralString = """
    SELECT h.posted_at, 20, 'posted', s.id, json_build_object(
        'chain', s.chain, 'tx_hash', encode(h.tx_hash, 'hex'), 'step', h.step)
    FROM sessions s
    JOIN chain_hint h ON h.session_id = s.id
    UNION ALL
    SELECT h.settled_at, 26, 'posted-settled', s.id, json_build_object(
        'chain', s.chain, 'tx_hash', encode(h.tx_hash, 'hex'), 'step', h.step,
        'state', h.state, 'reason', h.reason)
    FROM sessions s
    JOIN chain_hint h ON h.session_id = s.id
    WHERE h.settled_at IS NOT NULL
    UNION ALL
    SELECT g.seen_at, 22, 'seen', s.id, json_build_object(
        'chain', g.chain, 'tx_hash', encode(g.tx_hash, 'hex'), 'block', g.block,
        'exact', g.exact)
    FROM sessions s
    JOIN chain_sighting g ON g.session_id = s.id
    UNION ALL
    SELECT g.gone_at, 24, 'gone', s.id, json_build_object(
        'chain', g.chain, 'tx_hash', encode(g.tx_hash, 'hex'), 'block', g.block)
    FROM sessions s
    JOIN chain_sighting g ON g.session_id = s.id
    WHERE g.gone_at IS NOT NULL
    UNION ALL
    SELECT r.final_at, 28, 'final', s.id, json_build_object(
        'chain', r.chain, 'tx_hash', encode(r.tx_hash, 'hex'), 'block', r.block,
        'payer', encode(r.payer, 'hex'), 'token', encode(r.token, 'hex'),
        'symbol', t.symbol, 'decimals', t.decimals, 'amount_minor', r.amount::text,
        'disposition', r.disposition)
    FROM sessions s
    JOIN chain_receipt r ON r.session_id = s.id
    LEFT JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
"""

# Captures, cases and disputes.
_CASE_ENTRIES: LiteralString = """
    SELECT captured_at, 30, 'captured', session_id, json_build_object(
        'account_id', account_id, 'reference', reference, 'currency', currency,
        'amount_minor', amount_minor::text, 'chain', chain, 'decimals', decimals,
        'credited', credited)
    FROM captures
    UNION ALL
    SELECT opened_at, 34, 'case', id, json_build_object('kind', kind)
    FROM money_case
    WHERE payment_id = $1
    UNION ALL
    SELECT closed_at, 70, 'case-closed', id, json_build_object(
        'kind', kind, 'status', status, 'closed_by', closed_by, 'note', note)
    FROM money_case
    WHERE payment_id = $1 AND closed_at IS NOT NULL
    UNION ALL
    SELECT d.created_at, 32, 'dispute', d.case_id, json_build_object(
        'account_id', d.account_id, 'reference', d.reference, 'currency', d.currency,
        'amount_minor', d.amount_minor::text, 'reason', d.reason)
    FROM captures m
    JOIN dispute d ON d.capture_id = m.id
    UNION ALL
    SELECT d.updated_at, 33, 'dispute-now', d.case_id, json_build_object(
        'reference', d.reference, 'state', d.state, 'funds', d.funds)
    FROM captures m
    JOIN dispute d ON d.capture_id = m.id
"""

# The event and its delivery attempts.
_EVENT_ENTRIES: LiteralString = """
    SELECT occurred_at, 50, 'event', id, json_build_object(
        'type', type, 'state', state, 'attempts', attempts, 'body', body)
    FROM events
    UNION ALL
    (
        SELECT a.started_at, 52, 'attempt', a.event_id, json_build_object(
            'number', row_number() OVER (ORDER BY a.started_at, a.id), 'url', a.url,
            'outcome', a.outcome, 'status', a.status, 'detail', a.detail,
            'answer', a.answer, 'duration_ms', a.duration_ms)
        FROM events e
        JOIN attempt a ON a.event_id = e.id
        ORDER BY a.started_at DESC, a.id DESC
        LIMIT $3
    )
"""

# Refunds, including on-chain refunds.
_REFUND_ENTRIES: LiteralString = """
    (
        SELECT b.received_at, 14, 'refund-callback', b.refund_id, json_build_object(
            'account_id', b.account_id, 'callback_id', b.callback_id,
            'applied', b.applied_at IS NOT NULL)
        FROM refunds f
        JOIN callback b ON b.refund_id = f.id
        ORDER BY b.received_at DESC
        LIMIT $3
    )
    UNION ALL
    SELECT created_at, 60, 'refund', id, json_build_object(
        'amount', amount_text, 'currency', currency, 'amount_minor', amount_minor::text,
        'capture_currency', capture_currency, 'chain', chain, 'decimals', decimals,
        'destination', destination, 'reason', reason, 'case_id', case_id,
        'requested_by', requested_by)
    FROM refunds
    UNION ALL
    SELECT sent_at, 62, 'refund-sent', id, json_build_object('inquiries', inquiries)
    FROM refunds
    WHERE sent_at IS NOT NULL
    UNION ALL
    SELECT updated_at, 68, 'refund-ended', id, json_build_object(
        'status', status, 'failure_reason', failure_reason, 'reference', reference,
        'approved_by', approved_by, 'note', note)
    FROM refunds
    WHERE step = 'ended'
    UNION ALL
    SELECT y.asked_at, 64, 'refund-signed', f.id, json_build_object(
        'chain', f.chain, 'tx_hash', encode(y.tx_hash, 'hex'), 'reverts', y.reverts)
    FROM refunds f
    JOIN chain_refund_try y ON y.refund_id = f.id
    UNION ALL
    SELECT l.final_at, 66, 'refund-final', f.id, json_build_object(
        'chain', l.chain, 'tx_hash', encode(l.tx_hash, 'hex'), 'block', l.block,
        'disposition', l.disposition)
    FROM refunds f
    JOIN chain_refund l ON l.refund_ref = f.id
"""
_ENTRIES: LiteralString = (
    _SOURCES
    + ", entries (at, rank, kind, id, details) AS ("
    + _PAYMENT_ENTRIES
    + "UNION ALL"
    + _SESSION_ENTRIES
    + "UNION ALL"
    + CALL_ENTRIES
    + "UNION ALL"
    + _CHAIN_ENTRIES
    + "UNION ALL"
    + _CASE_ENTRIES
    + "UNION ALL"
    + _EVENT_ENTRIES
    + "UNION ALL"
    + _REFUND_ENTRIES
    + ")"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    entries: list[HistoryEntry]  # oldest first
    total: int  # entries on all pages
    starts_at: datetime | None  # None on the first page
    ends_at: datetime | None  # the start of the next page; None on the last page


async def list_entries(
    database: Executor,
    payment_id: UUID,
    kinds: Sequence[str] | None = None,
    offset: int = 0,
    limit: int = _ENTRIES_MAX,
    kind_max: int = _KIND_MAX,
) -> HistoryPage:
    """List a payment's history entries of the given `kinds`, or of all kinds, oldest first.

    Entries with the same time are in causal order. Up to `kind_max` rows of each kind are read.
    """
    rows = await database.fetch(
        _ENTRIES
        + """
        SELECT n.at, n.kind, n.id, n.details::text AS details, n.total, n.position, n.next_at
        FROM (
            SELECT at, kind, id, details, count(*) OVER () AS total,
                row_number() OVER (ORDER BY at, rank, id) AS position,
                lead(at) OVER (ORDER BY at, rank, id) AS next_at
            FROM entries
            WHERE kind = ANY($4::text[]) OR $4::text[] IS NULL
        ) n
        WHERE n.position > $5
        ORDER BY n.position
        LIMIT $2
        """,
        payment_id,
        limit,
        kind_max,
        kinds,
        offset,
    )
    entries = [_to_entry(row, database.payer_sealing) for row in rows]
    return HistoryPage(
        entries=entries,
        total=rows[0]["total"] if rows else 0,
        starts_at=entries[0].at if offset and entries else None,
        ends_at=rows[-1]["next_at"] if rows else None,
    )


async def list_subject_ids(database: Executor, payment_id: UUID) -> list[tuple[str, UUID]]:
    """List the kinds and ids of a payment's sessions, refunds, cases and events."""
    rows = await database.fetch(
        """
        SELECT kind, id
        FROM (
            (SELECT 'session' AS kind, id FROM session WHERE payment_id = $1 LIMIT $2)
            UNION ALL
            (SELECT 'refund', id FROM refund WHERE payment_id = $1 LIMIT $2)
            UNION ALL
            (SELECT 'case', id FROM money_case WHERE payment_id = $1 LIMIT $2)
            UNION ALL
            (SELECT 'event', id FROM event WHERE payment_id = $1 LIMIT $2)
        ) s
        """,
        payment_id,
        _KIND_MAX,
    )
    return [(row["kind"], row["id"]) for row in rows]


def _to_entry(row: Row, sealing: PayerSealing) -> HistoryEntry:
    values: dict[str, Any] = msgspec.json.decode(row["details"])
    details = {name: value for name, value in values.items() if value is not None}
    if row["kind"] == "event":
        details["body"] = sealing.unseal_body(row["id"], details["body"])
    return HistoryEntry(at=row["at"], kind=row["kind"], id=row["id"], details=details)


async def list_audit_entries(
    database: Executor, merchant_id: int, since: UUID, texts: Sequence[str]
) -> list[AuditEntry]:
    """List audit entries whose details contain any of `texts`, starting at entry id `since`.

    Entries of other merchants are not searched.
    """
    rows = await database.fetch(
        """
        SELECT id, at, who, why, action, merchant_id, details::text AS details
        FROM (
            SELECT id, at, who, why, action, merchant_id, details
            FROM audit
            WHERE merchant_id = $1 AND id >= $2
            UNION ALL
            SELECT id, at, who, why, action, merchant_id, details
            FROM audit
            WHERE merchant_id IS NULL AND id >= $2
        ) a
        WHERE EXISTS (SELECT FROM unnest($3::text[]) AS n (name)
            WHERE strpos(a.details::text, n.name) > 0)
        ORDER BY id
        LIMIT $4
        """,
        merchant_id,
        since,
        texts,
        _AUDIT_MAX,
    )
    return [AuditEntry(**{**row, "details": msgspec.json.decode(row["details"])}) for row in rows]
