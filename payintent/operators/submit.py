"""Create and run operations, or store them as proposals for a second operator to approve."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from payintent.core import ids
from payintent.core.errors import BadRequestError, ConflictError, NotFoundError
from payintent.db.encryption_keys import ensure_writing_key
from payintent.operators import audit_store, proposals_store
from payintent.operators.operation import (
    Actor,
    AnyOperation,
    BatchOperation,
    ChangeOperation,
    OperationContext,
    OperationType,
    ReadOperation,
    check_role,
    details,
    run,
    to_json_value,
)
from payintent.operators.proposals_store import Proposal
from payintent.runtime.encryption import make_proposal_context

R = TypeVar("R")
T = TypeVar("T", bound=msgspec.Struct)
#: Opens a progress display for an action with a known total number of rows. The display is called
#: with the number of rows in each batch.
ShowProgress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
_ACTOR_NAME_CHARS_MAX, _REASON_CHARS_MAX = 200, 500


def find_operation(operations: Mapping[str, OperationType], action: str) -> OperationType:
    operation = operations.get(action)
    if operation is None:
        raise NotFoundError("no such operation")
    return operation


def convert_operation(fields: Mapping[str, Any], operation: type[T], *, strict: bool) -> T:
    """Create an operation from its fields. Raises `BAD_REQUEST` with the name of an invalid field.

    Unless `strict` is set, numbers and booleans may be given as text.
    """
    try:
        return msgspec.convert(fields, operation, strict=strict)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"{error}".replace("`$.", "`")) from error


async def submit(
    context: OperationContext,
    operation: AnyOperation[R],
    actor: Actor,
    show_progress: ShowProgress | None = None,
) -> R | Proposal:
    """Run an operation, or store it as a proposal if a second operator must approve it.

    A change and its audit entry share a transaction. A batch operation uses a transaction for each
    batch and reports its progress to `show_progress`. Raises `FORBIDDEN` if the actor's role may
    not run the operation, `BAD_REQUEST` if a required reason is missing, or an error from the
    operation.
    """
    context = replace(context, actor=actor)
    if isinstance(operation, ReadOperation):
        check_role(context, operation)
        return await operation.read(context)
    await _check(context, operation)
    if actor.role is not None and await operation.needs_approval(context):
        return await _propose(context, operation)
    if isinstance(operation, BatchOperation):
        return await _run_batches(context, operation, show_progress)
    async with context.database.transaction() as tx:
        return await run(context, tx, operation)


async def describe(
    context: OperationContext, operation: ChangeOperation[Any], actor: Actor
) -> list[str]:
    """Describe the changes that an operation would make. Raises the same errors as `submit`."""
    context = replace(context, actor=actor)
    await _check(context, operation)
    return await operation.changes(context)


async def count_changes(
    context: OperationContext, operation: AnyOperation[Any], actor: Actor
) -> dict[str, object]:
    """Count the changes that an operation would make. Neither a reason nor approval is required.

    Raises `BAD_REQUEST` if the operation does not support dry runs.
    """
    context = replace(context, actor=actor)
    check_role(context, operation)
    if isinstance(operation, ReadOperation) or not operation.has_dry_run:
        raise BadRequestError(f"{operation.action} does not support dry runs")
    await operation.check(context)
    return {"dry_run": True, "action": operation.action, **await operation.count_changes(context)}


async def run_operation(context: OperationContext, operation: AnyOperation[R], actor: Actor) -> R:
    """Run an operation. Raises `CONFLICT` if it needs approval."""
    if (
        isinstance(operation, ChangeOperation)
        and actor.role is not None
        and await operation.needs_approval(replace(context, actor=actor))
    ):
        raise ConflictError(f"another operator must approve {operation.action}")
    result = await submit(context, operation, actor)
    assert not isinstance(result, Proposal)  # noqa: S101 - no approval is needed
    return result


async def _check(context: OperationContext, operation: ChangeOperation[Any]) -> None:
    if not (operation.is_bootstrap and context.actor.role is None):
        check_role(context, operation)
    _check_actor(context, context.actor)
    await operation.check(context)


async def _run_batches(
    context: OperationContext, operation: BatchOperation[R], show_progress: ShowProgress | None
) -> R:
    """Run all batches, and show progress if there are several."""
    display: AbstractContextManager[Callable[[int], None]] = nullcontext(lambda _: None)
    if show_progress is not None:
        total = await operation.total(context)
        if total > operation.batch_size:
            display = show_progress(operation.action, total)
    result: R | None = None
    next_operation: BatchOperation[R] | None = operation
    with display as advance:
        while next_operation is not None:
            async with context.database.transaction() as tx:
                batch = await run(context, tx, next_operation)
            advance(next_operation.count(batch))
            result = batch if result is None else next_operation.combine(result, batch)
            next_operation = next_operation.next_batch(batch)
    assert result is not None  # noqa: S101 - at least one batch has run
    return result


def _check_actor(context: OperationContext, actor: Actor) -> None:
    for name, value, length_max in (
        ("who", actor.name, _ACTOR_NAME_CHARS_MAX),
        ("why", actor.reason, _REASON_CHARS_MAX),
    ):
        if len(value) > length_max or "\x00" in value:
            raise BadRequestError(f"{name} must have at most {length_max} characters")
    if not context.settings.sandbox and not actor.reason.strip():
        raise BadRequestError("why is required: the audit log needs a reason")


async def _propose(context: OperationContext, operation: ChangeOperation[Any]) -> Proposal:
    """Store an operation as a proposal with encrypted arguments."""
    changes = await operation.changes(context)
    merchant_id: int | None = getattr(operation, "merchant_id", None)
    async with context.database.transaction() as tx:
        await ensure_writing_key(tx, context.encryption)
        proposal_id = tx.id_generator.new_id()
        proposal = await proposals_store.add(
            tx,
            proposal_id,
            action=operation.action,
            merchant_id=merchant_id,
            sealed=context.encryption.encrypt(
                msgspec.json.encode(operation),
                make_proposal_context(proposal_id, operation.action, context.actor_name),
            ),
            changes=changes,
            proposed_by=context.actor_name,
            reason=context.actor.reason,
        )
        await audit_store.add(
            tx,
            actor_name=context.actor_name,
            reason=context.actor.reason,
            action="approval.propose",
            merchant_id=merchant_id,
            details={"approval_id": ids.format_id(ids.APPROVAL, proposal_id)}
            | {"action": operation.action, "fields": to_json_value(details(operation))},
        )
    return proposal
