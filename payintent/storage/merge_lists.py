"""Lists over cells: each is asked for one page, and these are merged in the order of their key.

A place in such a list is one for all cells: ids are by time, and those of no two cells are equal.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from payintent.domain.errors import LockTimeoutError, StorageUnavailableError

S = TypeVar("S")
T = TypeVar("T")

_ANSWER_S = 5.0  # after which a list goes without a cell


class CellList(list[T]):
    """Rows of a list, and the cells whose rows it lacks because they do not answer."""

    def __init__(self, rows: Iterable[T] = (), cells_away: Sequence[int] = ()) -> None:
        """Take the rows, and the numbers of the cells that are away."""
        super().__init__(rows)
        self.cells_away = tuple(cells_away)


def cells_away(result: object) -> tuple[int, ...]:
    """Return the numbers of the cells that a result lacks; a whole one lacks none."""
    return result.cells_away if isinstance(result, CellList) else ()


async def ask_cells(
    sources: Mapping[int, S], ask: Callable[[S], Awaitable[T]]
) -> tuple[dict[int, T], tuple[int, ...]]:
    """Ask all cells at once; returns their answers, and the numbers of those that are away.

    Raises what the first one raised where none answers. A single cell is asked as ever.
    """
    if len(sources) == 1:
        [(number, source)] = sources.items()
        return {number: await ask(source)}, ()
    found = await asyncio.gather(
        *(_ask_in_time(source, ask) for source in sources.values()), return_exceptions=True
    )
    answers: dict[int, T] = {}
    failures: dict[int, BaseException] = {}
    for number, answer in zip(sources, found, strict=True):
        if not isinstance(answer, BaseException):
            answers[number] = answer
        elif isinstance(answer, StorageUnavailableError | LockTimeoutError):
            failures[number] = answer
        else:
            raise answer
    if not answers:
        raise next(iter(failures.values()))
    return answers, tuple(failures)


async def merge_lists(
    sources: Mapping[int, S],
    read: Callable[[S], Awaitable[Sequence[T]]],
    limit: int,
    key: Callable[[T], Any],
    *,
    oldest_first: bool = False,
) -> CellList[T]:
    """Merge a page of each cell into one; `read` reads up to `limit` rows in the order of `key`."""
    pages, away = await ask_cells(sources, read)
    if len(sources) == 1:
        return CellList(next(iter(pages.values())))
    rows = [row for page in pages.values() for row in page]
    return CellList(sorted(rows, key=key, reverse=not oldest_first)[:limit], away)


async def _ask_in_time(source: S, ask: Callable[[S], Awaitable[T]]) -> T:
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await ask(source)
    except TimeoutError as error:
        raise StorageUnavailableError("no answer in time") from error
