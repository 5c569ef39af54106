"""Case lists and details for operators and merchants."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from payintent.cases.model import CaseAmount, CaseKind
from payintent.core import ids
from payintent.db.database import Executor, Row
from payintent.db.lists import SCANNED_MAX, KeysetList, build


@dataclass(frozen=True, slots=True)
class CaseRefund:
    id: str
    status: str
    step: str
    failure_reason: str | None


@dataclass(frozen=True, slots=True)
class CaseDispute:
    reference: str  # the gateway's dispute id
    state: str
    funds: str  # untouched, withdrawn or reinstated
    reason: str
    respond_by: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDetails:
    id: str
    kind: str
    status: str
    merchant_id: int | None
    payment_id: str | None
    session_id: str | None
    opened_at: datetime
    closed_at: datetime | None
    closed_by: str | None
    note: str
    account_id: int | None
    reference: str | None  # the gateway's capture reference
    currency: str | None
    amount_minor: str | None  # smallest units
    chain: str | None
    tx_hash: str | None
    payer: str | None
    token: str | None
    subject: str | None  # the settlement file line, dispute, fraud warning or chain log
    refund_id: str | None  # the refund that caused the case
    refund: CaseRefund | None  # the latest refund made for this case
    dispute: CaseDispute | None
    received: CaseAmount | None
    expected: CaseAmount | None = None  # the quoted amount; None in lists


_COLUMNS: LiteralString = """
    m.id, m.kind, m.status, m.merchant_id, m.payment_id, m.session_id, m.opened_at, m.closed_at,
    m.closed_by, m.note, coalesce(c.account_id, r.account_id) AS account_id, c.reference,
    coalesce(d.currency, c.currency) AS currency,
    coalesce(d.amount_minor, c.amount_minor, r.amount)::text AS amount_minor, r.chain,
    '0x' || encode(r.tx_hash, 'hex') AS tx_hash, '0x' || encode(r.payer, 'hex') AS payer,
    '0x' || encode(r.token, 'hex') AS token, m.refund_id, m.subject,
    f.id AS f_id, f.status AS f_status, f.step AS f_step, f.failure_reason AS f_failure_reason,
    d.reference AS d_reference, d.state AS d_state, d.funds AS d_funds, d.reason AS d_reason,
    d.respond_by AS d_respond_by, t.symbol AS token_symbol, t.decimals AS token_decimals
"""
#: The tables of `_COLUMNS`; `f` is the case's latest refund.
_SOURCES: LiteralString = """
    FROM money_case m
    LEFT JOIN capture c ON c.id = m.capture_id
    LEFT JOIN chain_receipt r ON r.id = coalesce(m.receipt_id, c.receipt_id)
    LEFT JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
    LEFT JOIN dispute d ON d.case_id = m.id
    LEFT JOIN LATERAL (
        SELECT id, status, step, failure_reason
        FROM refund
        WHERE case_id = m.id
        ORDER BY id DESC
        LIMIT 1
    ) f ON true
"""


async def get(database: Executor, case_id: UUID) -> CaseDetails:
    row = await database.row("SELECT" + _COLUMNS + _SOURCES + "WHERE m.id = $1", case_id)
    assert row is not None  # noqa: S101 - cases are never deleted
    return _build_case(row)


def _build_case(row: Row) -> CaseDetails:
    refund = dispute = None
    if row["f_id"]:
        refund_id = ids.format_id(ids.REFUND, row["f_id"])
        refund = CaseRefund(refund_id, row["f_status"], row["f_step"], row["f_failure_reason"])
    if row["d_reference"]:
        dispute = CaseDispute(
            row["d_reference"], row["d_state"], row["d_funds"], row["d_reason"], row["d_respond_by"]
        )
    return build(
        CaseDetails,
        row,
        id=ids.format_id(ids.CASE, row["id"]),
        payment_id=row["payment_id"] and ids.format_id(ids.PAYMENT, row["payment_id"]),
        session_id=row["session_id"] and ids.format_id(ids.SESSION, row["session_id"]),
        refund_id=row["refund_id"] and ids.format_id(ids.REFUND, row["refund_id"]),
        refund=refund,
        dispute=dispute,
        received=CaseAmount.from_smallest_units(
            row["amount_minor"],
            row["token_symbol"] or row["currency"] or row["token"],
            row["chain"],
            row["token_decimals"],
        ),
        expected=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFilter:
    """Filters for case lists; filters that are None are ignored."""

    merchant_id: int | None = None
    status: str | None = None
    kind: str | None = None
    payment_ids: Sequence[UUID] | None = None
    opened_from: datetime | None = None
    opened_before: datetime | None = None
    oldest_first: bool = False  # only for operators' lists
    last: UUID | None = None  # the last case on the previous page


def _build_case_list(*index: LiteralString, oldest_first: bool = False) -> KeysetList:
    return (
        KeysetList(
            "SELECT id, merchant_id, payment_id, status, kind, opened_at FROM money_case",
            "id",
            *index,
            oldest_first=oldest_first,
        )
        .as_cte(
            "candidate AS MATERIALIZED",
            SCANNED_MAX,
            "SELECT id FROM candidate",
            "id",
            merchant_id="merchant_id = {}",
            status="status = {}",
            kind="kind = {}",
            payment_ids="payment_id = ANY({}::uuid[])",
            opened_from="opened_at >= {}",
            opened_before="opened_at < {}",
        )
        .as_cte(
            "page AS MATERIALIZED",
            "{limit}",
            "SELECT" + _COLUMNS + _SOURCES + "JOIN page n ON n.id = m.id",
            "m.id",
        )
    )


def _build_case_lists(*index: LiteralString) -> dict[bool, KeysetList]:
    """Map False to the newest-first list, and True to the oldest-first list."""
    return {order: _build_case_list(*index, oldest_first=order) for order in (False, True)}


_ALL, _OPEN, _BY_MERCHANT, _BY_PAYMENT = (
    _build_case_lists(),
    _build_case_lists("status = 'OPEN'"),
    _build_case_lists("merchant_id = {merchant_id}"),
    _build_case_lists("payment_id = ANY({payment_ids}::uuid[])"),
)


async def list_cases(database: Executor, case_filter: CaseFilter, limit: int) -> list[CaseDetails]:
    """List cases. Filters that no index covers apply only to the first 10,000 cases."""
    if case_filter.payment_ids is not None:
        lists = _BY_PAYMENT
    elif case_filter.status == "OPEN":
        lists = _OPEN
    else:
        lists = _ALL if case_filter.merchant_id is None else _BY_MERCHANT
    cases = lists[case_filter.oldest_first]
    rows = await cases.page(database, case_filter.last, limit, **asdict(case_filter))
    return [_build_case(row) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentCase:
    id: UUID
    kind: CaseKind
    merchant_id: int
    payment_id: UUID
    session_id: UUID | None
    capture_id: UUID | None
    status: str
    opened_at: datetime


async def list_for_payment(database: Executor, payment_id: UUID) -> list[PaymentCase]:
    rows = await database.fetch(
        """
        SELECT id, kind, merchant_id, payment_id, session_id, capture_id, status, opened_at
        FROM money_case
        WHERE payment_id = $1
        ORDER BY id
        LIMIT 1000
        """,
        payment_id,
    )
    return [build(PaymentCase, row, kind=CaseKind(row["kind"])) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseMoney:
    expected: CaseAmount | None  # the total of the session's quote
    received: CaseAmount | None  # the amount of the capture or transfer


async def get_money(database: Executor, case_id: UUID) -> CaseMoney:
    row = await database.row(
        """
        SELECT s.total_amount AS expected_amount, s.currency AS expected_currency,
            s.chain AS expected_chain, coalesce(c.amount_minor, r.amount)::text AS received_minor,
            coalesce(t.symbol, '0x' || encode(r.token, 'hex'), c.currency) AS received_currency,
            r.chain AS received_chain, t.decimals AS received_decimals
        FROM money_case m
        LEFT JOIN capture c ON c.id = m.capture_id
        LEFT JOIN chain_receipt r ON r.id = coalesce(m.receipt_id, c.receipt_id)
        LEFT JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
        LEFT JOIN session s ON s.id = coalesce(m.session_id, c.session_id)
        WHERE m.id = $1
        """,
        case_id,
    )
    assert row is not None  # noqa: S101 - cases are never deleted
    expected = None
    if row["expected_amount"] is not None and row["expected_currency"] is not None:
        expected = CaseAmount(
            amount=row["expected_amount"],
            currency=row["expected_currency"],
            chain=row["expected_chain"],
        )
    received = CaseAmount.from_smallest_units(
        row["received_minor"],
        row["received_currency"],
        row["received_chain"],
        row["received_decimals"],
    )
    return CaseMoney(expected=expected, received=received)


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantCase:
    """A case without the operator's internal details."""

    id: UUID
    kind: str
    status: str
    payment_id: UUID | None
    currency: str | None
    amount_minor: int | None  # smallest units
    token_decimals: int | None  # for configured tokens
    on_chain: bool
    opened_at: datetime
    closed_at: datetime | None
    dispute: CaseDispute | None


_MERCHANT_CASES = KeysetList(
    """
    SELECT m.id, m.kind, m.status, m.payment_id, m.opened_at, m.closed_at,
        coalesce(d.currency, c.currency) AS currency,
        coalesce(d.amount_minor, c.amount_minor) AS amount_minor,
        t.decimals AS token_decimals, r.id IS NOT NULL AS on_chain,
        d.reference, d.state, d.funds, d.reason, d.respond_by
    FROM money_case m
    LEFT JOIN dispute d ON d.case_id = m.id
    LEFT JOIN capture c ON c.id = m.capture_id
    LEFT JOIN chain_receipt r ON r.id = c.receipt_id
    LEFT JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
    """,
    "m.id",
    "m.merchant_id = {merchant_id}",
    status="m.status = {}",
    kind="m.kind = {}",
    payment_ids="m.payment_id = ANY({}::uuid[])",
)


async def list_for_merchant(
    database: Executor, case_filter: CaseFilter, limit: int
) -> list[MerchantCase]:
    """List a merchant's cases, newest first."""
    rows = await _MERCHANT_CASES.page(database, case_filter.last, limit, **asdict(case_filter))
    return [
        build(
            MerchantCase,
            row,
            amount_minor=None if row["amount_minor"] is None else int(row["amount_minor"]),
            dispute=build(CaseDispute, row) if row["state"] else None,
        )
        for row in rows
    ]
