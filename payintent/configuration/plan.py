"""Read, write, compare and apply configuration files.

Files use a safe subset of YAML, and errors name the line. Tags and duplicate keys are rejected.
Aliases are also rejected, so that the parsing time depends only on the size of the file.
"""

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn, cast
from uuid import UUID

import msgspec
import yaml

from payintent.configuration.entries import ConfigEntry
from payintent.configuration.sections import SECTIONS, Change, ConfigSection, InstalledEntry
from payintent.core import ids
from payintent.core.errors import BadRequestError, ConflictError, NotFoundError, RefusedError
from payintent.db.locks import hold_advisory_lock
from payintent.operators import proposals_store
from payintent.operators.operation import ChangeOperation, OperationContext, ReadOperation
from payintent.operators.proposals_store import Proposal
from payintent.runtime.encryption import make_proposal_context

_PAGE = 1_000
_LOCK = "config"
Submit = Callable[[ReadOperation[Any] | ChangeOperation[Any]], Awaitable[Any]]
_VERSION = "1"
_BYTES_MAX = 16 << 20
_DEPTH_MAX = 8
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_HEAD = "# Configuration of a payintent installation, from `payintent config export`.\n"


@dataclass(frozen=True, slots=True)
class Node:
    """A parsed value and its line. Scalars are not converted."""

    line: int
    value: "str | list[Node] | dict[str, Node] | None"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An entry of the file and its position, such as `shop.yaml:12: tax_rates[2]`."""

    entry: ConfigEntry
    position: str


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The entries of each section. Omitted sections remain unchanged."""

    sections: Mapping[str, Sequence[FileEntry]]


def parse_config(content: bytes, name: str) -> ConfigFile:
    """Parse a file. Raises `BAD_REQUEST` with the file's name and the line of the first error."""
    if len(content) > _BYTES_MAX:
        _reject(name, f"the file is larger than {_BYTES_MAX >> 20} MiB")
    root = _parse_yaml(content, name)
    if not isinstance(root.value, dict):
        _reject(f"{name}:{root.line}", "expected sections such as `tax_rates:`")
    nodes = dict(root.value)
    version = nodes.pop("version", None)
    if version is None or version.value != _VERSION:
        line = root.line if version is None else version.line
        _reject(f"{name}:{line}", f"version: expected `version: {_VERSION}`")
    known_sections = {section.name: section for section in SECTIONS}
    for section_name, node in nodes.items():
        if section_name not in known_sections:
            names = ", ".join(known_sections)
            problem = f"unknown section `{section_name}`; the sections are {names}"
            _reject(f"{name}:{node.line}", problem)
    return ConfigFile(
        {
            section_name: _read_section(known_sections[section_name], node, name)
            for section_name, node in nodes.items()
        }
    )


def format_config(entries: Iterable[tuple[str, Sequence[ConfigEntry]]]) -> str:
    """Format sections as a file that `parse_config` reads."""
    sections = {section: msgspec.to_builtins(values) for section, values in entries}
    return _HEAD + yaml.safe_dump(
        {"version": int(_VERSION), **sections}, sort_keys=False, allow_unicode=True, width=1_000
    )


def _read_section(section: ConfigSection, node: Node, name: str) -> list[FileEntry]:
    if not isinstance(node.value, list):
        _reject(
            f"{name}:{node.line}", f"{section.name}: expected a list, or [] if there are no entries"
        )
    entries: list[FileEntry] = []
    lines: dict[tuple[object, ...], int] = {}
    for number, item in enumerate(node.value):
        position = f"{name}:{item.line}: {section.name}[{number}]"
        entry = _read_entry(section, item, position, name)
        key = section.get_key(entry)
        if key in lines and not section.allows_duplicates:
            _reject(position, f"duplicate of the entry on line {lines[key]}")
        lines[key] = item.line
        entries.append(FileEntry(entry, position))
    return entries


def _read_entry(section: ConfigSection, node: Node, position: str, name: str) -> ConfigEntry:
    fields = node.value
    if not isinstance(fields, dict):
        _reject(position, "expected fields such as `country: TH`")
    try:
        entry: ConfigEntry = msgspec.convert(
            {field: _to_builtins(value) for field, value in fields.items()},
            section.entry_type,
            strict=False,
        )
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        field = path.rstrip("`")
        unknown_field = next((key for key in fields if f"unknown field `{key}`" in problem), None)
        invalid_node = fields.get(unknown_field or field.partition("[")[0], node)
        field_path = f"{section.name}{position.rpartition(section.name)[2]}" + (
            field and f".{field}"
        )
        _reject(f"{name}:{invalid_node.line}: {field_path}", problem[0].lower() + problem[1:])
    return _normalize(entry, position)


def _normalize(entry: ConfigEntry, position: str) -> ConfigEntry:
    try:
        return entry.normalize()
    except RefusedError as error:
        _reject(position, error.message)


def _to_builtins(node: Node) -> Any:
    if isinstance(node.value, dict):
        return {name: _to_builtins(value) for name, value in node.value.items()}
    return (
        [_to_builtins(item) for item in node.value] if isinstance(node.value, list) else node.value
    )


def _parse_yaml(content: bytes, name: str) -> Node:
    """Build a tree from YAML events, without constructing any objects."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        events: Iterator[Any] = cast("Any", yaml).parse(content.decode(), Loader=loader)
        next(events)  # stream start
        root_event = next(events, None) and next(events, None)  # skips the document start
        if root_event is None:
            _reject(f"{name}:1", "the file is empty")
        root = _build_node(events, root_event, name, 0)
        next(events)  # document end
        if isinstance(next_event := next(events), yaml.DocumentStartEvent):
            _reject(f"{name}:{next_event.start_mark.line + 1}", "only one YAML document is allowed")
    except UnicodeDecodeError as error:
        _reject(name, f"the file is not UTF-8: {error.reason} at byte {error.start}")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = name if mark is None else f"{name}:{mark.line + 1}"
        _reject(at, f"not valid YAML: {getattr(error, 'problem', None) or error}")
    return root


def _build_node(events: Iterator[Any], event: Any, name: str, depth: int) -> Node:
    line = event.start_mark.line + 1
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        _reject(f"{name}:{line}", "anchors and aliases are not allowed")
    if event.tag is not None:
        _reject(f"{name}:{line}", "tags are not allowed")
    if depth > _DEPTH_MAX:
        _reject(f"{name}:{line}", f"more than {_DEPTH_MAX} levels of nesting")
    if isinstance(event, yaml.ScalarEvent):
        is_null = event.implicit[0] and event.value in _NULLS
        return Node(line, None if is_null else event.value)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Node] = []
        while not isinstance(inner := next(events), yaml.SequenceEndEvent):
            items.append(_build_node(events, inner, name, depth + 1))
        return Node(line, items)
    fields: dict[str, Node] = {}
    while not isinstance(inner := next(events), yaml.MappingEndEvent):
        key = _build_node(events, inner, name, depth + 1)
        if not isinstance(key.value, str):
            _reject(f"{name}:{key.line}", "a key must be a string")
        if key.value in fields:
            _reject(f"{name}:{key.line}", f"duplicate key `{key.value}`")
        fields[key.value] = _build_node(events, next(events), name, depth + 1)
    return Node(line, fields)


def _reject(position: str, problem: str) -> NoReturn:
    raise BadRequestError(f"{position}: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """A difference between the file and the installation, and the operations that resolve it."""

    sign: str  # + added, ~ changed, - removed
    subject: str
    changes: str
    position: str  # in the file; empty for removals
    operations: Sequence[ChangeOperation[Any]]
    instructions: str = ""  # what the operator must do if no operation can make the change
    needs_approval: bool = False
    approval_id: str | None = None  # the pending proposal

    def __str__(self) -> str:
        note = f" [{self.instructions}]" if self.instructions else ""
        if self.approval_id is not None:
            note = f" [pending approval: {self.approval_id}]"
        elif self.needs_approval:
            note = " [needs approval]"
        return f"{self.sign} {self.subject}: {self.changes}{note}"


class ExportConfig(ReadOperation[list[tuple[str, list[ConfigEntry]]]], frozen=True, kw_only=True):
    """Read the configuration by section."""

    action: ClassVar[str] = "config.export"
    with_merchants: bool = False

    async def read(self, context: OperationContext) -> list[tuple[str, list[ConfigEntry]]]:
        return [
            (
                section.name,
                [entry.entry for entry in await section.read(context) if entry.is_exported],
            )
            for section in SECTIONS
            if self.with_merchants or not section.is_per_merchant
        ]


class PlanConfig(ReadOperation[list[PlanStep]], frozen=True, kw_only=True):
    """Compare a configuration file with the installation."""

    action: ClassVar[str] = "config.diff"
    file: ConfigFile

    async def read(self, context: OperationContext) -> list[PlanStep]:
        """Return the differences in execution order. Raises the first error."""
        steps = [
            await _check_step(context, step)
            for section in SECTIONS
            if section.name in self.file.sections
            for step in _compare(
                section, await section.read(context), self.file.sections[section.name]
            )
        ]
        approval_ids = await _load_approval_ids(context, steps)
        return [replace(step, approval_id=_find_approval(step, approval_ids)) for step in steps]


async def apply_plan(
    url: str, plan: PlanConfig, steps: Sequence[PlanStep], submit: Submit
) -> list[PlanStep]:
    """Run the steps of a plan; return the steps that need approval.

    `url` must reach the database directly, not through a pooler. Raises `CONFLICT` if another
    `config apply` is running, or if the differences have changed since `steps` were computed.
    """
    async with hold_advisory_lock(url, _LOCK) as lock:
        if not lock.is_held:
            raise ConflictError("another `config apply` is running")
        if await submit(plan) != steps:
            raise ConflictError("the configuration has just changed; apply the file again")
        return await _run_steps(steps, submit)


async def _run_steps(steps: Sequence[PlanStep], submit: Submit) -> list[PlanStep]:
    """Run the steps and return the steps that need approval.

    If an operation needs approval, the remaining operations of its step are skipped.
    """
    pending_steps: list[PlanStep] = []
    for step in steps:
        if step.approval_id is not None:
            pending_steps.append(step)
            continue
        for operation in step.operations:
            result = await submit(operation)
            if isinstance(result, Proposal):
                approval_id = ids.format_id(ids.APPROVAL, result.id)
                pending_steps.append(replace(step, approval_id=approval_id))
                break
    return pending_steps


def _compare(
    section: ConfigSection,
    installed_entries: Sequence[InstalledEntry],
    file_entries: Sequence[FileEntry],
) -> Iterator[PlanStep]:
    """Yield the steps that make the installation match the file. Removals come last."""
    installed_by_key: defaultdict[tuple[object, ...], deque[InstalledEntry]] = defaultdict(deque)
    for entry in sorted(installed_entries, key=lambda entry: not entry.is_exported):
        installed_by_key[section.get_key(entry.entry)].append(entry)
    for file_entry in file_entries:
        candidates = installed_by_key[section.get_key(file_entry.entry)]
        installed_entry = candidates.popleft() if candidates else None
        if step := _build_step(section, installed_entry, file_entry):
            yield step
    for entry in (entry for remaining in installed_by_key.values() for entry in remaining):
        if operations := section.remove(entry):
            fields = _format_fields(section, entry.entry)
            yield PlanStep(
                sign="-",
                subject=_format_subject(section, entry.entry),
                changes=f"removed{fields and f' ({fields})'}",
                position="",
                operations=operations,
            )


def _build_step(
    section: ConfigSection, installed_entry: InstalledEntry | None, file_entry: FileEntry
) -> PlanStep | None:
    entry = file_entry.entry
    old_values: Mapping[str, Any] = (
        {} if installed_entry is None else msgspec.structs.asdict(installed_entry.entry)
    )
    fields = {
        name: value
        for name, value in msgspec.structs.asdict(entry).items()
        if value is not msgspec.UNSET and (installed_entry is None or value != old_values[name])
    }
    if installed_entry is None and section.is_fixed:
        raise NotFoundError(
            f"{file_entry.position}: this installation has no {_format_subject(section, entry)}"
        )
    # Omitted fields keep their values, even if the operation sets all fields.
    omitted_fields = {
        name: value for name, value in old_values.items() if getattr(entry, name) is msgspec.UNSET
    }
    complete_entry = msgspec.structs.replace(entry, **omitted_fields)
    instructions = section.instructions(entry) if section.instructions and fields else ""
    is_different = installed_entry is None or fields or not installed_entry.is_exported
    operations = (
        section.change(Change(complete_entry, fields, installed_entry)) if is_different else ()
    )
    if not operations and not instructions:
        return None
    if installed_entry is None:
        changes = _format_fields(section, entry) or "added"
    else:
        changes = ", ".join(
            f"{name} {_format_value(old_values[name])} → {_format_value(value)}"
            for name, value in fields.items()
        )
    return PlanStep(
        sign="+" if installed_entry is None else "~",
        subject=_format_subject(section, entry),
        changes=changes or "enabled again",
        position=file_entry.position,
        operations=operations,
        instructions=instructions,
    )


def _format_subject(section: ConfigSection, entry: ConfigEntry) -> str:
    values = [_format_value(value) for value in section.get_key(entry) if value is not None]
    return " ".join([section.name, *values])


def _format_fields(section: ConfigSection, entry: ConfigEntry) -> str:
    """Format the fields that are not part of the key."""
    return ", ".join(
        f"{name} {_format_value(value)}"
        for name, value in msgspec.structs.asdict(entry).items()
        if name not in section.key and value is not msgspec.UNSET
    )


def _format_value(value: object) -> str:
    if value is msgspec.UNSET:
        return "none"
    text = str(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


async def _check_step(context: OperationContext, step: PlanStep) -> PlanStep:
    needs_approval = False
    for operation in step.operations:
        try:
            await operation.check(context)
            if context.actor.role is not None:
                needs_approval |= await operation.needs_approval(context)
        except RefusedError as error:
            location = step.position or step.subject
            raise RefusedError(error.code, f"{location}: {error.message}") from error
    return replace(step, needs_approval=needs_approval)


async def _load_approval_ids(
    context: OperationContext, steps: Sequence[PlanStep]
) -> dict[bytes, str]:
    """Return the approval ids of pending proposals for these actions, by encoded operation."""
    actions = {operation.action for step in steps for operation in step.operations}
    approval_ids: dict[bytes, str] = {}
    after: UUID | None = None
    while actions:
        page = await proposals_store.list_proposals(
            context.database, after, _PAGE, status="WAITING", oldest_first=True
        )
        for proposal in page:
            if proposal.action in actions and proposal.sealed is not None:
                encryption_context = make_proposal_context(
                    proposal.id, proposal.action, proposal.proposed_by
                )
                fields = context.encryption.decrypt(proposal.sealed, encryption_context)
                approval_ids[fields] = ids.format_id(ids.APPROVAL, proposal.id)
        if len(page) < _PAGE:
            break
        after = page[-1].id
    return approval_ids


def _find_approval(step: PlanStep, approval_ids: Mapping[bytes, str]) -> str | None:
    encoded_operations = map(msgspec.json.encode, step.operations)
    return next((approval_ids[key] for key in encoded_operations if key in approval_ids), None)
