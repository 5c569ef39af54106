"""The arithmetic on the page of cells is what the command prints."""

import re
import shlex

from bench.scale import Cost, Host, kept_table, rate_table
from tests.docs.command_line import take
from tests.docs.reading import page

_PAGE = page("docs/scale.md")


def test_the_tables_are_those_that_the_command_prints() -> None:
    for table in (rate_table, kept_table):
        assert "\n".join(table(Cost(), Host())) in _PAGE


def test_every_command_of_a_cells_move_is_taken() -> None:
    shown = re.findall(r"^ *payintent (cell-move .*)$", page("docs/move-a-cell.md"), re.MULTILINE)
    assert [words.split()[1] for words in shown] == ["start", "status", "finish", "abort"]
    for words in shown:
        take(shlex.split(words))
