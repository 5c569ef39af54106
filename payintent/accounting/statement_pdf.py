"""Draw a statement as a PDF: a summary, followed by a table of the lines."""

import io
import unicodedata
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any

from reportlab.lib.pagesizes import A4, landscape
from reportlab.pdfbase import pdfmetrics, ttfonts
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from payintent.accounting.statement_model import StatementLineView, StatementView, format_fact
from payintent.runtime.log import get_logger

_log = get_logger(__name__)

_PLANE_MAX = 0xFFFF
_REPLACEMENT = "\ufffd"  # included in the first font
_RIGHT_TO_LEFT = frozenset({"R", "AL"})
_NUMBERS = frozenset({"EN", "AN"})
_MIRRORED = str.maketrans("()[]{}<>«»", ")(][}{><»«")
_IGNORED = frozenset("\u200b\u200c\u200d\u200e\u200f\u2060\ufe0e\ufe0f")
_fonts_lock = Lock()  # font names are registered for the whole process


@dataclass(slots=True)
class NameFonts:
    """A document's fonts, reloaded for each document so that the PDF's bytes are reproducible."""

    names: dict[Path, str] = field(default_factory=dict[Path, str])

    def register(self, path: Path) -> str:
        """Return the name of a font, registering it on first use."""
        if path not in self.names:
            name = f"{path.stem.replace('[wght]', '')}-{len(self.names)}"
            registry: Any = pdfmetrics
            registry.registerFont(_load_font(name, path))
            self.names[path] = name
        return self.names[path]


@dataclass(frozen=True, slots=True)
class _Run:
    level: int
    path: Path
    text: str

    @property
    def visual_text(self) -> str:
        """The text in the order HarfBuzz expects; HarfBuzz reverses right-to-left scripts."""
        if self.level % 2 == 0 or any(map(_is_right_to_left, self.text)):
            return self.text
        return self.text[::-1].translate(_MIRRORED)


@contextmanager
def open_name_fonts() -> Generator[NameFonts]:
    """Provide the fonts for a document. Other threads wait until the context exits."""
    with _fonts_lock:
        fonts = NameFonts()
        try:
            yield fonts
        finally:
            registry: Any = pdfmetrics
            for name in fonts.names.values():
                registry.getFont(name).unregister()


def draw_name(
    canvas: Canvas,
    fonts: NameFonts,
    origin: tuple[float, float],
    name: str,
    size: float,
    width_max: float,
) -> float:
    """Draw a name, scaled down to `width_max` if necessary; return its width in points.

    Characters missing from all fonts are drawn as U+FFFD and logged.
    """
    shaped_texts = shape_runs(fonts, name, size)
    widths = [_measure(text, size) for _, text in shaped_texts]
    scale = min(1.0, width_max / sum(widths)) if sum(widths) else 1.0
    x, y = origin
    # Text search and copying use this text, because glyphs may not map to letters.
    actual_text = name.encode("utf-16-be").hex().upper()
    code: list[str] = getattr(canvas, "_code")  # noqa: B009 - no public name exists
    code.append(f"/Span <</ActualText <FEFF{actual_text}>>> BDC")
    for (font, text), width in zip(shaped_texts, widths, strict=True):
        canvas.setFont(font, size * scale)
        canvas.drawString(x, y, text)
        x += width * scale
    code.append("EMC")
    return x - origin[0]


def shape_runs(fonts: NameFonts, name: str, size: float) -> list[tuple[str, Any]]:
    """Return the font and shaped text of each run in a name, from left to right."""
    runs = _reorder(_split_runs(_replace_missing(unicodedata.normalize("NFC", name))))
    texts = [(fonts.register(run.path), run.visual_text) for run in runs]
    library: Any = ttfonts
    return [(font, library.shapeStr(text, font, size, force=True)) for font, text in texts]


def _measure(text: Any, size: float) -> float:
    return sum(glyph.x_advance for glyph in text.__shapeData__) * size / 1000


def _replace_missing(name: str) -> str:
    """Replace and log characters that are missing from all fonts."""
    missing_letters = sorted(
        {letter for letter in name if _find_font(letter) is None and letter not in _IGNORED}
    )
    if missing_letters:
        codes = [f"U+{ord(letter):04X}" for letter in missing_letters]
        _log.warning("statement_characters_missing", characters=codes)
    return "".join(_REPLACEMENT if letter in missing_letters else letter for letter in name)


def _split_runs(name: str) -> list[_Run]:
    """Split a name into runs of characters with the same embedding level and font."""
    styled_letters: list[tuple[int, Path, str]] = []
    font_path = _list_fonts()[0]
    for letter, level in zip(name, _compute_levels(name), strict=True):
        is_joined = letter in _IGNORED or unicodedata.category(letter).startswith("M")
        is_supported = letter in _IGNORED or ord(letter) in _get_supported_codes(font_path)
        if not (is_joined and is_supported and styled_letters):
            font_path = _find_font(letter) or font_path
        styled_letters.append((level, font_path, letter))
    return [
        _Run(level, path, "".join(letter for *_, letter in letters))
        for (level, path), letters in groupby(styled_letters, key=lambda style: style[:2])
    ]


def _reorder(runs: Sequence[_Run]) -> list[_Run]:
    """Sort runs into visual order, from left to right (UAX 9, rule L2)."""
    visual_runs = list(runs)
    for level in range(max((run.level for run in visual_runs), default=0), 0, -1):
        reordered_runs: list[_Run] = []
        for is_deep, group in groupby(visual_runs, key=lambda run: run.level >= level):
            members = list(group)
            reordered_runs += members[::-1] if is_deep else members
        visual_runs = reordered_runs
    return visual_runs


def _compute_levels(name: str) -> list[int]:
    """Return each character's embedding level; odd levels run from right to left."""
    kinds = _classify(name)
    base = next((int(kind == "R") for kind in kinds if kind in "LR"), 0)
    directions = list(kinds)
    previous = "LR"[base]
    for index, kind in enumerate(kinds):
        if kind in "LR":
            previous = kind
        elif kind == "O":
            next_direction = next((kind for kind in kinds[index:] if kind != "O"), "LR"[base])
            next_direction = previous if next_direction == "N" else next_direction
            directions[index] = previous if previous == next_direction else "LR"[base]
        elif base == 0 and previous == "L":
            directions[index] = "L"
    return [{"L": 2 * base, "R": 1, "N": 2}[direction] for direction in directions]


def _classify(name: str) -> list[str]:
    """Classify each character as L (left to right), R (right to left), N (number) or O (other)."""
    kinds: list[str] = []
    for letter in name:
        kind = unicodedata.bidirectional(letter)
        if kind in _RIGHT_TO_LEFT:
            kinds.append("R")
        elif kind in _NUMBERS:
            kinds.append("N")
        elif kind == "NSM" and kinds:
            kinds.append(kinds[-1])
        else:
            kinds.append("L" if kind == "L" else "O")
    return kinds


def _is_right_to_left(letter: str) -> bool:
    return unicodedata.bidirectional(letter) in _RIGHT_TO_LEFT


@cache
def _list_fonts() -> tuple[Path, ...]:
    noto = Path(str(files("manimgx_fonts")))
    main = "NotoSans[wght].ttf"
    symbols = ("NotoSansSymbols[wght].ttf", "NotoEmoji[wght].ttf")
    scripts = sorted(
        path.name
        for path in noto.glob("*.ttf")
        if path.name not in {main, *symbols} and "Italic" not in path.name
    )
    chinese_font = Path(str(files("paperang_p2_fonts_cjk"))) / "fonts" / "wqy-microhei.ttc"
    return (
        *(noto / name for name in (main, *scripts)),
        chinese_font,
        *(noto / name for name in symbols),
    )


@cache
def _get_supported_codes(path: Path) -> frozenset[int]:
    face: Any = TTFont("letters", str(path)).face
    return frozenset(face.charToGlyph)


@cache
def _find_font(letter: str) -> Path | None:
    return next((path for path in _list_fonts() if ord(letter) in _get_supported_codes(path)), None)


def _load_font(name: str, path: Path) -> TTFont:
    font = TTFont(name, str(path))
    face: Any = font.face
    # ReportLab writes invalid text for code points above U+FFFF. Glyphs without a lower code point
    # are assigned a private-use code point.
    letters: dict[int, list[int]] = face.glyphToChar
    short_codes = {
        glyph: [code for code in codes if code <= _PLANE_MAX] for glyph, codes in letters.items()
    }
    face.glyphToChar = {glyph: codes for glyph, codes in short_codes.items() if codes}
    return font


_WIDTH, _HEIGHT = landscape(A4)
_MARGIN = 36.0
_RIGHT = _WIDTH - _MARGIN
_TEXT, _BOLD = "Helvetica", "Helvetica-Bold"
_TITLE_PT, _NAME_PT, _FIGURE_PT, _LINE_PT = 16.0, 11.0, 9.0, 7.0
_FIGURE_STEP, _LINE_STEP = 14.0, 11.0
_FOOTER = _MARGIN - 12
_FIGURES = (
    *("opening", "payments", "fees", "tax", "refunds", "disputes", "adjustments", "payouts"),
    "closing",
)
_FIGURES_RIGHT = 320.0
_FIRST_LINES_TOP = _HEIGHT - 122.0 - len(_FIGURES) * _FIGURE_STEP
_LINES_TOP = _HEIGHT - _MARGIN
#: Column titles and positions: the left edge of text columns, the right edge of amount columns.
_TEXTS = (("Time, UTC", 36.0), ("Kind", 118.0), ("Description", 174.0), ("Payment", 254.0))
_AMOUNTS = (("Amount", 478.0), ("Fee", 584.0), ("Tax", 690.0), ("Net", _RIGHT))
_AMOUNT_WIDTH = 104.0
_NAME_WIDTH = _RIGHT - _MARGIN - 100.0  # leaves room for the merchant's number


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementPages:
    statement: StatementView
    merchant_name: str
    lines: Sequence[StatementLineView]


def write_statement_pdf(pages: StatementPages) -> bytes:
    """Draw a statement. Equal statements produce identical bytes."""
    with open_name_fonts() as fonts:
        return _draw(pages, fonts)


def _draw(pages: StatementPages, fonts: NameFonts) -> bytes:
    file = io.BytesIO()
    canvas = Canvas(file, pagesize=(_WIDTH, _HEIGHT), invariant=1, pageCompression=1)
    view = pages.statement
    canvas.setTitle(f"{_format_title(view)}, {_format_currency(view)}")
    canvas.setCreator("payintent")
    _draw_figures(canvas, pages, fonts)
    pages_of_lines = list(_split_pages(pages.lines))
    for number, lines in enumerate(pages_of_lines):
        if number:
            canvas.showPage()
        top = _LINES_TOP if number else _FIRST_LINES_TOP
        _draw_lines(canvas, lines, top)
        _draw_footer(canvas, view, f"Page {number + 1} of {len(pages_of_lines)}")
    canvas.save()
    return file.getvalue()


def _split_pages(lines: Sequence[StatementLineView]) -> Iterator[Sequence[StatementLineView]]:
    """Yield the lines of each page. The first page has fewer lines, possibly none."""
    first_page_lines = int((_FIRST_LINES_TOP - _MARGIN) / _LINE_STEP) - 1
    later_page_lines = int((_LINES_TOP - _MARGIN) / _LINE_STEP) - 1
    yield lines[:first_page_lines]
    for begin in range(first_page_lines, len(lines), later_page_lines):
        yield lines[begin : begin + later_page_lines]


def _format_title(view: StatementView) -> str:
    return f"Statement {view.number} for {view.day.isoformat()}"


def _draw_figures(canvas: Canvas, pages: StatementPages, fonts: NameFonts) -> None:
    view = pages.statement
    y = _HEIGHT - _MARGIN - _TITLE_PT
    canvas.setFont(_BOLD, _TITLE_PT)
    canvas.drawString(_MARGIN, y, _format_title(view))
    y -= 22
    name, number, x = pages.merchant_name, f" (merchant {view.merchant_id})", _MARGIN
    if name.isascii() and stringWidth(name, _TEXT, _NAME_PT) <= _NAME_WIDTH:
        number = name + number  # does not need an embedded font
    else:
        x += draw_name(canvas, fonts, (x, y), name, _NAME_PT, _NAME_WIDTH)
    canvas.setFont(_TEXT, _NAME_PT)
    canvas.drawString(x, y, number)
    canvas.setFont(_TEXT, _FIGURE_PT)
    y -= 16
    canvas.drawString(
        _MARGIN, y, f"{_format_currency(view)}. The day ends at midnight in {view.time_zone}."
    )
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
        fact = format_fact(line.fact)
        texts = (line.at[:19].replace("T", " "), line.kind, fact, line.payment_id or "\u2013")
        for text, (_, x) in zip(texts, _TEXTS, strict=True):
            canvas.drawString(x, y, text)
        amounts = (line.amount, line.fee, line.tax, line.net)
        for amount, (_, x) in zip(amounts, _AMOUNTS, strict=True):
            _draw_amount(canvas, x, y, amount)


def _draw_amount(canvas: Canvas, right: float, y: float, amount: str) -> None:
    """Draw a right-aligned amount, in a smaller font if it does not fit its column."""
    width = stringWidth(amount, _TEXT, _LINE_PT)
    if width > _AMOUNT_WIDTH:  # a token with many decimals
        canvas.setFont(_TEXT, _LINE_PT * _AMOUNT_WIDTH / width)
    canvas.drawRightString(right, y, amount)
    if width > _AMOUNT_WIDTH:
        canvas.setFont(_TEXT, _LINE_PT)


def _draw_footer(canvas: Canvas, view: StatementView, page: str) -> None:
    canvas.setFont(_TEXT, _LINE_PT)
    canvas.drawString(_MARGIN, _FOOTER, f"{view.id}, {_format_currency(view)}")
    canvas.drawRightString(_RIGHT, _FOOTER, page)


def _format_currency(view: StatementView) -> str:
    return f"{view.currency} on {view.chain}" if view.chain else view.currency
