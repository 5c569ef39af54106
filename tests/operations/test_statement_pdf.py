"""Statements as PDF: what a reader finds on their pages, and where."""

import io
from dataclasses import replace
from datetime import UTC, date, datetime

import pytest
from pypdf import PageObject, PdfReader
from reportlab.pdfbase.pdfmetrics import stringWidth

from payintent.domain.ledger import Fact
from payintent.domain.statement import Movement
from payintent.operations.statement_pdf import StatementPages, write_statement_pdf
from payintent.operations.statements import StatementLineView, StatementView

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
Placed = tuple[str, float, float]  # a text, and where it begins, in points from below left


def drawn(*lines: StatementLineView, name: str = "Shop") -> bytes:
    return write_statement_pdf(StatementPages(statement=VIEW, merchant_name=name, lines=lines))


def pages_of(pdf: bytes) -> list[PageObject]:
    return list(PdfReader(io.BytesIO(pdf)).pages)


def placed(page: PageObject) -> list[Placed]:
    found: list[Placed] = []

    def note(text: str, _: list[float], matrix: list[float], *__: object) -> None:
        found.extend([(text.strip(), matrix[4], matrix[5])] if text.strip() else [])

    page.extract_text(visitor_text=note)
    return found


def test_the_first_page_has_every_figure_and_whose_it_is() -> None:
    [page] = pages_of(drawn(LINE))
    text = page.extract_text()
    assert "Statement 3 of 2026-11-25" in text
    assert "Shop (merchant 7)" in text
    assert "Asia/Bangkok" in text
    for figure in ("159000.00", "-46.11", "-590.00", "-1000.00", "157363.89"):
        assert figure in text
    assert "Page 1 of 1" in text


def test_a_day_of_many_lines_has_each_of_them_on_numbered_pages() -> None:
    lines = [replace(LINE, payment_id=f"pay_{number:022}") for number in range(200)]
    pages = [page.extract_text() for page in pages_of(drawn(*lines))]
    assert len(pages) > 3
    for number, text in enumerate(pages, start=1):
        assert f"Page {number} of {len(pages)}" in text
        assert "stmt_0351NDickobV3yYH8omp8v" in text
    everything = "".join(pages)
    assert [everything.count(str(line.payment_id)) for line in lines] == [1] * 200


def test_amounts_end_at_one_place_also_where_they_are_long() -> None:
    amounts = ["5.00", "123456.00", f"{10**30}.123456789012345678"]
    [page] = pages_of(drawn(*(replace(LINE, net=amount) for amount in amounts)))
    begins = {text: x for text, x, _ in placed(page) if text in amounts}
    ends = [begins[text] + stringWidth(text, "Helvetica", 7.0) for text in amounts[:2]]
    assert ends[0] == pytest.approx(ends[1], abs=0.01)
    assert begins[amounts[2]] == pytest.approx(ends[0] - 104.0, abs=0.01), "smaller letters"


def test_a_name_is_legible_in_thai_and_in_letters_with_marks() -> None:
    [page] = pages_of(drawn(name="ร้านที่นี่ Łódź Việt"))
    text = "".join(text for text, _, _ in placed(page))
    for part in ("ร้านที่นี่", "Łódź", "Việt"):
        assert part in text.replace(" ", "") or part in text


def test_a_thai_tone_mark_stands_higher_above_a_vowel() -> None:
    [page] = pages_of(drawn(name="ก่กี้"))
    heights = {text: y for text, _, y in placed(page)}
    assert heights["\u0e49"] > heights["\u0e01\u0e48\u0e01\u0e35"]


def test_a_name_in_chinese_japanese_or_korean_uses_a_font_of_the_reader() -> None:
    for name, font in (
        ("測試商店", b"STSong-Light"),
        ("日本ショップ", b"HeiseiKakuGo-W5"),
        ("상점", b"HYGothic-Medium"),
    ):
        assert font in drawn(name=name)


def test_a_letter_without_a_font_is_a_question_mark() -> None:
    [page] = pages_of(drawn(name="متجر"))
    assert "????" in page.extract_text().replace("\n", "").replace(" ", "")


def test_the_same_statement_is_the_same_file() -> None:
    assert drawn(LINE, LINE) == drawn(LINE, LINE)
