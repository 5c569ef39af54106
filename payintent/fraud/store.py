"""Fraud rules, denials, and counts for velocity rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.core import ids
from payintent.core.money import CURRENCIES
from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import build
from payintent.fraud.model import FraudDenial, FraudRule, FraudRuleKind, RiskLevel

RULES_MAX = 10_000
_COUNTER_LOCKS = 7_001  # first key of the advisory locks on counters

_RULE_COLUMNS = " id, kind, merchant_id, value, count_max, window_s, code, level, score "


@dataclass(frozen=True, slots=True, kw_only=True)
class FraudDecisionRecord:
    id: UUID
    merchant_id: int
    payment_id: str | None
    rule_id: int
    code: str
    level: str
    score: int
    decided_at: datetime


async def list_rules(database: Executor) -> list[FraudRule]:
    rows = await database.fetch(
        "SELECT" + _RULE_COLUMNS + "FROM fraud_rule WHERE enabled ORDER BY id LIMIT $1", RULES_MAX
    )
    return [_to_rule(row) for row in rows]


async def get_rules_version(database: Executor) -> str:
    """Return a hash of the active rules' ids. Rules are never modified."""
    version = await database.value(
        "SELECT md5(string_agg(id::text, ',' ORDER BY id)) FROM fraud_rule WHERE enabled"
    )
    return version or ""


async def count_rules(tx: Tx) -> int:
    """Count the active rules, and lock the table against changes until the transaction ends."""
    await tx.fetch("LOCK TABLE fraud_rule IN SHARE ROW EXCLUSIVE MODE")
    return await tx.value("SELECT count(*) AS count FROM fraud_rule WHERE enabled")


async def add_rule(tx: Tx, rule: FraudRule) -> FraudRule:
    """Add a rule. The database assigns the `id`."""
    row = await tx.row(
        """
        INSERT INTO fraud_rule (kind, merchant_id, value, count_max, window_s, code, level, score)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        RETURNING"""
        + _RULE_COLUMNS,
        rule.kind,
        rule.merchant_id,
        rule.value,
        rule.count_max,
        rule.window_s,
        rule.code,
        rule.level,
        rule.score,
    )
    assert row is not None  # noqa: S101 - RETURNING returns the inserted row
    return _to_rule(row)


async def remove_rule(tx: Tx, rule_id: int) -> FraudRule | None:
    """Deactivate a rule. Its row is not deleted, because decisions refer to it."""
    row = await tx.row(
        "UPDATE fraud_rule SET enabled = false WHERE id = $1 AND enabled RETURNING" + _RULE_COLUMNS,
        rule_id,
    )
    return _to_rule(row) if row else None


async def record_denial(
    database: Executor,
    decision_id: UUID,
    merchant_id: int,
    payment_id: UUID | None,
    denial: FraudDenial,
) -> None:
    """Store a denial. Repeated denials of a payment by the same rule are ignored."""
    await database.fetch(
        """
        INSERT INTO fraud_decision (id, merchant_id, payment_id, rule_id, code, level, score)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (payment_id, rule_id) WHERE payment_id IS NOT NULL DO NOTHING
        """,
        decision_id,
        merchant_id,
        payment_id,
        denial.rule_id,
        denial.code,
        denial.level,
        denial.score,
    )


async def list_decisions(
    database: Executor, merchant_id: int | None, limit: int
) -> list[FraudDecisionRecord]:
    """List denials, newest first."""
    rows = await database.fetch(
        """
        SELECT id, merchant_id, payment_id, rule_id, code, level, score, decided_at
        FROM fraud_decision
        WHERE merchant_id = $1 OR $1::bigint IS NULL
        ORDER BY decided_at DESC, id DESC
        LIMIT $2
        """,
        merchant_id,
        limit,
    )
    return [
        build(
            FraudDecisionRecord,
            row,
            payment_id=row["payment_id"] and ids.format_id(ids.PAYMENT, row["payment_id"]),
        )
        for row in rows
    ]


async def lock_counter(tx: Tx, digest: bytes) -> None:
    """Lock a counter until the transaction ends. Raises `LockTimeoutError`."""
    await tx.fetch(
        "SELECT pg_advisory_xact_lock($1::int, hashtext(encode($2, 'hex')))", _COUNTER_LOCKS, digest
    )


async def count_payments(
    database: Executor,
    merchant_id: int,
    payer_uid: str,
    window_s: int,
    count_max: int,
    statuses: Sequence[str],
) -> int:
    """Count a payer's payments within a time window, up to `count_max`."""
    return await database.value(
        """
        SELECT count(*) AS count
        FROM (
            SELECT
            FROM unnest($5::text[]) AS c (currency)
            CROSS JOIN unnest($6::text[]) AS s (status)
            CROSS JOIN LATERAL (
                SELECT
                FROM payment
                WHERE merchant_id = $1 AND payer_uid = $2
                    AND currency = c.currency AND status = s.status
                    AND created_at > clock() - $3 * interval '1 second'
                ORDER BY created_at DESC, id DESC NULLS LAST
                LIMIT $4
            ) p
            LIMIT $4
        ) recent
        """,
        merchant_id,
        payer_uid,
        window_s,
        count_max,
        list(CURRENCIES),
        statuses,
    )


async def count_attempts(
    database: Executor,
    address_digest: bytes,
    merchant_id: int | None,
    window_s: int,
    count_max: int,
) -> int:
    """Count method selections from an address within a time window, up to `count_max`.

    If `merchant_id` is None, the selections at all merchants are counted.
    """
    return await database.value(
        """
        SELECT count(*) AS count
        FROM (
            SELECT FROM buyer_attempt
            WHERE address_digest = $1 AND (merchant_id = $2 OR $2::bigint IS NULL)
                AND at > clock() - $3 * interval '1 second'
            LIMIT $4
        ) recent
        """,
        address_digest,
        merchant_id,
        window_s,
        count_max,
    )


async def add_attempt(database: Executor, address_digest: bytes, merchant_id: int) -> None:
    await database.fetch(
        "INSERT INTO buyer_attempt (address_digest, merchant_id) VALUES ($1, $2)",
        address_digest,
        merchant_id,
    )


async def delete_old(database: Executor, decisions_days: int, limit: int) -> int:
    """Delete up to `limit` old decisions, and up to `limit` attempts older than all rules' windows.

    Returns the larger of the two counts; if it equals `limit`, more may remain.
    """
    return await database.value(
        """
        WITH decision AS (
            DELETE FROM fraud_decision
            WHERE ctid = ANY(ARRAY(
                SELECT ctid FROM fraud_decision
                WHERE decided_at <= clock() - $1 * interval '1 day'
                ORDER BY decided_at LIMIT $2 FOR UPDATE SKIP LOCKED
            ))
            RETURNING 1
        ), attempt AS (
            DELETE FROM buyer_attempt
            WHERE ctid = ANY(ARRAY(
                SELECT ctid FROM buyer_attempt
                WHERE at <= clock() - interval '1 second' * (
                    SELECT coalesce(max(window_s), 0) FROM fraud_rule
                    WHERE enabled AND kind = 'ADDRESS_VELOCITY'
                )
                ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED
            ))
            RETURNING 1
        )
        SELECT greatest((SELECT count(*) FROM decision), (SELECT count(*) FROM attempt)) AS deleted
        """,
        decisions_days,
        limit,
    )


def _to_rule(row: Row) -> FraudRule:
    return build(FraudRule, row, kind=FraudRuleKind(row["kind"]), level=RiskLevel(row["level"]))
