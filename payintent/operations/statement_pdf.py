"""Drawing of a statement as a PDF: its figures, followed by a table of its lines."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reportlab.lib.pagesizes import A4, landscape
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

from payintent.domain.statement import StatementLineView, StatementView, fact_label
from payintent.operations.name_drawing import NameFonts, draw_name, name_fonts

_WIDTH, _HEIGHT = landscape(A4)
_MARGIN = 36.0
_RIGHT = _WIDTH - _MARGIN
_TEXT, _BOLD = "Helvetica", "Helvetica-Bold"
_TITLE_PT, _NAME_PT, _FIGURE_PT, _LINE_PT = 16.0, 11.0, 9.0, 7.0
_FIGURE_STEP, _LINE_STEP = 14.0, 11.0
_FOOT = _MARGIN - 12
_FIGURES = (
    *("opening", "payments", "fees", "tax", "refunds", "disputes", "adjustments", "payouts"),
    "closing",
)
_FIGURES_RIGHT = 320.0
_FIRST_LINES_TOP = _HEIGHT - 122.0 - len(_FIGURES) * _FIGURE_STEP
_LINES_TOP = _HEIGHT - _MARGIN
#: Column titles with the left edge of text columns, and the right edge of amount columns.
_TEXTS = (("Time, UTC", 36.0), ("Kind", 118.0), ("What", 174.0), ("Payment", 254.0))
_AMOUNTS = (("Amount", 478.0), ("Fee", 584.0), ("Tax", 690.0), ("Net", _RIGHT))
_AMOUNT_WIDTH = 104.0
_NAME_WIDTH = _RIGHT - _MARGIN - 100.0  # leaves space for the merchant's number


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementPages:
    statement: StatementView
    merchant_name: str
    lines: Sequence[StatementLineView]


def write_statement_pdf(pages: StatementPages) -> bytes:
    """Draw a statement; equal statements give equal bytes."""
    with name_fonts() as fonts:
        return _draw(pages, fonts)


def _draw(pages: StatementPages, fonts: NameFonts) -> bytes:
    file = io.BytesIO()
    canvas = Canvas(file, pagesize=(_WIDTH, _HEIGHT), invariant=1, pageCompression=1)
    view = pages.statement
    canvas.setTitle(f"{_title(view)}, {_money(view)}")
    canvas.setCreator("payintent")
    _draw_figures(canvas, pages, fonts)
    parts = list(_paginate(pages.lines))
    for number, part in enumerate(parts):
        if number:
            canvas.showPage()
        top = _LINES_TOP if number else _FIRST_LINES_TOP
        _draw_lines(canvas, part, top)
        _draw_foot(canvas, view, f"Page {number + 1} of {len(parts)}")
    canvas.save()
    return file.getvalue()


def _paginate(lines: Sequence[StatementLineView]) -> Iterator[Sequence[StatementLineView]]:
    """Yield the lines of each page; the first page has fewer, possibly none."""
    first = int((_FIRST_LINES_TOP - _MARGIN) / _LINE_STEP) - 1
    later = int((_LINES_TOP - _MARGIN) / _LINE_STEP) - 1
    yield lines[:first]
    for begin in range(first, len(lines), later):
        yield lines[begin : begin + later]


def _title(view: StatementView) -> str:
    return f"Statement {view.number} of {view.day.isoformat()}"


def _draw_figures(canvas: Canvas, pages: StatementPages, fonts: NameFonts) -> None:
    view = pages.statement
    y = _HEIGHT - _MARGIN - _TITLE_PT
    canvas.setFont(_BOLD, _TITLE_PT)
    canvas.drawString(_MARGIN, y, _title(view))
    y -= 22
    name, number, x = pages.merchant_name, f" (merchant {view.merchant_id})", _MARGIN
    if name.isascii() and stringWidth(name, _TEXT, _NAME_PT) <= _NAME_WIDTH:
        number = name + number  # needs no embedded font
    else:
        x += draw_name(canvas, fonts, (x, y), name, _NAME_PT, _NAME_WIDTH)
    canvas.setFont(_TEXT, _NAME_PT)
    canvas.drawString(x, y, number)
    canvas.setFont(_TEXT, _FIGURE_PT)
    y -= 16
    canvas.drawString(_MARGIN, y, f"{_money(view)}. The day ends at midnight in {view.time_zone}.")
    y -= 24
    for name in _FIGURES:
        canvas.setFont(_BOLD if name in {"opening", "closing"} else _TEXT, _FIGURE_PT)
        if name == "closing":
            canvas.line(_MARGIN, y + _FIGURE_STEP - 4, _FIGURES_RIGHT, y + _FIGURE_STEP - 4)
        canvas.drawString(_MARGIN, y, name.capitalize())
        canvas.drawRightString(_FIGURES_RIGHT, y, getattr(view, name))
        y -= _FIGURE_STEP


def _draw_lines(canvas: Canvas, lines: Sequence[StatementLineView], top: float) -> None:
    y = top - _LINE_STEP
    canvas.setFont(_BOLD, _LINE_PT)
    for name, x in _TEXTS:
        canvas.drawString(x, y, name)
    for name, x in _AMOUNTS:
        canvas.drawRightString(x, y, name)
    canvas.line(_MARGIN, y - 3, _RIGHT, y - 3)
    for line in lines:
        y -= _LINE_STEP
        canvas.setFont(_TEXT, _LINE_PT)
        fact = fact_label(line.fact)
        texts = (line.at[:19].replace("T", " "), line.kind, fact, line.payment_id or "\u2013")
        for text, (_, x) in zip(texts, _TEXTS, strict=True):
            canvas.drawString(x, y, text)
        amounts = (line.amount, line.fee, line.tax, line.net)
        for amount, (_, x) in zip(amounts, _AMOUNTS, strict=True):
            _draw_amount(canvas, x, y, amount)


def _draw_amount(canvas: Canvas, right: float, y: float, amount: str) -> None:
    """Draw a right-aligned amount, in a smaller font if it is wider than its column."""
    width = stringWidth(amount, _TEXT, _LINE_PT)
    if width > _AMOUNT_WIDTH:  # a token with many decimals
        canvas.setFont(_TEXT, _LINE_PT * _AMOUNT_WIDTH / width)
    canvas.drawRightString(right, y, amount)
    if width > _AMOUNT_WIDTH:
        canvas.setFont(_TEXT, _LINE_PT)


def _draw_foot(canvas: Canvas, view: StatementView, page: str) -> None:
    canvas.setFont(_TEXT, _LINE_PT)
    canvas.drawString(_MARGIN, _FOOT, f"{view.id}, {_money(view)}")
    canvas.drawRightString(_RIGHT, _FOOT, page)


def _money(view: StatementView) -> str:
    return f"{view.currency} on {view.chain}" if view.chain else view.currency
