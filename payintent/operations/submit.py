"""Runs operations: directly, or as a proposal that a second operator must approve."""

import secrets as chance
from dataclasses import replace
from typing import Any, TypeVar, cast

import msgspec

from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.encryption import NONCE_BYTES, proposal_place
from payintent.operations.base import (
    Actor,
    BatchOperation,
    ChangeOperation,
    OperationContext,
    ReadOperation,
    check_role,
    details,
    run,
)
from payintent.operations.json_values import to_json_value
from payintent.operations.keyring import ensure_writing_key
from payintent.storage import audit, proposals
from payintent.storage.proposals import NewProposal, Proposal

R = TypeVar("R")
T = TypeVar("T")
_WHO_MAX, _WHY_MAX = 200, 500


async def submit(
    context: OperationContext, operation: ReadOperation[R] | ChangeOperation[R], actor: Actor
) -> R | Proposal:
    """Run an operation, or store it as a proposal where a second operator must approve.

    A change and its audit entry are one transaction, or one for each batch of a `BatchOperation`.
    Raises `FORBIDDEN` where the actor's role does not include it, `BAD_REQUEST` without a
    reason outside the sandbox, and what the operation raises.
    """
    context = replace(context, actor=actor)
    if isinstance(operation, ReadOperation):
        check_role(context, operation)
        return await operation.read(context)
    if not (operation.is_bootstrap and actor.role is None):
        check_role(context, operation)
    _check_actor(context, actor)
    await operation.check(context)
    if actor.role is not None and await operation.needs_approval(context):
        return await _propose(context, operation)
    if isinstance(operation, BatchOperation):
        return cast("R", await _run_batches(context, cast("BatchOperation[Any]", operation)))
    async with context.database.transaction() as tx:
        return await run(context, tx, operation, {})


async def run_operation(
    context: OperationContext, operation: ReadOperation[R] | ChangeOperation[R], actor: Actor
) -> R:
    """Run an operation that needs no approval; raise `CONFLICT` where it needs one."""
    alone = replace(context, actor=actor)
    if (
        isinstance(operation, ChangeOperation)
        and actor.role is not None
        and await operation.needs_approval(alone)
    ):
        raise RefusedError(ErrorCode.CONFLICT, f"another person must approve {operation.action}")
    result = await submit(context, operation, actor)
    assert not isinstance(result, Proposal)  # noqa: S101 - no approval is needed
    return result


async def _run_batches(context: OperationContext, operation: BatchOperation[T]) -> list[T]:
    done: list[T] = []
    left: BatchOperation[T] | None = operation
    while left is not None:
        async with context.database.transaction() as tx:
            batch = await run(context, tx, left, {})
        done += batch
        left = left.following(batch)
    return done


def _check_actor(context: OperationContext, actor: Actor) -> None:
    for name, value, longest in (("who", actor.who, _WHO_MAX), ("why", actor.why, _WHY_MAX)):
        if len(value) > longest or "\x00" in value:
            raise RefusedError(ErrorCode.BAD_REQUEST, f"{name} has at most {longest} characters")
    if not context.sandbox and not actor.why.strip():
        raise RefusedError(ErrorCode.BAD_REQUEST, "say why: the audit log needs a reason")


async def _propose(context: OperationContext, operation: ChangeOperation[Any]) -> Proposal:
    """Store an operation as a proposal, with encrypted arguments."""
    proposal_id = context.id_generator.new_id()
    changes = await operation.changes(context)
    merchant_id: int | None = getattr(operation, "merchant_id", None)
    async with context.database.transaction() as tx:
        await ensure_writing_key(context, tx)
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
            id=context.id_generator.new_id(),
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
