"""The pages about settings and commands match the code."""

import re
import shlex
from typing import Any

import pytest
import typer
from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from payintent.cli.commands import build
from payintent.runtime.settings import Settings
from tests.docs.command_line import leaf as find_leaf
from tests.docs.command_line import take_or_name, written
from tests.docs.reading import page, rows, section, spans
from tools.settings_page import descriptions, render

_COMMANDS, _SETTINGS = page("docs/operate/commands.md"), page("docs/operate/settings.md")
_TASKS = ("configure", "run", "monitor", "operators", "merchants", "troubleshoot", "reconciliation")
_REFUNDS = page("docs/operate/refunds.md")
_UNITS = {
    "_per_s": "1/s",
    "_s": "s",
    "_ms": "ms",
    "_bytes_max": "bytes",
    "_hours": "h",
    "_days": "days",
}
_EVENT = re.compile(r"_log\.(?:info|warning|error)\(\s*\"(\w+)\"")


def test_the_table_of_settings_has_every_setting_in_order_with_its_default() -> None:
    table = [(cells[0].strip("`"), cells[2].strip("`")) for cells in _settings_rows()]
    expected = [
        (_variable(name), _default(field.default)) for name, field in Settings.model_fields.items()
    ]
    assert table == expected


def test_the_table_of_settings_gives_the_unit_that_the_name_carries() -> None:
    for name, unit, *_ in _settings_rows():
        wanted = [one for ending, one in _UNITS.items() if name.strip("`").lower().endswith(ending)]
        assert not wanted or unit.partition(",")[0] == wanted[0], name


def test_the_tables_of_settings_are_what_the_tool_writes() -> None:
    assert render(_SETTINGS) == _SETTINGS, "make docs"


def test_every_setting_has_a_description() -> None:
    assert [*descriptions()] == [*Settings.model_fields]


def _settings_rows() -> list[list[str]]:
    return list(rows(section(_SETTINGS, "## Reference")))


def _variable(name: str) -> str:
    return (
        name.upper()
        if name in {"database_url", "database_direct_url", "database_read_url"}
        else f"PAYINTENT_{name.upper()}"
    )


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "unset"
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value) or "empty"


def _leaves(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not hasattr(command, "commands"):
        return [path]
    return [leaf for name, one in command.commands.items() for leaf in _leaves(one, (*path, name))]


_PAGES = [_COMMANDS, _REFUNDS, *(page(f"docs/operate/{name}.md") for name in _TASKS)]


@pytest.mark.parametrize("words", [item for text in _PAGES for item in written(text)], ids=" ".join)
def test_every_command_on_the_page_exists_and_takes_what_is_written(words: list[str]) -> None:
    take_or_name(words)


def test_every_command_has_an_example_in_the_table() -> None:
    shown = [
        tuple(shlex.split(span)[1:])
        for text in (section(_COMMANDS, "## Reference"), section(_REFUNDS, "## Commands"))
        for span in spans(text)
        if span.startswith("payintent ")
    ]
    for leaf in _leaves(typer.main.get_command(build())):
        assert any(item[: len(leaf)] == leaf for item in shown), f"payintent {' '.join(leaf)}"


def test_every_argument_and_option_of_every_command_says_what_it_is() -> None:
    root = typer.main.get_command(build())
    dumb = [
        (*leaf, parameter.name)
        for leaf in _leaves(root)
        for parameter in find_leaf(list(leaf))[0].params
        if not getattr(parameter, "help", None)
    ]
    assert dumb == []
