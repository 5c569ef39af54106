"""Statements of merchants: listed, shown, and exported line by line."""

import asyncio
import base64
import csv
import io
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, ClassVar, Literal

import msgspec

from payintent.domain import ids
from payintent.domain.errors import NotFoundError, UnprocessableError
from payintent.domain.ledger import Fact
from payintent.domain.money import format_smallest_units
from payintent.domain.statement import MOVEMENTS, Movement
from payintent.json_format import format_timestamp
from payintent.operations.base import OperationContext, ReadOperation
from payintent.operations.fields import ListLimit, OfMerchantId, argument, option
from payintent.operations.validation import (
    check_list_limit,
    check_merchant,
    parse_before,
    quote_input,
    read_day,
)
from payintent.storage import merchants, statements
from payintent.storage.database import Executor
from payintent.storage.statements import Statement, StatementFilter, StatementLine

_LINES_AT_ONCE = 5_000
PDF_LINES_MAX = 5_000  # more than a hundred pages, which nobody reads; and a second to draw
ExportFormat = Literal["csv", "jsonl"]
_FACT_IDS = {
    Fact.REFUND_RESERVED: ids.REFUND,
    Fact.REFUND_REVERSED: ids.REFUND,
    Fact.CASE_ACCEPTED: ids.CASE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementView:
    """A statement as people read it; amounts in units, or in smallest units of an unknown token."""

    id: str
    merchant_id: int
    currency: str
    chain: str | None
    number: int  # of this merchant and currency, from 1 on
    day: date
    time_zone: str
    opening: str
    payments: str
    fees: str
    tax: str
    refunds: str
    disputes: str
    adjustments: str
    payouts: str
    closing: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementLineView:
    """What one payment, refund, dispute, case, adjustment or payout moved."""

    at: str
    kind: str
    fact: str
    id: str  # of a refund or a case, else of the capture, dispute, payout or adjustment
    payment_id: str | None
    amount: str  # of a payment: before fee and tax
    fee: str
    tax: str
    net: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementText:
    """The lines of a statement in a format for other programs, or the whole as a PDF."""

    format: str
    text: str  # of a PDF: in base64


class ListStatements(ReadOperation[list[StatementView]], frozen=True, kw_only=True):
    """List statements, newest first."""

    action: ClassVar[str] = "statement.list"
    columns = ("id", "merchant_id", "day", "currency", "opening", "payments", "refunds", "closing")
    merchant_id: OfMerchantId = None
    currency: Annotated[str | None, option("Of one currency or token, such as THB.")] = None
    since: Annotated[str | None, option("From this day on.")] = None
    until: Annotated[str | None, option("Up to this day.")] = None
    before: Annotated[
        str | None, option("The next page: statements before this one, the last of a page.")
    ] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[StatementView]:
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        wanted = StatementFilter(
            merchant_id=self.merchant_id,
            currency=self.currency,
            since=read_day("since", self.since),
            until=read_day("until", self.until),
            before=parse_before(ids.STATEMENT, self.before),
        )
        records = await statements.list_statements(context.reading, wanted, self.limit)
        return list(map(statement_view, records))


class ShowStatement(ReadOperation[StatementView], frozen=True, kw_only=True):
    """Show one statement."""

    action: ClassVar[str] = "statement.show"
    statement_id: Annotated[str, argument("Such as stmt_0351NDickobV3yYH8omp8v.")]

    async def read(self, context: OperationContext) -> StatementView:
        return statement_view(await known_statement(context.database, self.statement_id))


class ExportStatement(ReadOperation[StatementText], frozen=True, kw_only=True):
    """Write the lines of a statement as CSV or JSON lines, or all of it as a PDF.

    Their amounts, less fees and taxes, sum to its closing balance less its opening balance.
    """

    action: ClassVar[str] = "statement.export"
    statement_id: Annotated[str, argument("Such as stmt_0351NDickobV3yYH8omp8v.")]
    format: Annotated[
        Literal[ExportFormat, "pdf"],
        option("CSV with a header, JSON lines, or a PDF for people."),
    ] = "csv"

    async def read(self, context: OperationContext) -> StatementText:
        statement = await known_statement(context.database, self.statement_id)
        if self.format == "pdf":
            drawn = await draw_pdf(context.reading, statement)
            return StatementText(format=self.format, text=base64.b64encode(drawn).decode())
        parts = [part async for part in export_lines(context.reading, statement, self.format)]
        return StatementText(format=self.format, text="".join(parts).removesuffix("\n"))


async def known_statement(
    database: Executor, statement_id: str, merchant_id: int | None = None
) -> Statement:
    """Return a statement, of one merchant if it is given; raise `NOT_FOUND` for any other id."""
    parsed = ids.parse_id(ids.STATEMENT, statement_id)
    found = await statements.get(database, parsed) if parsed else None
    if found is None or merchant_id not in (None, found.merchant_id):
        wanted = quote_input(statement_id) if merchant_id is None else "of this id"
        raise NotFoundError(f"no statement {wanted}")
    return found


def statement_view(statement: Statement) -> StatementView:
    moved = {
        str(movement): _amount(statement, minor) for movement, minor in statement.movements.items()
    }
    return StatementView(
        id=ids.format_id(ids.STATEMENT, statement.id),
        merchant_id=statement.merchant_id,
        currency=statement.currency,
        chain=statement.chain or None,
        number=statement.number,
        day=statement.day,
        time_zone=statement.time_zone,
        opening=_amount(statement, statement.opening_minor),
        closing=_amount(statement, statement.closing_minor),
        created_at=statement.created_at,
        **moved,
    )


def line_view(statement: Statement, line: StatementLine) -> StatementLineView:
    gross = line.net_minor + line.fee_minor + line.tax_minor
    prefix = _FACT_IDS.get(line.fact)
    return StatementLineView(
        at=format_timestamp(line.at),
        kind=Movement(MOVEMENTS[line.fact]),
        fact=line.fact,
        id=ids.format_id(prefix, line.fact_id) if prefix else str(line.fact_id),
        payment_id=line.payment_id and ids.format_id(ids.PAYMENT, line.payment_id),
        amount=_amount(statement, gross),
        fee=_amount(statement, line.fee_minor),
        tax=_amount(statement, line.tax_minor),
        net=_amount(statement, line.net_minor),
    )


async def export_lines(
    database: Executor, statement: Statement, wanted: ExportFormat
) -> AsyncIterator[str]:
    """Write the lines of a statement, some thousands at a time; each ends in a line feed."""
    if wanted == "csv":
        yield _csv_rows([list(StatementLineView.__slots__)])
    skipped = 0
    while lines := await statements.list_lines(database, statement, skipped, _LINES_AT_ONCE):
        views = [line_view(statement, line) for line in lines]
        yield _write_csv(views) if wanted == "csv" else _write_json_lines(views)
        skipped += len(lines)


async def draw_pdf(database: Executor, statement: Statement) -> bytes:
    """Draw a statement as a PDF; raise `UNPROCESSABLE` if it has too many lines."""
    lines = await statements.list_lines(database, statement, 0, PDF_LINES_MAX + 1)
    if len(lines) > PDF_LINES_MAX:
        raise UnprocessableError(
            f"a PDF has at most {PDF_LINES_MAX} lines; this statement can be had as CSV"
        )
    merchant = await merchants.get(database, statement.merchant_id)
    assert merchant is not None  # noqa: S101 - merchants stay
    # Who wants no PDF goes without its library.
    from payintent.operations.statement_pdf import StatementPages, write_statement_pdf

    pages = StatementPages(
        statement=statement_view(statement),
        merchant_name=merchant.name,
        lines=[line_view(statement, line) for line in lines],
    )
    return await asyncio.to_thread(write_statement_pdf, pages)


def _write_csv(lines: Sequence[StatementLineView]) -> str:
    return _csv_rows([[getattr(line, name) or "" for name in line.__slots__] for line in lines])


def _csv_rows(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _write_json_lines(lines: Sequence[StatementLineView]) -> str:
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)


def _amount(statement: Statement, minor: int) -> str:
    """Format an amount; in smallest units where the decimals of its token are unknown."""
    text = format_smallest_units(
        minor, statement.currency, statement.token_decimals, on_chain=statement.chain != ""
    )
    return str(minor) if text is None else text
