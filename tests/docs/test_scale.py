"""The arithmetic on the page of cells is what the command prints."""

from bench.scale import Cost, Host, kept_table, rate_table
from tests.docs.reading import page

_PAGE = page("docs/scale.md")


def test_the_tables_are_those_that_the_command_prints() -> None:
    for table in (rate_table, kept_table):
        assert "\n".join(table(Cost(), Host())) in _PAGE
