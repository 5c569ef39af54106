"""The privacy page lists every column of the schema and its retention."""

import re

from payintent.mail.message import RETENTION_DAYS
from payintent.runtime.settings import Settings
from tests.docs.parse_pages import page, rows, section, spans

_PAGE = page("docs/operate/privacy.md")
_TABLE = re.compile(
    r"CREATE (?:UNLOGGED )?TABLE public\.(\w+) \((.*?)^\)", re.MULTILINE | re.DOTALL
)
_COLUMN = re.compile(r'^    (?!CONSTRAINT|CASE|WHEN|ELSE|END)"?(\w+)"? ', re.MULTILINE)


def _schema() -> dict[str, list[str]]:
    text = page("payintent/db/schema.sql")
    return {name: _COLUMN.findall(body) for name, body in _TABLE.findall(text)}


def _read_classification() -> dict[str, tuple[list[str], list[str]]]:
    """Return the columns of each table that the page lists as personal and as not personal."""
    return {
        cells[0].strip("`"): (spans(cells[1]), spans(cells[2]))
        for cells in rows(section(_PAGE, "## Every column"))
    }


def test_every_column_is_classified_as_personal_or_not() -> None:
    schema, classified = _schema(), _read_classification()
    assert sorted(classified) == sorted(schema)
    for table, columns in schema.items():
        personal, impersonal = classified[table]
        assert sorted([*personal, *impersonal]) == sorted(columns), table


def test_every_personal_column_has_a_retention_and_a_purpose() -> None:
    personal = {
        f"{table}.{column}"
        for table, (columns, _) in _read_classification().items()
        for column in columns
    }
    table_rows = list(rows(section(_PAGE, "## How long data is kept")))
    columns_on_page = [span for cells in table_rows for span in spans(cells[0]) if "." in span]
    assert sorted(columns_on_page) == sorted(personal)
    assert all(len(cells) == 4 and all(cells) for cells in table_rows)


def test_the_retention_periods_match_the_settings() -> None:
    periods = re.findall(r"`PAYINTENT_(\w+_(?:DAYS|HOURS))` \((\d+) (days|hours)\)", _PAGE)
    assert len(periods) == 9
    for name, number, unit in periods:
        assert Settings.model_fields[name.lower()].default == int(number), name
        assert name.endswith(unit.upper())
    assert f"until it is sent, up to {RETENTION_DAYS} days" in _PAGE
