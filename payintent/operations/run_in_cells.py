"""Changes of all cells, or of those of a merchant: one after the other, each by itself."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from payintent.domain.errors import (
    ErrorCode,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.operations.base import BatchOperation, ChangeOperation, OperationContext, run
from payintent.operations.find_cell import cell_away

if TYPE_CHECKING:  # it imports this module where it is needed
    from payintent.operations.submit import ShowProgress

R = TypeVar("R")


async def run_in_cells(
    context: OperationContext, operation: ChangeOperation[R], show_progress: "ShowProgress | None"
) -> R:
    """Run a change in each of its cells, in a transaction with an audit entry for each batch.

    More than one batch of a cell are counted before. A cell that does not answer keeps no other
    from its change; then `SERVICE_UNAVAILABLE` says where it was done and where it was not. Done
    again, it changes what is left.
    """
    if not context.cells.are_several:
        return await _run(context, operation, show_progress)
    result: R | None = None
    done: list[int] = []
    missed: list[int] = []
    for cell in await operation.cells_of(context):
        try:
            there = context.within(context.cells.at(cell))
            of_cell = await _run(there, operation, show_progress)
        except (StorageUnavailableError, LockTimeoutError):
            missed.append(cell)
            continue
        result = of_cell if result is None else operation.combine(result, of_cell)
        done.append(cell)
    if missed:
        raise RefusedError(ErrorCode.SERVICE_UNAVAILABLE, _parted(done, missed))
    assert result is not None  # noqa: S101 - there is a first cell
    return result


async def ask_in_cells(
    context: OperationContext,
    operation: ChangeOperation[Any],
    ask: Callable[[OperationContext], Awaitable[R]],
) -> list[R]:
    """Ask each cell what a change would do there (`SERVICE_UNAVAILABLE` where one is away)."""
    if not context.cells.are_several:
        return [await ask(context)]
    answers: list[R] = []
    for cell in await operation.cells_of(context):
        try:
            answers.append(await ask(context.within(context.cells.at(cell))))
        except StorageUnavailableError as error:
            raise cell_away(cell, error) from error
    return answers


async def _run(
    context: OperationContext, operation: ChangeOperation[R], show_progress: "ShowProgress | None"
) -> R:
    if not isinstance(operation, BatchOperation):
        async with context.database.transaction() as tx:
            return await run(context, tx, operation, {})
    total = await operation.total(context) if show_progress else 0
    if show_progress is None or total <= operation.batch_size:
        return await _run_batches(context, operation, lambda _: None)
    with show_progress(operation.action, total) as advance:
        return await _run_batches(context, operation, advance)


async def _run_batches(
    context: OperationContext, operation: BatchOperation[R], advance: Callable[[int], None]
) -> R:
    result: R | None = None
    left: BatchOperation[R] | None = operation
    while left is not None:
        async with context.database.transaction() as tx:
            batch = await run(context, tx, left, {})
        advance(left.count(batch))
        result = batch if result is None else left.combine(result, batch)
        left = left.following(batch)
    assert result is not None  # noqa: S101 - there is a first batch
    return result


def _parted(done: Sequence[int], missed: Sequence[int]) -> str:
    """Say where a change was done, and where it has still to be."""
    left = f"{_named(missed)} did not answer in time"
    before = f", {_named(done)} has it" if done else ""
    return f"{left}{before}: do it again, which changes what is left"


def _named(cells: Sequence[int]) -> str:
    return "cell " + " and ".join(map(str, cells))
