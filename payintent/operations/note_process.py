"""Notes, as long as a process serves, which cells it has opened (decision 121).

It keeps merchants out of cells that a process does not know: one that began before `cell add` has
not opened it, and would look for its payments in cell 0.
"""

import asyncio
import os
import socket
from uuid import uuid4

from payintent.domain.errors import (
    DatabaseRefusedError,
    LockTimeoutError,
    PermissionDeniedError,
    StorageUnavailableError,
)
from payintent.log import get_logger
from payintent.storage import cell_processes
from payintent.storage.cells import Cells

_log = get_logger("cells")


class ProcessNote:
    """The note of one process, which is written again every few seconds."""

    def __init__(self, cells: Cells, process: str) -> None:
        """Take the name of what the process is, such as `payintent-api`."""
        self._cells = cells
        self._id = uuid4()
        self._name = f"{process} {os.getpid()} on {socket.gethostname()}"[:200]
        self._numbers = [database.id_generator.cell for database in cells]
        self._lacking: list[int] = []

    async def begin(self) -> None:
        """Write the first note, before anything is served (`DatabaseRefusedError`).

        A cell that was added while this process began would be one that nobody waits for.
        """
        await self.step()
        if self._lacking:
            raise DatabaseRefusedError(
                f"cell {self._lacking[0]} was added while this process began: start it again"
            )

    async def run(self) -> None:
        """Write the note until it is cancelled; while control is away nothing can be placed."""
        while True:
            await asyncio.sleep(cell_processes.EVERY_S)
            try:
                await self.step()
            except (StorageUnavailableError, LockTimeoutError, PermissionDeniedError) as error:
                _log.warning("process_not_noted", why=str(error) or type(error).__name__)

    async def step(self) -> bool:
        """Write the note; a cell that was added since is said once."""
        lacking = await cell_processes.note(
            self._cells.control, self._id, self._name, self._numbers
        )
        if lacking != self._lacking:
            _log.warning("cells_not_open", cells=lacking, advice="restart this process")
        self._lacking = lacking
        return False

    async def flush(self) -> None:
        """Take the note away: the process ends."""
        try:
            await cell_processes.forget(self._cells.control, self._id)
        except (StorageUnavailableError, LockTimeoutError, PermissionDeniedError) as error:
            _log.warning("process_not_forgotten", why=str(error) or type(error).__name__)
