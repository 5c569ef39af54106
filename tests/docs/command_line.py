"""Check the command lines on a page against the command line interface."""

import re
import shlex
from functools import cache
from typing import Any

import typer

from payintent.cli.commands import build
from tests.docs.reading import blocks, spans


def written(text: str) -> list[list[str]]:
    """Return the words of our commands on a page; in prose, `payintent` may stand alone."""
    return [*run_on(text), *_words(spans(text))]


def run_on(text: str) -> list[list[str]]:
    """Return the words of our commands in a page's code blocks, ready to run."""
    return _words("\n".join(blocks(text, "sh")).splitlines())


def _words(lines: list[str]) -> list[list[str]]:
    """Return the words after the name, without redirections."""
    ours = [re.split(" [<>] ", line)[0] for line in lines if line.startswith("payintent ")]
    return [shlex.split(line)[1:] for line in ours]


@cache
def _root() -> Any:
    """Return the complete command line interface, which is slow to build."""
    return typer.main.get_command(build())


def leaf(words: list[str]) -> tuple[Any, list[str]]:
    """Find the command that the words name; return it and the remaining words."""
    command = _root()
    while hasattr(command, "commands") and words:
        assert words[0] in command.commands, f"there is no command {' '.join(words)}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def take(words: list[str]) -> str:
    """Check that the service accepts a complete command line; return the command's name."""
    command, arguments = leaf(words)
    assert not hasattr(command, "commands"), f"{' '.join(words)} is not whole"
    name = " ".join(words[: len(words) - len(arguments)])
    command.make_context(name, arguments)
    return name


def take_or_name(words: list[str]) -> None:
    """Check a command line with arguments. Without arguments, a command or group suffices."""
    if leaf(words)[1]:
        take(words)
