"""Check the command lines on a page against the command line interface."""

import re
import shlex
from functools import cache
from typing import Any

import typer

from payintent.cli.commands import build
from tests.docs.parse_pages import blocks, spans


def find_commands(text: str) -> list[list[str]]:
    """Return the words of our commands on a page, in code blocks and in prose."""
    return [*find_runnable_commands(text), *_words(spans(text))]


def find_runnable_commands(text: str) -> list[list[str]]:
    """Return the words of our commands in the code blocks of a page."""
    return _words("\n".join(blocks(text, "sh")).splitlines())


def _words(lines: list[str]) -> list[list[str]]:
    """Return the words after the name, without redirections."""
    commands = [re.split(" [<>] ", line)[0] for line in lines if line.startswith("payintent ")]
    return [shlex.split(line)[1:] for line in commands]


@cache
def _root() -> Any:
    """Return the complete command line interface, which is slow to build."""
    return typer.main.get_command(build())


def find_command(words: list[str]) -> tuple[Any, list[str]]:
    """Find a command by its words. Return the command and the remaining words."""
    command = _root()
    while hasattr(command, "commands") and words:
        assert words[0] in command.commands, f"there is no command {' '.join(words)}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def check_command(words: list[str]) -> str:
    """Check that the service accepts a complete command line. Return the name of the command."""
    command, arguments = find_command(words)
    assert not hasattr(command, "commands"), f"{' '.join(words)} is incomplete"
    name = " ".join(words[: len(words) - len(arguments)])
    command.make_context(name, arguments)
    return name


def check_command_or_name(words: list[str]) -> None:
    """Check a command line. If it has no arguments, an existing command or group is enough."""
    if find_command(words)[1]:
        check_command(words)
