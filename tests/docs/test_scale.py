"""The arithmetic on the page of cells is what the command prints."""

from bench.scale import Cost, Host, kept_table, rate_table
from tests.docs.command_line import take_or_name, written
from tests.docs.reading import page

_PAGE = page("docs/scale.md")


def test_the_tables_are_those_that_the_command_prints() -> None:
    for table in (rate_table, kept_table):
        assert "\n".join(table(Cost(), Host())) in _PAGE


def test_every_command_of_a_cells_move_is_taken() -> None:
    commands = written(page("docs/move-a-cell.md"))
    steps = {words[1] for words in commands if words[0] == "cell-move"}
    assert steps == {"start", "status", "finish", "abort"}
    for words in commands:
        take_or_name(words)
