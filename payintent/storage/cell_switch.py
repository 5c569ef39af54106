"""The last step of a cell's move: writes stop, the new server has everything, and takes over.

Until `release` every step can be undone, and nothing is lost by that; after it the new database has
the cell.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from payintent.domain.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.id_generator import IdGenerator
from payintent.storage.cell_move import (
    CellMove,
    MovedTable,
    fence,
    open_again,
    open_move,
    reopen_old,
)
from payintent.storage.driver import Connection

ACTION = "cell.move"
_BEHIND_MAX = 4 << 20  # bytes of the log, when writes stop
_BEHIND_WAIT_S = 60.0
_LOOK_S = 0.01
_COUNTED_MAX = 32 << 20  # bytes of a table whose rows are counted
_NEWEST = 500  # rows of each table that are compared as they are
_NO_OTHERS = """
SELECT count(pg_terminate_backend(pid)) = 0 FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
    AND pid <> pg_backend_pid() AND backend_start < $1
"""
_MARK = "INSERT INTO audit (id, who, why, action, details) VALUES ($1, $2, $3, $4, '{}')"
_MARKED = "SELECT EXISTS (SELECT FROM audit WHERE id = $1)"
_SEQUENCES = """
SELECT format('%I.%I', schemaname, sequencename) AS name, last_value FROM pg_sequences
WHERE schemaname = current_schema() AND last_value IS NOT NULL
"""

Step = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the operator's poolers are told: hold all clients, lead them on, let them go back."""

    pause: Step
    switch: Step
    resume: Step


@dataclass(frozen=True, slots=True)
class Switched:
    """A move that is finished, and how long nobody could write."""

    stopped_s: float
    tables: int  # that were compared
    sequences: int


async def finish(
    move: CellMove, urls: tuple[str, str], hooks: Hooks, who: str, why: str, *, stop_max_s: float
) -> Switched:
    """Stop writes, carry over what is left, compare, and let the new server take over.

    What fails before that is undone (`RefusedError`): the old database has the cell as before.
    """
    old, new = await move.facts()
    if not old["is_published"] or not new["is_subscribed"]:
        raise _refused(f"no move of cell {move.cell} is under way")
    if old["is_fenced"] and not new["is_fenced"]:
        await _take_over(move, hooks)
        return Switched(0.0, 0, 0)
    await move.require_same_schema()
    await move.follow_again()  # where this broke off before
    await _await_little(move)
    await move.new.execute("ANALYZE")  # the statistics of a table do not come with it
    tables = [table for table in await move.tables() if not table.is_unlogged and table.is_followed]
    await asyncio.gather(*(_look_at(side, tables) for side in (move.old, move.new)))  # warms
    began = time.monotonic()
    async with _undone(move, urls, hooks, new_is_closed=new["is_fenced"]):
        async with asyncio.timeout(stop_max_s):
            await hooks.pause()
            await _stop_writes(move, old["database"], who, why)
            sequences = await _carry_sequences(move)
            await _compare(move, tables)
            await move.stop_following()
    await open_again(move.new, new["database"])
    await hooks.switch()
    stopped_s = time.monotonic() - began
    await _tidy(move)
    return Switched(stopped_s, len(tables), sequences)


async def _take_over(move: CellMove, hooks: Hooks) -> None:
    """Go on where a move broke off after the new database was opened."""
    await hooks.switch()
    await _tidy(move)


async def _tidy(move: CellMove) -> None:
    await move.unsubscribe()
    await move.unpublish()


async def _await_little(move: CellMove) -> None:
    """Wait until all tables follow, and little of the log is left."""
    deadline = time.monotonic() + _BEHIND_WAIT_S
    while True:
        progress = await move.progress()
        if progress.follows and progress.behind <= _BEHIND_MAX:
            return
        if time.monotonic() > deadline:
            raise _refused(
                f"the new server is {progress.behind} bytes behind; try when there is less load"
                if progress.follows
                else "the new server does not follow yet: see `payintent cell-move status`"
            )
        await asyncio.sleep(_LOOK_S)


@asynccontextmanager
async def _undone(
    move: CellMove, urls: tuple[str, str], hooks: Hooks, *, new_is_closed: bool
) -> AsyncGenerator[None]:
    """Give the cell back to the old database where the block fails, on connections of its own."""
    try:
        yield
    except BaseException as error:
        await asyncio.shield(_undo(move.cell, urls, hooks, new_is_closed=new_is_closed))
        if isinstance(error, TimeoutError):
            raise _refused("it took too long, and was undone: the old database goes on") from error
        raise


async def _undo(cell: int, urls: tuple[str, str], hooks: Hooks, *, new_is_closed: bool) -> None:
    try:
        async with open_move(cell, *urls) as again:
            old, new = await again.facts()
            await fence(again.new, new["database"])
            await again.follow_again()
            await open_again(again.old, old["database"])
    except StorageUnavailableError:
        if not new_is_closed:
            raise
        await reopen_old(urls[0])  # the new one, where it is away, takes no writes when it is back
    await hooks.resume()


async def _stop_writes(move: CellMove, database: str, who: str, why: str) -> None:
    """Close the old database to writes, and wait until the new one has its last change.

    Who connected before it was closed could still write, so those connections end. One that was
    just beginning is not seen at first; then another mark has to arrive after its end.
    """
    await fence(move.old, database)
    closed_at = await move.old.fetchval("SELECT clock_timestamp()")
    ids = IdGenerator(cell=move.cell)
    while True:
        await _poll(partial(move.old.fetchval, _NO_OTHERS, closed_at))
        mark = ids.new_id()
        await move.old.execute(_MARK, mark, who, why, ACTION)
        await _poll(partial(move.new.fetchval, _MARKED, mark))
        if await move.old.fetchval(_NO_OTHERS, closed_at):
            return


async def _poll(look: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again: another server's log says nothing by itself."""
    while True:
        if await look():
            return
        await asyncio.sleep(_LOOK_S)


async def _carry_sequences(move: CellMove) -> int:
    """Set the new server's sequences: they are not followed."""
    rows = await move.old.fetch(_SEQUENCES)
    await move.new.fetch(
        "SELECT setval(name::regclass, value) FROM unnest($1::text[], $2::int8[]) t (name, value)",
        [row["name"] for row in rows],
        [row["last_value"] for row in rows],
    )
    return len(rows)


async def _compare(move: CellMove, tables: Sequence[MovedTable]) -> None:
    """Compare sequences and tables: the newest rows, and their number where that is cheap."""
    old, new = await asyncio.gather(*(_look_at(side, tables) for side in (move.old, move.new)))
    differ = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    if differ:
        raise _refused(f"the new server has something else in: {', '.join(differ)}")


async def _look_at(side: Connection, tables: Sequence[MovedTable]) -> dict[str, Any]:
    parts = [part for table in tables for part in _questions(table)]
    rows = await side.fetch(" UNION ALL ".join(parts))
    found: dict[str, Any] = {row["name"]: (row["n"], row["digest"]) for row in rows}
    return found | {row["name"]: row["last_value"] for row in await side.fetch(_SEQUENCES)}


def _questions(table: MovedTable) -> list[str]:
    newest = ", ".join(f"{column} DESC" for column in table.key)
    rows = f'SELECT * FROM "{table.name}" ORDER BY {newest} LIMIT {_NEWEST}'
    digest = "coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) AS digest"
    questions = [f"(SELECT '{table.name}' AS name, count(*) AS n, {digest} FROM ({rows}) t)"]
    if table.bytes <= _COUNTED_MAX:
        questions.append(f"(SELECT 'rows of {table.name}', count(*), 0 FROM \"{table.name}\")")
    return questions


def _refused(why: str) -> RefusedError:
    return RefusedError(ErrorCode.CONFLICT, why)
