"""The commands that are generated from operations, and the commands written by hand."""

from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, get_origin, get_type_hints

import msgspec
import pytest
import typer

from payintent.cli import operation_commands
from payintent.cli.commands import build, find_group
from payintent.cli.results import LAYOUTS, REPLACEMENTS
from payintent.operations import OPERATIONS
from payintent.operators.fields import argument, option
from payintent.operators.operation import ReadOperation

_SINGLE_WORDS = {"api", "worker", "migrate", "doctor", "reconcile"}
#: Commands that read or write a local file.
_FILE_COMMANDS = {f"config.{step}" for step in ("export", "diff", "apply")}
_SANDBOX = {"dev", "devchain", "env", "seed"}
_RESERVED = {"why", "as_json", "json", "help"}


def _commands(opened_group: str | None = None) -> dict[str, Any]:
    """Return the generated commands by operation name, without the sandbox's commands."""
    root: Any = typer.main.get_command(build(opened_group))
    commands = {name: root.commands[name] for name in root.commands if name not in _SANDBOX}
    return {
        f"{name}.{inner}" if inner else name: command
        for name, outer in commands.items()
        for inner, command in getattr(outer, "commands", {"": outer}).items()
    }


def test_every_operation_has_a_command() -> None:
    assert set(_commands()) == set(OPERATIONS) | _SINGLE_WORDS | _FILE_COMMANDS


def test_a_field_without_a_command_option_has_a_default() -> None:
    for action, operation in OPERATIONS.items():
        fields = msgspec.structs.fields(operation)
        unexposed = [field for field in fields if get_origin(field.type) is not Annotated]
        assert [field.name for field in unexposed if field.required] == [], action
        assert {field.name for field in unexposed} <= {"limit"}, (
            "the field cannot be set on the command line"
        )
        assert _RESERVED.isdisjoint(field.name for field in fields), action


def test_list_columns_are_fields_of_their_records() -> None:
    """A table is useless if it has no columns, and a column is empty if its field is unknown."""
    for action, operation in OPERATIONS.items():
        [base] = operation.__orig_bases__  # type: ignore[attr-defined]
        [result] = base.__args__
        if get_origin(result) is list:
            assert operation.columns, action
            [record] = result.__args__
            computed = {"fee", "denies"}  # computed from other fields
            unknown = set(operation.columns) - computed - set(get_type_hints(record))
            assert unknown == set(), action


def test_operations_are_registered_by_their_action() -> None:
    assert {action: operation.action for action, operation in OPERATIONS.items()} == {
        action: action for action in OPERATIONS
    }


def test_custom_layouts_belong_to_operations() -> None:
    assert set(REPLACEMENTS) | set(LAYOUTS) <= set(OPERATIONS)


@pytest.mark.parametrize("group", ["merchant", "webhooks", "audit"])
def test_only_the_requested_command_group_is_built_completely(group: str) -> None:
    complete, partial = _commands(), _commands(group)
    names = {name for name in complete if name.partition(".")[0] == group}
    assert set(partial) == names | _SINGLE_WORDS
    assert {name: _parameters_of(complete[name]) for name in names} == {
        name: _parameters_of(partial[name]) for name in names
    }


def test_a_lazily_built_command_has_the_same_help() -> None:
    complete, lazy = _commands(), _commands("")
    assert set(lazy) >= _SINGLE_WORDS
    helps = {name: lazy[name].help for name in _SINGLE_WORDS}
    assert helps == {name: " ".join(complete[name].help.split()) for name in _SINGLE_WORDS}


def _parameters_of(command: Any) -> list[tuple[Any, ...]]:
    return [
        (parameter.name, parameter.opts, parameter.required, parameter.default, parameter.help)
        for parameter in command.params
    ]


@pytest.mark.parametrize(
    ("words", "group"),
    [
        ("merchant list --json", "merchant"),
        ("-- merchant list", "merchant"),
        ("--help", ""),
        ("", ""),
        ("doctor", "doctor"),
    ],
)
def test_the_group_is_the_first_argument_that_is_not_an_option(words: str, group: str) -> None:
    assert find_group(words.split()) == group


class _Example(ReadOperation[None], frozen=True, kw_only=True):
    """Show the possible input.

    This is for readers of the code.
    """

    action: ClassVar[str] = "example.show"
    rate: Annotated[Decimal, argument("A rate.", metavar="RATE")]
    note: Annotated[str, option("A note.", defaults_to_reason=True)]
    kind: Annotated[Literal["a", "b", "c"], option("A kind.", any_text=True)] = "a"
    side: Annotated[Literal["in", "out"] | None, option("A side.", any_text=True)] = None
    countries: Annotated[list[str] | None, option("Countries.")] = None
    urls: Annotated[list[str] | None, option("Addresses.", repeated_as="url")] = None
    count_max: Annotated[int | None, option("How many.", name="count", min=1, max=9)] = None
    active: Annotated[bool | None, option("Whether.", flags="--on/--off")] = None
    fee: Annotated[Decimal, option("A fee.")] = Decimal("0.5")
    limit: int = 1_000


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the example command, and return the fields that differ from their defaults."""
    performed: list[_Example] = []
    monkeypatch.setattr(operation_commands, "OPERATIONS", {"example.show": _Example})
    monkeypatch.setattr(
        operation_commands, "run_as_operator", lambda operation, _: performed.append(operation)
    )
    monkeypatch.setattr(operation_commands, "print_result", lambda *_, **__: None)
    group = typer.Typer(add_completion=False)
    operation_commands.add_to(group, "example")
    command: Any = typer.main.get_command(group)

    def run(*words: str) -> dict[str, Any]:
        command.main(["0.1", *words], prog_name="example", standalone_mode=False)
        operation = performed.pop()
        defaults = _Example(rate=Decimal("0.1"), note="")
        return {
            name: value
            for name in _Example.__struct_fields__
            if (value := getattr(operation, name)) != getattr(defaults, name)
        }

    run.command = command  # type: ignore[attr-defined]
    return run


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ((), {}),
        (("--note", "n"), {"note": "n"}),
        (("--kind", "b", "--side", "out"), {"kind": "b", "side": "out"}),
        (("--countries", "TH,JP"), {"countries": ["TH", "JP"]}),
        (("--countries", "TH,"), {"countries": ["TH"]}),
        (("--countries", ""), {"countries": []}),
        (("--url", "x", "--url", "y,z"), {"urls": ["x", "y,z"]}),
        (("--url", ""), {"urls": []}),
        (("--count", "9"), {"count_max": 9}),
        (("--off",), {"active": False}),
        (("--fee", "0.25"), {"fee": Decimal("0.25")}),
    ],
)
def test_arguments_are_converted_to_fields(
    example: Any, words: tuple[str, ...], fields: dict[str, Any]
) -> None:
    assert example(*words) == fields


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kind", "x"), "--kind must be one of a, b, c"),
        (("--side", "x"), "--side must be in or out"),
        (("--fee", "x"), "--fee must be a decimal such as 0.029"),
    ],
)
def test_the_command_fails_if_an_argument_cannot_be_converted(
    example: Any, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(IndexError):  # the list of performed operations is empty
        example(*words)
    assert capsys.readouterr().err == f"payintent: {message}\n"


def test_help_and_defaults_come_from_the_fields(example: Any) -> None:
    parameters = {parameter.name: parameter for parameter in example.command.params}
    assert example.command.help == "Show the possible input."
    assert list(parameters) == [
        *("rate", "note", "kind", "side", "countries", "url", "count", "active", "fee", "as_json")
    ]
    assert (parameters["count"].help, parameters["fee"].default) == ("How many.", "0.5")
    assert (parameters["rate"].required, parameters["note"].required) == (True, False)
