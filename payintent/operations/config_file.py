"""Read and write configuration files in a safe subset of YAML; errors report the line.

Aliases, tags and repeated keys are rejected, so the time to read a file grows only with its size.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import msgspec
import yaml

from payintent.domain.errors import BadRequestError, RefusedError
from payintent.operations.config_entries import ConfigEntry
from payintent.operations.config_kinds import KINDS, ConfigKind

_VERSION = "1"
_BYTES_MAX = 16 << 20
_DEPTH_MAX = 8
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_HEAD = "# Configuration of a payintent installation, by `payintent config export`.\n"


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the file and its line; a scalar is the text as it is written."""

    line: int
    value: "str | list[Node] | dict[str, Node] | None"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An entry of the file and its position, such as `shop.yaml:12: tax_rates[2]`."""

    entry: ConfigEntry
    position: str


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The entries of each section; installations keep their own in sections that are left out."""

    sections: Mapping[str, Sequence[FileEntry]]


def parse_config(content: bytes, name: str) -> ConfigFile:
    """Parse a file called `name`; raise `BAD_REQUEST` with the line of the first mistake."""
    if len(content) > _BYTES_MAX:
        _refuse(name, f"the file has more than {_BYTES_MAX >> 20} MiB")
    root = _parse_yaml(content, name)
    if not isinstance(root.value, dict):
        _refuse(f"{name}:{root.line}", "expected sections such as `tax_rates:`")
    sections = dict(root.value)
    version = sections.pop("version", None)
    if version is None or version.value != _VERSION:
        line = root.line if version is None else version.line
        _refuse(f"{name}:{line}", f"version: expected `version: {_VERSION}`")
    kinds = {kind.section: kind for kind in KINDS}
    for section, node in sections.items():
        if section not in kinds:
            names = ", ".join(kinds)
            _refuse(f"{name}:{node.line}", f"unknown section `{section}`; sections are {names}")
    return ConfigFile(
        {section: _read_section(kinds[section], sections[section], name) for section in sections}
    )


def format_config(entries: Iterable[tuple[str, Sequence[ConfigEntry]]]) -> str:
    """Write sections as a file that `parse_config` reads."""
    sections = {section: msgspec.to_builtins(values) for section, values in entries}
    return _HEAD + yaml.safe_dump(
        {"version": int(_VERSION), **sections}, sort_keys=False, allow_unicode=True, width=1_000
    )


def _read_section(kind: ConfigKind, node: Node, name: str) -> list[FileEntry]:
    if not isinstance(node.value, list):
        _refuse(f"{name}:{node.line}", f"{kind.section}: expected a list, or [] for none")
    entries: list[FileEntry] = []
    lines: dict[tuple[object, ...], int] = {}
    for number, item in enumerate(node.value):
        position = f"{name}:{item.line}: {kind.section}[{number}]"
        entry = _read_entry(kind, item, position, name)
        key = kind.key_of(entry)
        if key in lines and not kind.repeats:
            _refuse(position, f"this is the same entry as in line {lines[key]}")
        lines[key] = item.line
        entries.append(FileEntry(entry, position))
    return entries


def _read_entry(kind: ConfigKind, node: Node, position: str, name: str) -> ConfigEntry:
    fields = node.value
    if not isinstance(fields, dict):
        _refuse(position, "expected fields such as `country: TH`")
    try:
        entry: ConfigEntry = msgspec.convert(
            {field: _plain(value) for field, value in fields.items()}, kind.entry, strict=False
        )
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        field = path.rstrip("`")
        unknown = next((key for key in fields if f"unknown field `{key}`" in problem), None)
        node_at = fields.get(unknown or field.partition("[")[0], node)
        dotted = f"{kind.section}{position.rpartition(kind.section)[2]}" + (field and f".{field}")
        _refuse(f"{name}:{node_at.line}: {dotted}", problem[0].lower() + problem[1:])
    try:
        return entry.normalized()
    except RefusedError as error:
        _refuse(position, error.message)


def _plain(node: Node) -> Any:
    if isinstance(node.value, dict):
        return {name: _plain(value) for name, value in node.value.items()}
    return [_plain(item) for item in node.value] if isinstance(node.value, list) else node.value


def _parse_yaml(content: bytes, name: str) -> Node:
    """Build the file's tree of events: no objects are constructed, whatever the tags are."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        events: Iterator[Any] = cast("Any", yaml).parse(content.decode(), Loader=loader)
        next(events)  # the start of the stream
        first = next(events, None) and next(events, None)  # after the start of the document
        if first is None:
            _refuse(f"{name}:1", "the file is empty")
        root = _build(events, first, name, 0)
        next(events)  # the document's end
        if isinstance(more := next(events), yaml.DocumentStartEvent):
            _refuse(f"{name}:{more.start_mark.line + 1}", "the file has a second document")
    except UnicodeDecodeError as error:
        _refuse(name, f"the file is not UTF-8: {error.reason} at byte {error.start}")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = name if mark is None else f"{name}:{mark.line + 1}"
        _refuse(at, f"not valid YAML: {getattr(error, 'problem', None) or error}")
    return root


def _build(events: Iterator[Any], event: Any, name: str, depth: int) -> Node:
    line = event.start_mark.line + 1
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        _refuse(f"{name}:{line}", "anchors and aliases are not allowed")
    if event.tag is not None:
        _refuse(f"{name}:{line}", "tags are not allowed")
    if depth > _DEPTH_MAX:
        _refuse(f"{name}:{line}", f"more than {_DEPTH_MAX} levels")
    if isinstance(event, yaml.ScalarEvent):
        is_null = event.implicit[0] and event.value in _NULLS
        return Node(line, None if is_null else event.value)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Node] = []
        while not isinstance(inner := next(events), yaml.SequenceEndEvent):
            items.append(_build(events, inner, name, depth + 1))
        return Node(line, items)
    fields: dict[str, Node] = {}
    while not isinstance(inner := next(events), yaml.MappingEndEvent):
        key = _build(events, inner, name, depth + 1)
        if not isinstance(key.value, str):
            _refuse(f"{name}:{key.line}", "a key must be a string")
        if key.value in fields:
            _refuse(f"{name}:{key.line}", f"`{key.value}` is given twice")
        fields[key.value] = _build(events, next(events), name, depth + 1)
    return Node(line, fields)


def _refuse(position: str, problem: str) -> NoReturn:
    raise BadRequestError(f"{position}: {problem}")
