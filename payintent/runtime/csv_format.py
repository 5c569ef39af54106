"""CSV as defined in RFC 4180, with cells that no spreadsheet interprets as a formula."""

import csv
import re
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from io import StringIO

from payintent.runtime.json_format import encode_json, format_timestamp

#: Leading characters that make a spreadsheet treat a cell as a formula, or that end a cell.
_FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
#: A spreadsheet that uses a different separator starts a new cell here, even between quotes.
_INNER_FORMULA = re.compile("(?<=[;\t\r\n])(?=[=+@\uff1d\uff0b\uff0d\uff20-])")


def write_csv(rows: Iterable[Iterable[object]]) -> str:
    """Return the lines of `rows`. Every cell is quoted, and every line ends with CRLF."""
    buffer = StringIO(newline="")
    csv.writer(buffer, quoting=csv.QUOTE_ALL).writerows(map(format_cell, row) for row in rows)
    return buffer.getvalue()


def format_cell(value: object) -> str:
    """Format a value as the text of a cell. Only text can look like a formula."""
    if value is None:
        return ""
    if isinstance(value, str):
        return guard_formulas(value)
    if isinstance(value, datetime):
        return format_timestamp(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bool | dict | list):
        return guard_formulas(encode_json({"": value})[4:-1].decode())
    return str(value)


def guard_formulas(text: str) -> str:
    """Insert an apostrophe before each position where a spreadsheet would start a formula."""
    text = _INNER_FORMULA.sub("'", text)
    return f"'{text}" if text.startswith(_FORMULA_PREFIXES) else text
