"""Lists of cases and disputes."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from payintent.domain import ids
from payintent.domain.case import CaseKind
from payintent.domain.money import format_smallest_units
from payintent.storage.cases import COLUMNS, SOURCES, CaseDetails, from_row
from payintent.storage.database import Executor
from payintent.storage.lists import SCANNED_MAX, KeysetList
from payintent.storage.rows import build


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
