"""The page about configuration as code: its commands are valid, and its example is complete."""

from payintent.configuration.plan import parse_config
from payintent.configuration.sections import SECTIONS
from tests.docs.command_line import (
    check_command,
    check_command_or_name,
    find_commands,
    find_runnable_commands,
)
from tests.docs.parse_pages import blocks, page, rows

_PAGE = page("docs/operate/config-as-code.md")


def test_every_command_on_the_page_is_valid() -> None:
    assert [check_command(words) for words in find_runnable_commands(_PAGE)] == [
        *("config export", "config diff", "config apply")
    ]
    for words in find_commands(_PAGE):
        check_command_or_name(words)


def test_the_example_is_a_valid_configuration_file() -> None:
    [example] = blocks(_PAGE, "yaml")
    assert "tax_rates" in parse_config(example.encode(), "page").sections


def test_every_section_is_in_a_table() -> None:
    names = {row[0].strip("`") for row in rows(_PAGE)}
    assert {section.name for section in SECTIONS} <= names
