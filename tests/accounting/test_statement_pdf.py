"""The pages of PDF statements: the printed strings and their positions."""

import io
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pypdf import PageObject, PdfReader
from reportlab.pdfbase.pdfmetrics import stringWidth
from structlog.testing import capture_logs

from payintent.accounting.model import Fact
from payintent.accounting.statement_model import Movement, StatementLineView, StatementView
from payintent.accounting.statement_pdf import (
    StatementPages,
    open_name_fonts,
    shape_runs,
    write_statement_pdf,
)

pytestmark = pytest.mark.full

VIEW = StatementView(
    id="stmt_0351NDickobV3yYH8omp8v",
    merchant_id=7,
    currency="THB",
    chain=None,
    number=3,
    day=date(2026, 11, 25),
    time_zone="Asia/Bangkok",
    opening="0.00",
    payments="159000.00",
    fees="-46.11",
    tax="0.00",
    refunds="-590.00",
    disputes="0.00",
    adjustments="0.00",
    payouts="-1000.00",
    closing="157363.89",
    created_at=datetime(2026, 11, 26, tzinfo=UTC),
)
LINE = StatementLineView(
    at="2026-11-25T10:00:00.000Z",
    kind=Movement.PAYMENTS,
    fact=Fact.CAPTURE,
    id="01a21360",
    payment_id="pay_0351NDickobV3yYH8omp8v",
    amount="1590.00",
    fee="-46.11",
    tax="0.00",
    net="1543.89",
)
# a string and its start position, in points from the bottom left corner
PlacedText = tuple[str, float, float]


def write_pdf(*lines: StatementLineView, name: str = "Shop") -> bytes:
    return write_statement_pdf(StatementPages(statement=VIEW, merchant_name=name, lines=lines))


def pages_of(pdf: bytes) -> list[PageObject]:
    return list(PdfReader(io.BytesIO(pdf)).pages)


def list_texts(page: PageObject) -> list[PlacedText]:
    texts: list[PlacedText] = []

    def collect(text: str, _: list[float], matrix: list[float], *__: object) -> None:
        texts.extend([(text.strip(), matrix[4], matrix[5])] if text.strip() else [])

    page.extract_text(visitor_text=collect)
    return texts


def test_the_first_page_has_every_figure_and_the_merchants_name() -> None:
    [page] = pages_of(write_pdf(LINE))
    text = page.extract_text()
    assert "Statement 3 for 2026-11-25" in text
    assert "Shop (merchant 7)" in text
    assert "Asia/Bangkok" in text
    for figure in ("159000.00", "-46.11", "-590.00", "-1000.00", "157363.89"):
        assert figure in text
    assert "Page 1 of 1" in text


def test_every_line_of_a_long_statement_is_printed_once_on_numbered_pages() -> None:
    lines = [replace(LINE, payment_id=f"pay_{number:022}") for number in range(200)]
    pages = [page.extract_text() for page in pages_of(write_pdf(*lines))]
    assert len(pages) > 3
    for number, text in enumerate(pages, start=1):
        assert f"Page {number} of {len(pages)}" in text
        assert "stmt_0351NDickobV3yYH8omp8v" in text
    everything = "".join(pages)
    assert [everything.count(str(line.payment_id)) for line in lines] == [1] * 200


def test_amounts_are_right_aligned_and_shrunk_if_they_are_long() -> None:
    amounts = ["5.00", "123456.00", f"{10**30}.123456789012345678"]
    [page] = pages_of(write_pdf(*(replace(LINE, net=amount) for amount in amounts)))
    begins = {text: x for text, x, _ in list_texts(page) if text in amounts}
    ends = [begins[text] + stringWidth(text, "Helvetica", 7.0) for text in amounts[:2]]
    assert ends[0] == pytest.approx(ends[1], abs=0.01)
    assert begins[amounts[2]] == pytest.approx(ends[0] - 104.0, abs=0.01), (
        "a long amount is printed in a smaller font"
    )


NAMES = {
    "Latin with marks": ("Łódź Việt Ñandú", "NotoSans-Regular"),
    "Greek and Cyrillic": ("Ελλάδα Москва", "NotoSans-Regular"),
    "Thai": ("ร้านที่นี่ กี้", "NotoSansThai"),
    "Arabic": ("متجر الكتب", "NotoSansArabic"),
    "Hebrew": ("חנות ספרים", "NotoSansHebrew"),
    "Devanagari": ("किताब की दुकान", "NotoSansDevanagari"),
    "Bengali": ("বইয়ের দোকান", "NotoSansBengali"),
    "Tamil": ("புத்தகக் கடை", "NotoSansTamil"),
    "Khmer": ("ហាងសៀវភៅ", "NotoSansKhmer"),
    "Myanmar": ("စာအုပ်ဆိုင်", "NotoSansMyanmar"),
    "Lao": ("ຮ້ານປຶ້ມ", "NotoSansLao"),
    "Georgian": ("წიგნები", "NotoSansGeorgian"),
    "Armenian": ("Գրախանութ", "NotoSansArmenian"),
    "Ethiopic": ("መጽሐፍት", "NotoSansEthiopic"),
    "Chinese": ("測試商店，测试", "WenQuanYiMicroHei"),
    "Japanese": ("日本ショップのほん", "WenQuanYiMicroHei"),
    "Korean": ("상점", "WenQuanYiMicroHei"),
    "emoji": ("📚👩‍🚀", "NotoEmoji"),
}


def _list_embedded_fonts(pdf: bytes) -> set[str]:
    """List the fonts that the first page embeds as subsets."""
    page: Any = pages_of(pdf)[0]
    fonts = page["/Resources"]["/Font"]
    described = [font.get_object().get("/FontDescriptor") for font in fonts.values()]
    return {
        str(item["/FontName"]).partition("+")[2]
        for item in described
        if item is not None and "/FontFile2" in item
    }


@pytest.mark.parametrize("script", NAMES)
def test_names_in_any_script_are_rendered_with_an_embedded_font(
    script: str, caplog: pytest.LogCaptureFixture
) -> None:
    name, font = NAMES[script]
    pdf = write_pdf(name=name)
    assert any(item.startswith(font) for item in _list_embedded_fonts(pdf)), _list_embedded_fonts(
        pdf
    )
    assert len(pdf) < 60_000
    content = pages_of(pdf)[0].get_contents()
    assert content is not None
    assert name.encode("utf-16-be").hex().upper().encode() in content.get_data()
    assert "\ufffd" not in pages_of(pdf)[0].extract_text()
    assert caplog.records == []


def _shape(name: str) -> list[str]:
    """Return a name's glyphs (outline name and font) from left to right."""
    with open_name_fonts() as fonts:
        return [glyph for _, text in shape_runs(fonts, name, 10) for glyph in text]


def test_arabic_letters_are_joined_and_run_from_right_to_left() -> None:
    # "بب" has an initial and a final form; a separate letter has the isolated form.
    assert _shape("بب") != _shape("ب") * 2
    assert _shape("אב") == _shape("ב") + _shape("א")
    assert _shape("אב 12") == [*_shape("12"), *_shape(" "), *_shape("ב"), *_shape("א")]
    assert _shape("Ab אב") == [*_shape("Ab "), *_shape("ב"), *_shape("א")]
    assert _shape("אב (ג)") == [
        *_shape("("),
        *_shape("ג"),
        *_shape(")"),
        *_shape(" "),
        *_shape("ב"),
        *_shape("א"),
    ]


def test_a_devanagari_vowel_sign_is_placed_before_its_consonant() -> None:
    assert _shape("कि") != _shape("क") + _shape("ि")
    assert _shape("कि")[1:] == _shape("क")


def test_a_thai_tone_mark_is_raised_above_a_vowel_sign() -> None:
    assert _shape("กี้") != _shape("กี") + _shape("้")


def test_a_character_without_a_font_is_replaced_and_logged() -> None:
    with capture_logs() as events:
        [page] = pages_of(write_pdf(name="Ab\U00020bb7\u1820"))
    assert "Ab\ufffd\ufffd (merchant 7)" in page.extract_text().replace("\n", "")
    [line] = [line for line in events if line["event"] == "statement_characters_missing"]
    assert "U+1820" in str(line)
    assert "U+20BB7" in str(line)


def test_a_long_name_is_shrunk_to_fit_the_page() -> None:
    [page] = pages_of(write_pdf(name="W" * 200))
    [begin] = [x for text, x, _ in list_texts(page) if "merchant 7" in text]
    assert begin < 780


def test_writing_a_statement_is_deterministic() -> None:
    assert write_pdf(LINE, LINE) == write_pdf(LINE, LINE)
