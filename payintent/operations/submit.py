"""Runs operations: directly, or as a proposal that a second operator must approve."""

import secrets as chance
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.encryption import NONCE_BYTES, proposal_place
from payintent.operations.base import (
    Actor,
    ChangeOperation,
    OperationContext,
    OperationHome,
    ReadOperation,
    check_role,
    details,
    run,
)
from payintent.operations.find_cell import cell_away
from payintent.operations.json_values import to_json_value
from payintent.operations.keyring import encrypting
from payintent.storage import audit, proposals
from payintent.storage.proposals import NewProposal, Proposal

R = TypeVar("R")
#: Opens a display for an action and the count of its rows; it is told the count of each batch.
ShowProgress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
_WHO_MAX, _WHY_MAX = 200, 500
_COPIED_S = 3.0  # that a change waits until other cells have it; they look each second


async def submit(
    context: OperationContext,
    operation: ReadOperation[R] | ChangeOperation[R],
    actor: Actor,
    show_progress: ShowProgress | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> R | Proposal:
    """Run an operation, or store it as a proposal where a second operator must approve.

    A change and its audit entry are one transaction, or one for each cell or batch, whose progress
    `show_progress` shows. `warn` is told which cells do not have a change of what is copied yet.
    Raises `SERVICE_UNAVAILABLE` where the cell that it is done in does not answer,
    `FORBIDDEN` where the actor's role does not include it, `BAD_REQUEST` without a reason outside
    the sandbox, and what the operation raises.
    """
    context = replace(context, actor=actor, warn=warn)
    async with _at_home(context, operation) as there:
        if isinstance(operation, ReadOperation):
            check_role(there, operation)
            return await operation.read(there)
        await _check(there, operation)
        if actor.role is not None and await operation.needs_approval(there):
            return await _propose(there, operation)
        if operation.home is OperationHome.CELLS:
            # Few commands need it.
            from payintent.operations.run_in_cells import run_in_cells

            return await run_in_cells(there, operation, show_progress)
        return await _run_copied(there, operation)


async def describe(
    context: OperationContext, operation: ChangeOperation[Any], actor: Actor
) -> list[str]:
    """Describe what an operation would change; raises where `submit` would refuse it."""
    async with _at_home(replace(context, actor=actor), operation) as there:
        await _check(there, operation)
        return await operation.changes(there)


async def foresee(
    context: OperationContext,
    operation: ReadOperation[Any] | ChangeOperation[Any],
    actor: Actor,
) -> dict[str, object]:
    """Count what an operation would do, and change nothing; it needs no reason and no approval.

    Raises `BAD_REQUEST` for an operation that has no dry run.
    """
    context = replace(context, actor=actor)
    check_role(context, operation)
    if isinstance(operation, ReadOperation) or not operation.has_dry_run:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"{operation.action} has no dry run")
    async with _at_home(context, operation) as there:
        await operation.check(there)
        return {"dry_run": True, "action": operation.action, **await operation.foresee(there)}


async def run_operation(
    context: OperationContext, operation: ReadOperation[R] | ChangeOperation[R], actor: Actor
) -> R:
    """Run an operation that needs no approval; raise `CONFLICT` where it needs one."""
    alone = replace(context, actor=actor)
    if isinstance(operation, ChangeOperation) and actor.role is not None:
        async with _at_home(alone, operation) as there:
            needs_approval = await operation.needs_approval(there)
        if needs_approval:
            raise RefusedError(
                ErrorCode.CONFLICT, f"another person must approve {operation.action}"
            )
    result = await submit(context, operation, actor)
    assert not isinstance(result, Proposal)  # noqa: S101 - no approval is needed
    return result


async def _check(context: OperationContext, operation: ChangeOperation[Any]) -> None:
    """Refuse what can be refused before anything is changed."""
    if not (operation.is_bootstrap and context.actor.role is None):
        check_role(context, operation)
    _check_actor(context, context.actor)
    await operation.check(context)


@asynccontextmanager
async def _at_home(
    context: OperationContext, operation: ReadOperation[Any] | ChangeOperation[Any]
) -> AsyncGenerator[OperationContext]:
    """Give the context of the cell that an operation is done in, and name it where it is away."""
    if not context.cells.are_several or operation.home is OperationHome.CELLS:
        yield context
        return
    number = 0
    try:
        number = await operation.cell_of(context)
        yield context.within(context.cells.at(number))
    except StorageUnavailableError as error:
        raise cell_away(number, error) from error


async def _run_copied(context: OperationContext, operation: ChangeOperation[R]) -> R:
    """Run a change in one transaction; what other cells copy of it they have then, or soon."""
    control = context.cells.control
    if not context.cells.are_several or context.database is not control:
        return await _run_once(context, operation)
    # An installation of one cell goes without the copier.
    from payintent.operations.copy_tables import wait_until_copied
    from payintent.storage import copied_tables

    before, _ = await copied_tables.read_change(control)
    result = await _run_once(context, operation)
    try:
        late = await wait_until_copied(context.cells, _COPIED_S, since=before)
    except StorageUnavailableError:  # it is done, whatever is known of the copies
        late = context.cells.numbers()[1:]
    for cell in late:
        context.warn(f"cell {cell} may not have this change yet: it goes on with what was before")
    return result


async def _run_once(context: OperationContext, operation: ChangeOperation[R]) -> R:
    async with context.database.transaction() as tx:
        result = await run(context, tx, operation, {})
    await operation.finish(context, result)
    return result


def _check_actor(context: OperationContext, actor: Actor) -> None:
    for name, value, longest in (("who", actor.who, _WHO_MAX), ("why", actor.why, _WHY_MAX)):
        if len(value) > longest or "\x00" in value:
            raise RefusedError(ErrorCode.BAD_REQUEST, f"{name} has at most {longest} characters")
    if not context.sandbox and not actor.why.strip():
        raise RefusedError(ErrorCode.BAD_REQUEST, "say why: the audit log needs a reason")


async def _propose(context: OperationContext, operation: ChangeOperation[Any]) -> Proposal:
    """Store an operation as a proposal, with encrypted arguments, in the cell of its change."""
    changes = await operation.changes(context)
    merchant_id: int | None = getattr(operation, "merchant_id", None)
    async with encrypting(context) as tx:
        proposal_id = tx.id_generator.new_id()
        new = NewProposal(
            id=proposal_id,
            action=operation.action,
            merchant_id=merchant_id,
            sealed=context.encryption.encrypt(
                msgspec.json.encode(operation),
                proposal_place(proposal_id, operation.action, context.who),
                chance.token_bytes(NONCE_BYTES),
            ),
            changes=changes,
            proposed_by=context.who,
            why=context.actor.why,
        )
        await proposals.add(tx, new)
        entry = audit.NewAuditEntry(
            id=tx.id_generator.new_id(),
            who=context.who,
            why=context.actor.why,
            action="approval.propose",
            merchant_id=merchant_id,
            details={"approval_id": ids.format_id(ids.APPROVAL, proposal_id)}
            | {"action": operation.action, "fields": to_json_value(details(operation))},
        )
        await audit.add(tx, entry)
        proposal = await proposals.get(tx, proposal_id)
        assert proposal is not None  # noqa: S101 - it was just written
    return proposal
