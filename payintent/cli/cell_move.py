"""`payintent cell-move`: a whole cell moves to another PostgreSQL server.

Both servers' addresses are of superusers, so they are read from the environment alone, and the
service's own settings have no part in it.
"""

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable
from typing import TypeVar

import typer

from payintent.cli.common import Json, fail, person, print_record, print_table
from payintent.domain import ids
from payintent.domain.errors import RefusedError, StorageUnavailableError
from payintent.storage.cell_move import CellMove, open_move
from payintent.storage.cell_switch import Hooks, finish

T = TypeVar("T")
OLD_ENV, NEW_ENV = "PAYINTENT_MOVE_FROM_URL", "PAYINTENT_MOVE_TO_URL"
_STOP_MAX_S = 2.0
_HOOK_S = 30.0
_SWITCH_FAILED = "the new server has the cell: lead the poolers to it, or run this again"
_SHOWN = 300  # characters of what a failed hook printed

_Cell = typer.Argument(..., min=0, max=ids.CELL_MAX, help="The cell's number; 0 can be moved too.")


class HookError(Exception):
    """A command for the poolers failed; the message says which and how."""


def add_to(group: typer.Typer) -> None:
    """Add the steps of a move."""
    group.command("start", help=_start.__doc__)(_start)
    group.command("status", help=_status.__doc__)(_status)
    group.command("finish", help=_finish.__doc__)(_finish)
    group.command("abort", help=_abort.__doc__)(_abort)


def _start(cell: int = _Cell) -> None:
    """Begin to copy a cell to the new server, which then follows; the old one goes on."""
    _with_move(cell, CellMove.begin)
    print(f"cell {cell} is copied; payintent cell-move status {cell} says how far")


def _status(cell: int = _Cell, as_json: bool = Json) -> None:
    """Say how far each table is, and how far behind the new server is."""
    found = _with_move(cell, CellMove.progress)
    if as_json:
        print_record(found, as_json=True)
        return
    late = [table for table in found.tables if table.state != "follows"]
    if late:
        print_table(late, ("name", "state", "bytes"), as_json=False)
    print(f"tables that follow  {len(found.tables) - len(late)} of {len(found.tables)}")
    print(f"behind              {found.behind} bytes")
    print(f"can be finished     {'yes' if found.follows else 'no'}")


def _finish(
    cell: int = _Cell,
    pause: str = typer.Option(..., help="The command by which all poolers hold their clients."),
    switch: str = typer.Option(..., help="The one by which they lead them to the new server."),
    resume: str = typer.Option(..., help="The one by which they go on at the old one."),
    stop_max_s: float = typer.Option(
        _STOP_MAX_S, min=0.1, help="How long writes may stop before it is undone, in seconds."
    ),
    why: str = typer.Option(..., help="The reason, for the audit log."),
) -> None:
    """Stop writes, carry over the rest, compare, and let the new server take over."""
    hooks = Hooks(_hook(pause), _hook(switch, _SWITCH_FAILED), _hook(resume))

    async def run(move: CellMove) -> None:
        done = await finish(move, _urls(), hooks, person(), why, stop_max_s=stop_max_s)
        print(
            f"cell {cell} is at the new server: writes stopped for {done.stopped_s:.2f} s; "
            f"{done.tables} tables and {done.sequences} sequences are alike"
        )

    try:
        _with_move(cell, run)
    except HookError as error:
        fail(str(error))


def _abort(cell: int = _Cell) -> None:
    """Give a move up: the old server goes on as before, the new database is emptied."""
    _with_move(cell, CellMove.abort)
    print(f"the move of cell {cell} was given up")


def _with_move(cell: int, work: Callable[[CellMove], Awaitable[T]]) -> T:
    async def run() -> T:
        async with open_move(cell, *_urls()) as move:
            return await work(move)

    try:
        return asyncio.run(run())
    except RefusedError as refused:
        fail(refused.message)
    except StorageUnavailableError as error:
        fail(str(error))


def _urls() -> tuple[str, str]:
    lacking = [name for name in (OLD_ENV, NEW_ENV) if not os.environ.get(name)]
    if lacking:
        fail(f"{' and '.join(lacking)} must be in the environment: superusers' addresses")
    return os.environ[OLD_ENV], os.environ[NEW_ENV]


def _hook(command: str, then: str = "") -> Callable[[], Awaitable[None]]:
    """Make a step of a command, which is given no address of a database."""
    words = shlex.split(command)
    if not words:
        fail("a command for the poolers is empty")
    environment = {
        name: value for name, value in os.environ.items() if name not in {OLD_ENV, NEW_ENV}
    }

    async def run() -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                env=environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as error:
            raise HookError(f"{words[0]} cannot be started: {error.strerror}") from error
        try:
            async with asyncio.timeout(_HOOK_S):
                printed, _ = await process.communicate()
        except BaseException:
            process.kill()
            raise
        if process.returncode:
            said = printed.decode(errors="replace")[-_SHOWN:].strip()
            raise HookError(
                f"{command} failed with {process.returncode}: {said}{then and chr(10)}{then}"
            )

    return run
