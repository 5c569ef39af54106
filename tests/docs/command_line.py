"""Holds command lines that a page shows against the command line itself."""

import re
import shlex
from functools import cache
from typing import Any

import typer

from payintent.cli.commands import build
from tests.docs.reading import blocks, spans


def written(text: str) -> list[list[str]]:
    """Give the words of every command of ours on a page; in its prose one may stand for itself."""
    return [*run_on(text), *_words(spans(text))]


def run_on(text: str) -> list[list[str]]:
    """Give the words of the commands of ours that a page has in blocks, to be run as they are."""
    return _words("\n".join(blocks(text, "sh")).splitlines())


def _words(lines: list[str]) -> list[list[str]]:
    """Give what stands behind the name, without redirections."""
    ours = [re.split(" [<>] ", line)[0] for line in lines if line.startswith("payintent ")]
    return [shlex.split(line)[1:] for line in ours]


@cache
def _root() -> Any:
    """Give the whole command line, which takes long to build."""
    return typer.main.get_command(build())


def leaf(words: list[str]) -> tuple[Any, list[str]]:
    """Find the command that words name; gives it and the words behind its name."""
    command = _root()
    while hasattr(command, "commands") and words:
        assert words[0] in command.commands, f"there is no command {' '.join(words)}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def take(words: list[str]) -> str:
    """Hold that the service takes a whole command line; gives the command's name."""
    command, arguments = leaf(words)
    assert not hasattr(command, "commands"), f"{' '.join(words)} is not whole"
    name = " ".join(words[: len(words) - len(arguments)])
    command.make_context(name, arguments)
    return name


def take_or_name(words: list[str]) -> None:
    """Hold the same of a command with arguments; without any it needs only be one, or a group."""
    if leaf(words)[1]:
        take(words)
