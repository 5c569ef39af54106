"""CSV preserves any text, and spreadsheets do not find a formula in it."""

import csv
import re
from datetime import UTC, datetime
from decimal import Decimal
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payintent.runtime.csv_format import format_cell, guard_formulas, write_csv

_FORMULA = tuple("=+-@＝＋－＠")
_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0") | st.sampled_from("=+;\t\n"))


@given(st.lists(st.lists(_TEXTS, min_size=1, max_size=4), max_size=4))
def test_every_cell_is_parsed_with_its_guards(rows: list[list[str]]) -> None:
    read = list(csv.reader(StringIO(write_csv(rows), newline=""), strict=True))
    assert read == [[guard_formulas(text) for text in row] for row in rows]


@given(_TEXTS)
def test_removing_the_guards_restores_the_text(text: str) -> None:
    assert guard_formulas(text).replace("'", "") == text.replace("'", "")


@given(_TEXTS, st.sampled_from(";,\t"))
def test_no_cell_starts_a_formula_with_any_separator(text: str, separator: str) -> None:
    """If the separator differs, a spreadsheet finds quotation marks in the middle of a cell."""
    [line] = csv.reader(StringIO(write_csv([["a", text]]), newline=""))
    cells = [line[1]] if separator == "," else re.split(f"[{separator}\r\n]", line[1])
    for cell in cells:
        assert not cell.startswith(_FORMULA), (text, cell)


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, ""),
        ("=1+1", "'=1+1"),
        ("-5.00", "'-5.00"),
        ("＝cmd", "'＝cmd"),
        ("\t=1", "'\t'=1"),
        ("x;=1", "x;'=1"),
        ("x\n@SUM(A1)", "x\n'@SUM(A1)"),
        ("sorry, -5 %", "sorry, -5 %"),
        ("a=b", "a=b"),
        (Decimal("-0.00000001"), "-0.00000001"),
        (-3, "-3"),
        (True, "true"),
        ({"a": "=1"}, '{"a":"=1"}'),
        (datetime(2026, 11, 29, 1, 2, 3, 4_000, UTC), "2026-11-29T01:02:03.004Z"),
    ],
)
def test_values_are_formatted_by_their_type(value: object, cell: str) -> None:
    assert format_cell(value) == cell


def test_lines_end_as_in_rfc_4180() -> None:
    assert write_csv([["a", 'b "c"']]) == '"a","b ""c"""\r\n'
