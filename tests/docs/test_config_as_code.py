"""The page about configuration as code: its commands are valid, and its example is complete."""

from payintent.configuration.plan import parse_config
from payintent.configuration.sections import SECTIONS
from tests.docs.command_line import run_on, take, take_or_name, written
from tests.docs.reading import blocks, page, rows

_PAGE = page("docs/operate/config-as-code.md")


def test_the_commands_are_those_of_the_command_line() -> None:
    assert [take(words) for words in run_on(_PAGE)] == [
        *("config export", "config diff", "config apply")
    ]
    for words in written(_PAGE):
        take_or_name(words)


def test_the_example_is_a_file_that_can_be_applied() -> None:
    [example] = blocks(_PAGE, "yaml")
    assert "tax_rates" in parse_config(example.encode(), "page").sections


def test_every_section_is_in_a_table() -> None:
    listed = {row[0].strip("`") for row in rows(_PAGE)}
    assert {section.name for section in SECTIONS} <= listed
