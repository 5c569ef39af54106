"""Store captures: money that a gateway or chain has reported as received."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from payintent.accounting import ledger_store
from payintent.accounting.model import CapturedMoney, Charges, LedgerEntry, make_capture_entries
from payintent.db.database import Executor, Row, Tx
from payintent.gateways.port import Capture
from payintent.payments.model import Payment

NO_CHARGES = Charges(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedCapture:
    id: UUID
    account_id: int
    provider: str
    merchant_id: int | None  # owner of the payment or account; None means the operator
    payment_id: UUID | None
    currency: str
    amount_minor: int
    reserved_minor: int
    remaining_minor: int  # neither refunded nor reserved
    undisputed_minor: int  # the portion of `remaining_minor` that is not disputed
    credited: bool
    chain: str | None
    payer: bytes | None  # the sender's chain address, until it is erased; None for a deposit
    is_deposit: bool  # paid to a deposit address
    approval_above_minor: int | None  # daily amount above which refunds need approval
    token_decimals: int | None
    merchant_approval_above: Decimal | None  # the merchant's threshold; gateway captures only


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyOrigin:
    merchant_id: int | None
    payment_id: UUID | None
    session_id: UUID | None


UNKNOWN_ORIGIN = MoneyOrigin(merchant_id=None, payment_id=None, session_id=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRecord(MoneyOrigin):
    id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledCapture:
    """A capture to store, or a stored capture to assign to its session."""

    id: UUID
    account_id: int
    reference: str
    origin: MoneyOrigin
    currency: str  # for a chain transfer, the token address until its symbol is looked up
    amount_minor: int
    credited: bool
    receipt_id: UUID | None = None  # chain transfers only
    is_stored: bool = False  # already stored, without a session


async def add_without_session(
    tx: Tx, capture_id: UUID, account_id: int, callback_id: str, capture: Capture
) -> MoneyOrigin | None:
    """Store a capture for an unknown session. Returns None if it is already stored."""
    row = await tx.row(
        """
        WITH added AS (
            INSERT INTO capture
                (id, account_id, reference, callback_id, currency, amount_minor, credited,
                 captured_at)
            VALUES ($1, $2, $3, $4, $5, $6, false, clock())
            ON CONFLICT ON CONSTRAINT capture_reference DO NOTHING
            RETURNING id
        )
        SELECT (SELECT merchant_id FROM provider_account WHERE id = $2) AS merchant_id
        FROM added
        """,
        capture_id,
        account_id,
        capture.reference,
        callback_id,
        capture.currency,
        capture.amount_minor,
    )
    if row is None:
        return None
    money = CapturedMoney(
        capture_id=capture_id,
        account_id=account_id,
        currency=capture.currency,
        chain=None,  # chain transfers are stored by `add`
        merchant_id=row["merchant_id"],
        credited=False,
    )
    await ledger_store.add(tx, make_capture_entries(money, capture.amount_minor, NO_CHARGES))
    return replace(UNKNOWN_ORIGIN, merchant_id=row["merchant_id"])


async def assign_to_sessions(tx: Tx, captures: Sequence[SettledCapture]) -> None:
    """Assign captures to sessions that were stored after them. The captures must be locked."""
    rows = await tx.fetch(
        """
        UPDATE capture c
        SET session_id = n.session_id, payment_id = n.payment_id, credited = n.credited
        FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::boolean[])
            AS n (id, session_id, payment_id, credited)
        WHERE c.id = n.id AND c.session_id IS NULL
        RETURNING c.id
        """,
        [capture.id for capture in captures],
        [capture.origin.session_id for capture in captures],
        [capture.origin.payment_id for capture in captures],
        [capture.credited for capture in captures],
    )
    assert len(rows) == len(captures)  # noqa: S101 - the captures are locked


async def complete_reference(
    tx: Tx, payment_id: UUID, session_id: UUID, reference: str, *, is_unused: bool
) -> bool:
    """Return whether the session already has this capture, and complete its stored reference.

    Some gateway responses contain only a prefix of the reference, which is stored with a trailing
    dot. `is_unused` is False if another capture has the given reference, which is then not stored.
    The session must be locked.
    """
    capture = await _find_partial(tx, payment_id, session_id, reference)
    if capture is not None and is_unused and len(reference) > len(capture["reference"]):
        await tx.fetch("UPDATE capture SET reference = $2 WHERE id = $1", capture["id"], reference)
    return capture is not None


async def get_stored_reference(tx: Tx, payment_id: UUID, session_id: UUID, reference: str) -> str:
    """Return the reference under which a session's capture is stored, which may be longer."""
    capture = await _find_partial(tx, payment_id, session_id, reference)
    return capture["reference"] if capture is not None else reference


async def _find_partial(tx: Tx, payment_id: UUID, session_id: UUID, reference: str) -> Row | None:
    """Find a capture if either its reference or the given reference is incomplete."""
    return await tx.row(
        """
        SELECT id, reference
        FROM capture
        WHERE payment_id = $1 AND session_id = $2
            AND (right(reference, 1) = '.' AND left($3, length(reference)) = reference
                OR right($3, 1) = '.' AND left(reference, length($3)) = $3)
        LIMIT 1
        """,
        payment_id,
        session_id,
        reference,
    )


async def add(
    tx: Tx, captures: Sequence[SettledCapture], entries: Sequence[LedgerEntry], at: datetime
) -> None:
    """Store new captures with their ledger entries.

    Chain transfers must already be stored. Ledger entries use the currency of the stored capture.
    """
    if not captures:
        return
    await tx.fetch(
        """
        WITH added AS (
        INSERT INTO capture (id, account_id, reference, session_id, payment_id, currency,
            amount_minor, credited, captured_at, receipt_id)
        SELECT c.id, c.account_id, c.reference, c.session_id, c.payment_id,
            coalesce(t.symbol, c.currency), c.amount::numeric, c.credited, $9, c.receipt_id
        FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::uuid[], $5::uuid[], $6::text[],
            $7::text[], $8::boolean[], $10::uuid[]) AS c (id, account_id, reference, session_id,
            payment_id, currency, amount, credited, receipt_id)
        LEFT JOIN (
            SELECT k.account_id, '0x' || encode(t.address, 'hex') AS currency,
                max(t.symbol) AS symbol
            FROM chain_contract k
            JOIN chain_token t ON t.chain = k.chain
            GROUP BY k.account_id, t.address
        ) t ON c.receipt_id IS NOT NULL AND t.account_id = c.account_id AND t.currency = c.currency
        RETURNING id, account_id, currency
        )
        INSERT INTO ledger_entry
            (fact_id, fact, leg, merchant_id, debit, credit, amount, chain, currency, created_at)
        SELECT e.fact_id, e.fact, e.leg, e.merchant_id, e.debit, e.credit, e.amount::numeric,
            e.chain, added.currency, $9
        FROM unnest($11::uuid[], $12::text[], $13::text[], $14::bigint[], $15::text[],
            $16::text[], $17::text[], $18::text[]) AS e (fact_id, fact, leg, merchant_id, debit,
            credit, amount, chain)
        JOIN added ON added.id = e.fact_id
        JOIN provider_account a ON a.id = added.account_id AND a.livemode
        """,
        [capture.id for capture in captures],
        [capture.account_id for capture in captures],
        [capture.reference for capture in captures],
        [capture.origin.session_id for capture in captures],
        [capture.origin.payment_id for capture in captures],
        [capture.currency for capture in captures],
        [str(capture.amount_minor) for capture in captures],
        [capture.credited for capture in captures],
        at,
        [capture.receipt_id for capture in captures],
        *ledger_store.to_columns(entries),
    )


async def find(tx: Tx, account_id: int, reference: str) -> CaptureRecord | None:
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
    return CaptureRecord(**row) if row else None


async def is_known(database: Executor, account_id: int, reference: str) -> bool:
    row = await database.row(
        "SELECT FROM capture WHERE account_id = $1 AND reference = $2", account_id, reference
    )
    return row is not None


async def lock(tx: Tx, capture_id: UUID) -> LockedCapture:
    """Lock a capture. Its payment must be locked."""
    row = await tx.row(_LOCK_SELECT + "WHERE c.id = $1 FOR UPDATE OF c", capture_id)
    assert row is not None  # noqa: S101 - captures are never deleted
    return _capture_from_row(row)


async def lock_credited(tx: Tx, payment_id: UUID) -> LockedCapture:
    """Lock the capture that paid a payment. The payment must be locked."""
    row = await tx.row(
        _LOCK_SELECT + "WHERE c.payment_id = $1 AND c.credited FOR UPDATE OF c", payment_id
    )
    assert row is not None  # noqa: S101 - the payment is paid
    return _capture_from_row(row)


_LOCK_SELECT = """
    SELECT c.id, c.account_id, a.provider, m.id AS merchant_id, c.payment_id, c.currency,
        c.amount_minor, c.reserved_minor,
        c.amount_minor - c.refunded_minor - c.reserved_minor AS remaining_minor,
        greatest(c.amount_minor - c.refunded_minor - c.reserved_minor - c.disputed_minor, 0)
            AS undisputed_minor,
        c.credited, r.chain, coalesce(r.disposition = 'deposit', false) AS is_deposit,
        CASE WHEN r.disposition <> 'deposit' THEN r.payer END AS payer,
        trunc(h.refund_approval_above * 10::numeric ^ t.decimals) AS approval_above_minor,
        t.decimals AS token_decimals,
        (m.refund_approval_above ->> c.currency)::numeric AS merchant_approval_above
    FROM capture c
    JOIN provider_account a ON a.id = c.account_id
    LEFT JOIN payment p ON p.id = c.payment_id
    LEFT JOIN merchant m ON m.id = coalesce(p.merchant_id, a.merchant_id)
    LEFT JOIN chain_receipt r ON r.id = c.receipt_id
    LEFT JOIN chain h ON h.slug = r.chain
    LEFT JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
"""


def _capture_from_row(row: Row) -> LockedCapture:
    values = dict(row)
    for name in ("amount_minor", "reserved_minor", "remaining_minor", "undisputed_minor"):
        values[name] = int(values[name])
    if values["approval_above_minor"] is not None:
        values["approval_above_minor"] = int(values["approval_above_minor"])
    elif values["chain"] is not None:  # refunds of an unknown token always need approval
        values["approval_above_minor"] = 0
    return LockedCapture(**values)


async def qualifies_for_auto_refund(
    tx: Tx, merchant_id: int, capture_id: UUID, *, transfers_max: int
) -> bool:
    """Return whether a capture without a payment qualifies for an automatic refund.

    The merchant must have enabled automatic refunds. Deposits never qualify, because their sender
    may be an exchange. A transaction that a reorganisation moved to another block does not qualify,
    because it is recorded twice, although the money arrived only once. Chain refunds cost gas, so
    amounts below the token's minimum and a session's transfers after the first `transfers_max` do
    not qualify either. An operator decides these cases.
    """
    qualifies = await tx.value(
        """
        SELECT m.auto_refund AND NOT EXISTS (
            SELECT
            FROM capture c
            JOIN chain_contract k ON k.account_id = c.account_id
            WHERE c.id = $2 AND k.forwarder IS NOT NULL
        ) AND NOT EXISTS (
            SELECT
            FROM capture c
            JOIN chain_receipt r ON r.id = c.receipt_id
            JOIN chain_receipt moved ON moved.chain = r.chain AND moved.tx_hash = r.tx_hash
                AND moved.block_hash <> r.block_hash
            WHERE c.id = $2
        ) AND NOT EXISTS (
            SELECT
            FROM capture c
            JOIN chain_receipt r ON r.id = c.receipt_id
            LEFT JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
            WHERE c.id = $2 AND (
                t.symbol IS NULL
                OR r.amount < t.auto_refund_from * 10::numeric ^ t.decimals
                OR (SELECT count(*) FROM chain_receipt s
                    WHERE s.session_id = r.session_id AND s.id <= r.id AND NOT EXISTS (
                        SELECT FROM chain_receipt moved
                        WHERE moved.chain = s.chain AND moved.tx_hash = s.tx_hash
                            AND moved.block_hash <> s.block_hash AND moved.id < s.id)) > $3
            )
        ) AS qualifies
        FROM merchant m
        WHERE m.id = $1
        """,
        merchant_id,
        capture_id,
        transfers_max,
    )
    return bool(qualifies)


async def has_captures(database: Executor, payment_id: UUID) -> bool:
    """Return whether money for a payment was received, even if it was not credited."""
    row = await database.row("SELECT FROM capture WHERE payment_id = $1 LIMIT 1", payment_id)
    return row is not None


def make_session_origin(payment: Payment, session_id: UUID) -> MoneyOrigin:
    return MoneyOrigin(
        merchant_id=payment.merchant_id, payment_id=payment.id, session_id=session_id
    )
