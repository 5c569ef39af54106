"""Pages of a merchant's balance, and of its statements with their lines."""

from urllib.parse import urlencode

from starlette.responses import Response, StreamingResponse

from payintent.api.pagination import (
    read_id_cursor,
    read_offset_cursor,
    write_offset_cursor,
)
from payintent.api.statements import balance_fields, read_statement_currency
from payintent.domain.member import MemberRight
from payintent.domain.statement import Movement, fact_label
from payintent.operations.statements import (
    PDF_LINES_MAX,
    draw_pdf,
    export_lines,
    line_view,
    require_statement,
    statement_view,
)
from payintent.portal.rendering import HEADERS
from payintent.portal.visits import PAGE_ROWS, Visit, member_page, next_query
from payintent.storage import statements
from payintent.storage.statements import Statement, StatementFilter

_LINES = 100


@member_page(MemberRight.SEE_STATEMENTS)
async def get_portal_statements(visit: Visit) -> Response:
    database, query = visit.context.database, visit.request.query_params
    currency = read_statement_currency(query.get("currency") or None)
    statement_filter = StatementFilter(
        merchant_id=visit.merchant_id,
        currency=currency,
        before=read_id_cursor(query.get("cursor")),
    )
    records = await statements.list_statements(database, statement_filter, PAGE_ROWS + 1)
    balances = await statements.list_balances(database, visit.merchant_id)
    filters = {"currency": currency} if currency else {}
    return visit.render(
        "statements.html",
        "Statements",
        rows=[statement_view(statement) for statement in records[:PAGE_ROWS]],
        more=next_query([statement.id for statement in records], filters),
        balances=[balance_fields(balance) for balance in balances],
        movements=[str(movement) for movement in Movement],
        currency=currency or "",
        currencies=sorted({balance.currency for balance in balances or records}),
    )


@member_page(MemberRight.SEE_STATEMENTS)
async def get_portal_statement(visit: Visit) -> Response:
    database, statement = visit.context.database, await _own_statement(visit)
    skipped = read_offset_cursor(visit.request.query_params.get("cursor"))
    lines = await statements.list_lines(database, statement, skipped, _LINES + 1)
    more = None
    if len(lines) > _LINES:
        more = urlencode({"cursor": write_offset_cursor(skipped + _LINES)})
    view = statement_view(statement)
    views = [line_view(statement, line) for line in lines[:_LINES]]
    return visit.render(
        "statement.html",
        f"Statement of {view.day}",
        statement=view,
        movements=[(str(movement), getattr(view, movement)) for movement in Movement],
        lines=[(line, fact_label(line.fact)) for line in views],
        more=more,
        has_pdf=not await statements.list_lines(database, statement, PDF_LINES_MAX, 1),
    )


@member_page(MemberRight.SEE_STATEMENTS)
async def get_statement_csv(visit: Visit) -> Response:
    database, statement = visit.context.database, await _own_statement(visit)
    return StreamingResponse(
        export_lines(database, statement, "csv"),
        headers=HEADERS | _as_attachment(statement, "csv"),
        media_type="text/csv",
    )


@member_page(MemberRight.SEE_STATEMENTS)
async def get_statement_pdf(visit: Visit) -> Response:
    database, statement = visit.context.database, await _own_statement(visit)
    return Response(
        await draw_pdf(database, statement),
        headers=HEADERS | _as_attachment(statement, "pdf"),
        media_type="application/pdf",
    )


def _as_attachment(statement: Statement, extension: str) -> dict[str, str]:
    name = f"statement-{statement.day}-{statement.currency}{statement.chain}.{extension}"
    return {"Content-Disposition": f'attachment; filename="{name}"'}


async def _own_statement(visit: Visit) -> Statement:
    statement_id: str = visit.request.path_params["statement_id"]
    return await require_statement(visit.context.database, statement_id, visit.merchant_id)
