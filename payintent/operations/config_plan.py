"""Export an installation's configuration, and plan and apply the changes that a file asks for.

Every change is an operation of its own, with its audit entry and its approval. So a plan that was
interrupted continues when the file is applied again: finished changes no longer differ.
"""

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from uuid import UUID

import msgspec

from payintent.domain import ids
from payintent.domain.errors import ErrorCode, NotFoundError, RefusedError
from payintent.encryption import proposal_context
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.config_entries import ConfigEntry
from payintent.operations.config_file import ConfigFile, FileEntry
from payintent.operations.config_kinds import KINDS, Change, ConfigKind, InstalledEntry
from payintent.storage import proposals
from payintent.storage.advisory_lock import hold_advisory_lock
from payintent.storage.proposals import Proposal

_PAGE = 1_000
_LOCK = "config"
Submit = Callable[[ReadOperation[Any] | ChangeOperation[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A difference between the file and the installation, and the operations that remove it."""

    sign: str  # + is added, ~ changes, - is removed
    subject: str
    changes: str
    position: str  # in the file; empty for a removal
    operations: Sequence[ChangeOperation[Any]]
    by_hand: str = ""  # the operator's task, if no operation can make the change
    needs_approval: bool = False
    approval_id: str | None = None  # of the pending proposal

    def __str__(self) -> str:
        note = f" [{self.by_hand}]" if self.by_hand else ""
        if self.approval_id is not None:
            note = f" [waits for approval: {self.approval_id}]"
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
                kind.section,
                [entry.entry for entry in await kind.read(context) if entry.is_exported],
            )
            for kind in KINDS
            if self.with_merchants or not kind.of_merchants
        ]


class PlanConfig(ReadOperation[list[Step]], frozen=True, kw_only=True):
    """Compare a configuration file with the installation."""

    action: ClassVar[str] = "config.diff"
    file: ConfigFile

    async def read(self, context: OperationContext) -> list[Step]:
        """Return the differences in their order; raise the first refusal of an operation."""
        steps = [
            await _check(context, step)
            for kind in KINDS
            if kind.section in self.file.sections
            for step in _compare(kind, await kind.read(context), self.file.sections[kind.section])
        ]
        pending = await _load_pending(context, steps)
        return [replace(step, approval_id=_find_approval(step, pending)) for step in steps]


async def apply_plan(
    url: str, plan: PlanConfig, steps: Sequence[Step], submit: Submit
) -> list[Step]:
    """Run the steps of a plan; return the steps that need approval.

    `url` is the URL of the database itself, not of a pooler. Raises `CONFLICT` if another `config
    apply` is running, or if the plan has changed since it was shown.
    """
    async with hold_advisory_lock(url, _LOCK) as lock:
        if not lock.is_held:
            raise RefusedError(ErrorCode.CONFLICT, "another `config apply` is running")
        if await submit(plan) != steps:
            raise RefusedError(
                ErrorCode.CONFLICT, "the configuration has changed since then; apply the file again"
            )
        return await _run_steps(steps, submit)


async def _run_steps(steps: Sequence[Step], submit: Submit) -> list[Step]:
    """Run steps; an operation that needs approval stops the rest of its own step only."""
    pending: list[Step] = []
    for step in steps:
        if step.approval_id is not None:
            pending.append(step)
            continue
        for operation in step.operations:
            result = await submit(operation)
            if isinstance(result, Proposal):
                approval_id = ids.format_id(ids.APPROVAL, result.id)
                pending.append(replace(step, approval_id=approval_id))
                break
    return pending


def _compare(
    kind: ConfigKind, installed: Sequence[InstalledEntry], from_file: Sequence[FileEntry]
) -> Iterator[Step]:
    """Yield the steps from the installation's entries to the file's; removals come last."""
    present: defaultdict[tuple[object, ...], deque[InstalledEntry]] = defaultdict(deque)
    for entry in sorted(installed, key=lambda entry: not entry.is_exported):
        present[kind.key_of(entry.entry)].append(entry)
    for item in from_file:
        same = present[kind.key_of(item.entry)]
        before = same.popleft() if same else None
        if step := _build_step(kind, before, item):
            yield step
    for entry in (entry for same in present.values() for entry in same):
        if operations := kind.remove(entry):
            fields = _format_fields(kind, entry.entry)
            yield Step(
                sign="-",
                subject=_subject(kind, entry.entry),
                changes=f"removed{fields and f' ({fields})'}",
                position="",
                operations=operations,
            )


def _build_step(kind: ConfigKind, before: InstalledEntry | None, target: FileEntry) -> Step | None:
    entry = target.entry
    old: Mapping[str, Any] = {} if before is None else msgspec.structs.asdict(before.entry)
    fields = {
        name: value
        for name, value in msgspec.structs.asdict(entry).items()
        if value is not msgspec.UNSET and (before is None or value != old[name])
    }
    if before is None and kind.is_fixed:
        raise NotFoundError(f"{target.position}: this installation has no {_subject(kind, entry)}")
    # Omitted fields keep their value, even in operations that set all fields.
    same = {name: value for name, value in old.items() if getattr(entry, name) is msgspec.UNSET}
    whole = msgspec.structs.replace(entry, **same)
    by_hand = kind.by_hand(entry) if kind.by_hand and fields else ""
    is_different = before is None or fields or not before.is_exported
    operations = kind.change(Change(whole, fields, before)) if is_different else ()
    if not operations and not by_hand:
        return None
    if before is None:
        changes = _format_fields(kind, entry) or "added"
    else:
        changes = ", ".join(
            f"{name} {_format_value(old[name])} → {_format_value(value)}"
            for name, value in fields.items()
        )
    return Step(
        sign="+" if before is None else "~",
        subject=_subject(kind, entry),
        changes=changes or "offered again",
        position=target.position,
        operations=operations,
        by_hand=by_hand,
    )


def _subject(kind: ConfigKind, entry: ConfigEntry) -> str:
    values = [_format_value(value) for value in kind.key_of(entry) if value is not None]
    return " ".join([kind.section, *values])


def _format_fields(kind: ConfigKind, entry: ConfigEntry) -> str:
    """Format the fields that do not identify an entry."""
    return ", ".join(
        f"{name} {_format_value(value)}"
        for name, value in msgspec.structs.asdict(entry).items()
        if name not in kind.key and value is not msgspec.UNSET
    )


def _format_value(value: object) -> str:
    if value is msgspec.UNSET:
        return "none"
    text = str(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


async def _check(context: OperationContext, step: Step) -> Step:
    needs_approval = False
    for operation in step.operations:
        try:
            await operation.check(context)
            if context.actor.role is not None:
                needs_approval |= await operation.needs_approval(context)
        except RefusedError as error:
            at = step.position or step.subject
            raise RefusedError(error.code, f"{at}: {error.message}") from error
    return replace(step, needs_approval=needs_approval)


async def _load_pending(context: OperationContext, steps: Sequence[Step]) -> dict[bytes, str]:
    """Return the approval ids of pending proposals for these actions, by the encoded operation."""
    actions = {operation.action for step in steps for operation in step.operations}
    pending: dict[bytes, str] = {}
    after: UUID | None = None
    while actions:
        page = await proposals.list_waiting(context.database, after, _PAGE)
        for proposal in page:
            if proposal.action in actions and proposal.sealed is not None:
                encryption_context = proposal_context(
                    proposal.id, proposal.action, proposal.proposed_by
                )
                fields = context.encryption.decrypt(proposal.sealed, encryption_context)
                pending[fields] = ids.format_id(ids.APPROVAL, proposal.id)
        if len(page) < _PAGE:
            break
        after = page[-1].id
    return pending


def _find_approval(step: Step, pending: Mapping[bytes, str]) -> str | None:
    encoded = map(msgspec.json.encode, step.operations)
    return next((pending[fields] for fields in encoded if fields in pending), None)
