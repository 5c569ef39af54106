"""Operations that list, show and export merchants' statements."""

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from payintent.accounting import statements_store as statement_store
from payintent.accounting.model import Fact
from payintent.accounting.statement_model import (
    MOVEMENTS,
    Movement,
    StatementLineView,
    StatementView,
)
from payintent.accounting.statements_store import (
    MerchantBalance,
    Statement,
    StatementLine,
)
from payintent.core import ids
from payintent.core.errors import BadRequestError, NotFoundError, UnprocessableError
from payintent.core.money import TENDER, format_smallest_units
from payintent.db.database import Executor
from payintent.merchants import store as merchant_store
from payintent.operators.fields import (
    ListLimit,
    MerchantFilter,
    argument,
    check_list_limit,
    check_merchant,
    option,
    parse_before,
    parse_day,
    quote_input,
)
from payintent.operators.operation import OperationContext, ReadOperation
from payintent.runtime.csv_format import write_csv
from payintent.runtime.json_format import format_timestamp

_LINES_BATCH = 5_000
PDF_LINES_MAX = 5_000  # over 100 pages, drawn in about a second
ExportFormat = Literal["csv", "jsonl"]
LINE_COLUMNS = tuple(field.name for field in fields(StatementLineView))
_LINE_AMOUNTS = ("amount", "fee", "tax", "net")
_FACT_ID_PREFIXES = {
    Fact.REFUND_RESERVED: ids.REFUND,
    Fact.REFUND_REVERSED: ids.REFUND,
    Fact.CASE_ACCEPTED: ids.CASE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementText:
    """A statement's lines in a machine-readable format, or the whole statement as a PDF."""

    format: str
    text: str  # base64 for a PDF


class ListStatements(ReadOperation[list[StatementView]], frozen=True, kw_only=True):
    """List statements, newest first."""

    action: ClassVar[str] = "statement.list"
    columns = ("id", "merchant_id", "day", "currency", "opening", "payments", "refunds", "closing")
    merchant_id: MerchantFilter = None
    currency: Annotated[str | None, option("Only this currency or token, such as THB.")] = None
    since: Annotated[str | None, option("Only statements from this day onwards.")] = None
    until: Annotated[str | None, option("Only statements up to and including this day.")] = None
    before: Annotated[str | None, option("The last statement on the previous page.")] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[StatementView]:
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        records = await statement_store.list_statements(
            context.read_database,
            self.limit,
            merchant_id=self.merchant_id,
            currency=self.currency,
            since=parse_day("since", self.since),
            until=parse_day("until", self.until),
            before=parse_before(ids.STATEMENT, self.before),
        )
        return list(map(make_statement_view, records))


class ShowStatement(ReadOperation[StatementView], frozen=True, kw_only=True):
    """Show a statement."""

    action: ClassVar[str] = "statement.show"
    statement_id: Annotated[str, argument("The statement id, such as stmt_0351NDickobV3yYH8omp8v.")]

    async def read(self, context: OperationContext) -> StatementView:
        return make_statement_view(await require_statement(context.database, self.statement_id))


class ExportStatement(ReadOperation[StatementText], frozen=True, kw_only=True):
    """Export a statement's lines as CSV or JSON Lines, or the statement as a PDF.

    The net amounts add up to the closing balance minus the opening balance.
    """

    action: ClassVar[str] = "statement.export"
    statement_id: Annotated[str, argument("The statement id, such as stmt_0351NDickobV3yYH8omp8v.")]
    format: Annotated[
        Literal[ExportFormat, "pdf"],
        option("CSV with a header line, JSON Lines or PDF."),
    ] = "csv"

    async def read(self, context: OperationContext) -> StatementText:
        statement = await require_statement(context.database, self.statement_id)
        if self.format == "pdf":
            pdf = await draw_pdf(context.database, statement)
            return StatementText(format=self.format, text=base64.b64encode(pdf).decode())
        # A replica may lack some of a new statement's lines.
        chunks = [chunk async for chunk in _format_lines(context.database, statement, self.format)]
        return StatementText(format=self.format, text="".join(chunks).rstrip("\r\n"))


async def require_statement(
    database: Executor, statement_id: str, merchant_id: int | None = None
) -> Statement:
    """Return a statement; raise `NOT_FOUND` if it does not exist or belongs to another merchant."""
    parsed_id = ids.parse_id(ids.STATEMENT, statement_id)
    statement = await statement_store.get(database, parsed_id) if parsed_id else None
    if statement is None or merchant_id not in (None, statement.merchant_id):
        name = quote_input(statement_id) if merchant_id is None else "with this id"
        raise NotFoundError(f"no statement {name}")
    return statement


def format_balance(balance: MerchantBalance) -> dict[str, Any]:
    on_chain = balance.chain != ""
    amount = format_smallest_units(
        balance.amount_minor, balance.currency, balance.token_decimals, on_chain=on_chain
    )
    chain = {"chain": balance.chain} if on_chain else {}
    return {"currency": balance.currency, **chain, "amount": amount or str(balance.amount_minor)}


def parse_statement_currency(raw: str | None) -> str | None:
    """Return the currency to filter by; raise `BAD_REQUEST` if it is unknown."""
    if raw is not None and raw not in TENDER:
        raise BadRequestError(f"currency must be one of {', '.join(TENDER)}")
    return raw


def make_statement_view(statement: Statement) -> StatementView:
    movements = {
        str(movement): _format_amount(statement, minor)
        for movement, minor in statement.movements.items()
    }
    return StatementView(
        id=ids.format_id(ids.STATEMENT, statement.id),
        merchant_id=statement.merchant_id,
        currency=statement.currency,
        chain=statement.chain or None,
        number=statement.number,
        day=statement.day,
        time_zone=statement.time_zone,
        opening=_format_amount(statement, statement.opening_minor),
        closing=_format_amount(statement, statement.closing_minor),
        created_at=statement.created_at,
        **movements,
    )


def make_line_view(statement: Statement, line: StatementLine) -> StatementLineView:
    gross = line.net_minor + line.fee_minor + line.tax_minor
    prefix = _FACT_ID_PREFIXES.get(line.fact)
    return StatementLineView(
        at=format_timestamp(line.at),
        kind=Movement(MOVEMENTS[line.fact]),
        fact=line.fact,
        id=ids.format_id(prefix, line.fact_id) if prefix else str(line.fact_id),
        payment_id=line.payment_id and ids.format_id(ids.PAYMENT, line.payment_id),
        amount=_format_amount(statement, gross),
        fee=_format_amount(statement, line.fee_minor),
        tax=_format_amount(statement, line.tax_minor),
        net=_format_amount(statement, line.net_minor),
    )


async def list_line_pages(
    database: Executor, statement: Statement
) -> AsyncGenerator[Sequence[StatementLineView]]:
    offset = 0
    while lines := await statement_store.list_lines(database, statement, offset, _LINES_BATCH):
        yield [make_line_view(statement, line) for line in lines]
        offset += len(lines)


def make_line_fields(line: StatementLineView) -> dict[str, Any]:
    """Return the values of `LINE_COLUMNS`, with amounts that spreadsheets treat as numbers."""
    return asdict(line) | {name: Decimal(getattr(line, name)) for name in _LINE_AMOUNTS}


async def _format_lines(
    database: Executor, statement: Statement, export_format: ExportFormat
) -> AsyncIterator[str]:
    """Yield a statement's lines in batches."""
    if export_format == "csv":
        yield write_csv([LINE_COLUMNS])
    async for lines in list_line_pages(database, statement):
        if export_format == "csv":
            yield write_csv(make_line_fields(line).values() for line in lines)
        else:
            yield "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)


async def draw_pdf(database: Executor, statement: Statement) -> bytes:
    """Draw a statement as a PDF; raise `UNPROCESSABLE` if it has too many lines."""
    lines = await statement_store.list_lines(database, statement, 0, PDF_LINES_MAX + 1)
    if len(lines) > PDF_LINES_MAX:
        raise UnprocessableError(
            f"a PDF has at most {PDF_LINES_MAX} lines; export this statement as CSV"
        )
    merchant = await merchant_store.get(database, statement.merchant_id)
    assert merchant is not None  # noqa: S101 - merchants are never deleted
    # Imported here because the PDF library is optional.
    from payintent.accounting.statement_pdf import StatementPages, write_statement_pdf

    pages = StatementPages(
        statement=make_statement_view(statement),
        merchant_name=merchant.name,
        lines=[make_line_view(statement, line) for line in lines],
    )
    return await asyncio.to_thread(write_statement_pdf, pages)


def _format_amount(statement: Statement, minor: int) -> str:
    """Format an amount, in smallest units if the token's decimals are unknown."""
    text = format_smallest_units(
        minor, statement.currency, statement.token_decimals, on_chain=statement.chain != ""
    )
    return str(minor) if text is None else text
