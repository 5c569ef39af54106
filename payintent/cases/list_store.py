"""Lists of cases and disputes."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from payintent.cases.model import CaseAmount, CaseKind
from payintent.cases.store import COLUMNS, SOURCES, CaseDetails, CaseDispute, from_row
from payintent.core import ids
from payintent.core.money import format_smallest_units
from payintent.db.database import Executor, Row
from payintent.db.lists import SCANNED_MAX, KeysetList, build


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseListFilter:
    """Filters for a list of cases; None matches all."""

    merchant_id: int | None = None
    status: str | None = None
    kind: str | None = None
    opened_from: datetime | None = None
    opened_before: datetime | None = None
    oldest_first: bool = False  # only for open cases
    last: UUID | None = None  # the last case of the previous page


def _build_case_list(*index: LiteralString, oldest_first: bool = False) -> KeysetList:
    return (
        KeysetList(
            "SELECT id, merchant_id, status, kind, opened_at FROM money_case",
            "id",
            *index,
            oldest_first=oldest_first,
        )
        .within(
            "first AS MATERIALIZED",
            SCANNED_MAX,
            "SELECT id FROM first",
            "id",
            merchant_id="merchant_id = {}",
            status="status = {}",
            kind="kind = {}",
            opened_from="opened_at >= {}",
            opened_before="opened_at < {}",
        )
        .within(
            "chosen AS MATERIALIZED",
            "{limit}",
            "SELECT" + COLUMNS + SOURCES + "JOIN chosen n ON n.id = m.id",
            "m.id",
        )
    )


_NEWEST, _OPEN, _OF_MERCHANT = (
    _build_case_list(),
    _build_case_list("status = 'OPEN'"),
    _build_case_list("merchant_id = {merchant_id}"),
)
_OPEN_OLDEST_FIRST = _build_case_list("status = 'OPEN'", oldest_first=True)


async def list_cases(database: Executor, criteria: CaseListFilter, limit: int) -> list[CaseDetails]:
    """List cases; conditions without an index are applied to the newest 10,000 only."""
    if criteria.oldest_first:
        cases = _OPEN_OLDEST_FIRST
    elif criteria.status == "OPEN":
        cases = _OPEN
    else:
        cases = _NEWEST if criteria.merchant_id is None else _OF_MERCHANT
    rows = await cases.page(database, criteria.last, limit, **asdict(criteria))
    return [from_row(row) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeFilter:
    """Filters for a list of disputes; None matches all."""

    merchant_id: int | None = None
    running: bool = True  # the bank has not decided
    currency: str | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None
    oldest_first: bool = False  # only for running disputes
    last: UUID | None = None  # the last dispute of the previous page


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeDetails:
    id: UUID
    reference: str  # the gateway's id of the dispute
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


def _build_dispute_list(*index: LiteralString, oldest_first: bool = False) -> KeysetList:
    return KeysetList("SELECT id FROM dispute", "id", *index, oldest_first=oldest_first).within(
        "first AS",
        SCANNED_MAX,
        """
        SELECT d.id, d.case_id, m.status AS case_status, m.merchant_id, m.payment_id,
            d.account_id, d.reference, d.state, d.funds, d.amount_minor::text AS amount_minor,
            d.currency, d.reason, d.respond_by, d.created_at, d.updated_at
        FROM first n
        CROSS JOIN LATERAL (SELECT * FROM dispute WHERE id = n.id LIMIT 1) d
        CROSS JOIN LATERAL (
            SELECT status, merchant_id, payment_id FROM money_case WHERE id = d.case_id LIMIT 1
        ) m
        """,
        "n.id",
        merchant_id="m.merchant_id = {}",
        currency="d.currency = {}",
        created_from="d.created_at >= {}",
        created_before="d.created_at < {}",
    )


_IS_RUNNING: LiteralString = "state IN ('inquiry', 'open', 'under_review')"
_ALL, _RUNNING = _build_dispute_list(), _build_dispute_list(_IS_RUNNING)
_RUNNING_OLDEST_FIRST = _build_dispute_list(_IS_RUNNING, oldest_first=True)


async def list_disputes(
    database: Executor, criteria: DisputeFilter, limit: int
) -> list[DisputeDetails]:
    """List disputes; filters are applied to the first 10,000 only."""
    newest = _RUNNING if criteria.running else _ALL
    disputes = _RUNNING_OLDEST_FIRST if criteria.oldest_first else newest
    rows = await disputes.page(database, criteria.last, limit, **asdict(criteria))
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
    came: CaseAmount | None  # the capture or the transfer


async def get(database: Executor, case_id: UUID) -> CaseMoney:
    row = await database.row(
        """
        SELECT s.total_amount AS expected_amount, s.currency AS expected_currency,
            s.chain AS expected_chain, coalesce(c.amount_minor, r.amount)::text AS came_minor,
            coalesce(t.symbol, '0x' || encode(r.token, 'hex'), c.currency) AS came_currency,
            r.chain AS came_chain, t.decimals AS came_decimals
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
    came = CaseAmount.from_smallest_units(
        row["came_minor"], row["came_currency"], row["came_chain"], row["came_decimals"]
    )
    return CaseMoney(expected=expected, came=came)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFilter:
    merchant_id: int
    status: str | None = None
    kind: CaseKind | None = None
    payment_id: UUID | None = None
    before: UUID | None = None  # the last case of the previous page


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantCase:
    """A case without the details that are internal to the operator."""

    id: UUID
    kind: str
    status: str
    payment_id: UUID | None
    currency: str | None
    amount_minor: int | None  # smallest units
    token_decimals: int | None  # of a configured token on a chain
    on_chain: bool
    opened_at: datetime
    closed_at: datetime | None
    dispute: CaseDispute | None


_CASES = KeysetList(
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
    payment_id="m.payment_id = {}",
)


async def page(database: Executor, criteria: CaseFilter, limit: int) -> list[MerchantCase]:
    rows = await _CASES.page(database, criteria.before, limit, **asdict(criteria))
    return [_from_row(row) for row in rows]


def _from_row(row: Row) -> MerchantCase:
    amount = row["amount_minor"]
    return build(
        MerchantCase,
        row,
        amount_minor=None if amount is None else int(amount),
        dispute=build(CaseDispute, row) if row["state"] else None,
    )
