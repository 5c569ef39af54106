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
from tests.docs.command_line import check_command_or_name, find_command, find_commands
from tests.docs.parse_pages import ROOT, page, rows, section, spans
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


def test_the_settings_table_has_every_setting_in_order_with_its_default() -> None:
    table = [(cells[0].strip("`"), cells[2].strip("`")) for cells in _settings_rows()]
    expected = [
        (_variable(name), _default(field.default)) for name, field in Settings.model_fields.items()
    ]
    assert table == expected


def test_the_units_in_the_settings_table_match_the_names() -> None:
    for name, unit, *_ in _settings_rows():
        units = [
            expected_unit
            for suffix, expected_unit in _UNITS.items()
            if name.strip("`").lower().endswith(suffix)
        ]
        assert not units or unit.partition(",")[0] == units[0], name


def test_the_settings_tables_match_the_output_of_the_tool() -> None:
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


def _list_commands(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not hasattr(command, "commands"):
        return [path]
    return [
        leaf
        for name, child in command.commands.items()
        for leaf in _list_commands(child, (*path, name))
    ]


_PAGES = [_COMMANDS, _REFUNDS, *(page(f"docs/operate/{name}.md") for name in _TASKS)]


@pytest.mark.parametrize(
    "words", [item for text in _PAGES for item in find_commands(text)], ids=" ".join
)
def test_every_command_on_the_pages_is_valid(words: list[str]) -> None:
    check_command_or_name(words)


def test_every_command_has_an_example_in_the_table() -> None:
    examples = [
        tuple(shlex.split(span)[1:])
        for text in (section(_COMMANDS, "## Reference"), section(_REFUNDS, "## Commands"))
        for span in spans(text)
        if span.startswith("payintent ")
    ]
    for command in _list_commands(typer.main.get_command(build())):
        assert any(item[: len(command)] == command for item in examples), (
            f"payintent {' '.join(command)}"
        )


def test_every_argument_and_option_of_every_command_has_a_description() -> None:
    root = typer.main.get_command(build())
    undocumented = [
        (*command, parameter.name)
        for command in _list_commands(root)
        for parameter in find_command(list(command))[0].params
        if not getattr(parameter, "help", None)
    ]
    assert undocumented == []


@pytest.mark.parametrize(
    "heading",
    [
        "## Size an installation",
        "## Results of `make bench`",
        "## Cost in a large database",
        "## Reconcile a large list",
    ],
)
def test_the_figures_have_the_labels_that_the_benchmark_prints(heading: str) -> None:
    source = "".join(file.read_text() for file in (ROOT / "bench").glob("*.py"))
    text, _, _ = section(page("docs/operate/performance.md"), heading).partition("\n### Cost of")
    labels = re.findall(r"^\| ([a-zA-Z][^|]*) \|(?!.*\n\|-)", text, re.MULTILINE)
    assert labels
    assert [label for label in labels if label not in source] == []
