"""The database of a cell beside others: behind a gate, so that it delays nothing of theirs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import LiteralString

from payintent.config import Settings
from payintent.domain.errors import StorageUnavailableError
from payintent.id_generator import IdGenerator
from payintent.storage.cell_gate import CellGate
from payintent.storage.database import ConnectionCheck, Database, Row, Tx
from payintent.storage.driver import Connection


class GatedDatabase(Database):
    """A database whose silence holds no request of another cell."""

    def __init__(
        self,
        settings: Settings,
        process: str = "payintent",
        id_generator: IdGenerator | None = None,
        check: ConnectionCheck | None = None,
    ) -> None:
        super().__init__(settings, process, id_generator=id_generator, check=check)
        self._gate = self.gate = CellGate(settings.requests_max, cell=self.id_generator.cell)

    async def fetch(self, query: LiteralString, *args: object) -> list[Row]:
        """Return all rows of a statement that commits by itself."""
        with self._gate.ask():
            return await super().fetch(query, *args)

    async def row(self, query: LiteralString, *args: object) -> Row | None:
        """Return the first row of a statement that commits by itself."""
        with self._gate.ask():
            return await super().row(query, *args)

    @asynccontextmanager
    async def transaction(self, lock_timeout_ms: int | None = None) -> AsyncGenerator[Tx]:
        """Open a transaction, as `Database` does."""
        with self._gate.ask():
            async with super().transaction(lock_timeout_ms) as tx:
                self._gate.hear()  # BEGIN was answered
                yield tx

    async def _borrow(self) -> Connection:
        began_at = self._gate.now()
        try:
            return await super()._borrow()
        except StorageUnavailableError as error:
            self._gate.fail(began_at, str(error))
            raise
