"""The privacy page lists every column of the schema and its retention."""

import re

from payintent.mail.message import RETENTION_DAYS
from payintent.runtime.settings import Settings
from tests.docs.reading import page, rows, section, spans

_PAGE = page("docs/operate/privacy.md")
_TABLE = re.compile(
    r"CREATE (?:UNLOGGED )?TABLE public\.(\w+) \((.*?)^\)", re.MULTILINE | re.DOTALL
)
_COLUMN = re.compile(r'^    (?!CONSTRAINT|CASE|WHEN|ELSE|END)"?(\w+)"? ', re.MULTILINE)


def _schema() -> dict[str, list[str]]:
    text = page("payintent/db/schema.sql")
    return {name: _COLUMN.findall(body) for name, body in _TABLE.findall(text)}


def _classified() -> dict[str, tuple[list[str], list[str]]]:
    """Return each table's columns on the page: columns about persons, and the others."""
    return {
        cells[0].strip("`"): (spans(cells[1]), spans(cells[2]))
        for cells in rows(section(_PAGE, "## Every column"))
    }


def test_every_column_of_every_table_is_of_a_person_or_not() -> None:
    schema, classified = _schema(), _classified()
    assert sorted(classified) == sorted(schema)
    for table, columns in schema.items():
        personal, others = classified[table]
        assert sorted([*personal, *others]) == sorted(columns), table


def test_what_is_of_a_person_says_how_long_it_is_kept_and_what_for() -> None:
    personal = {
        f"{table}.{column}" for table, (columns, _) in _classified().items() for column in columns
    }
    told = list(rows(section(_PAGE, "## How long data is kept")))
    listed = [span for cells in told for span in spans(cells[0]) if "." in span]
    assert sorted(listed) == sorted(personal)
    assert all(len(cells) == 4 and all(cells) for cells in told)


def test_the_times_are_those_of_the_settings() -> None:
    found = re.findall(r"`PAYINTENT_(\w+_(?:DAYS|HOURS))` \((\d+) (days|hours)\)", _PAGE)
    assert len(found) == 9
    for name, number, unit in found:
        assert Settings.model_fields[name.lower()].default == int(number), name
        assert name.endswith(unit.upper())
    assert f"until it is sent, up to {RETENTION_DAYS} days" in _PAGE
