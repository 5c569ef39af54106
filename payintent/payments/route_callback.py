"""Leads a callback to the cell of what it is about; money that names nothing of ours to cell 0."""

from payintent.domain.gateway import VerifiedCallback
from payintent.payments.receive_callback import CallbackReceiver, CallbackResult
from payintent.storage import captures, sessions
from payintent.storage.cells import Cells
from payintent.storage.database import Database
from payintent.storage.session_cells import SessionCells


class CallbackRouter:
    """Receives the callbacks of all cells; those of one cell that come together share work."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._sessions = SessionCells(cells)
        self._receivers = cells.each(CallbackReceiver)

    async def receive(
        self, account_id: int, callback: VerifiedCallback, body: bytes
    ) -> CallbackResult:
        """Store a callback and apply it, as `CallbackReceiver.receive` does in one cell.

        Where a cell that may have what it is about is away, it is not received
        (`StorageUnavailableError`): gateways call again.
        """
        database = await self._find(account_id, callback)
        receiver = self._receivers.at(database.id_generator.cell)
        return await receiver.receive(account_id, callback, body)

    async def close(self) -> None:
        """Wait for the callbacks whose senders have gone."""
        await self._sessions.close()
        for receiver in self._receivers:
            await receiver.close()

    async def _find(self, account_id: int, callback: VerifiedCallback) -> Database:
        if not self._cells.are_several:
            return self._cells.control
        if callback.refund_id is not None and callback.outside_refund is None:
            return self._cells.of(callback.refund_id)
        if callback.session_id is not None:
            return await self._sessions.find(callback.session_id)
        if database := await self._find_capture(account_id, _capture_named(callback)):
            return database
        return self._cells.of(callback.refund_id) if callback.refund_id else self._cells.control

    async def _find_capture(self, account_id: int, reference: str | None) -> Database | None:
        if reference is None:
            return None
        for database in self._cells:
            if await sessions.find_running(database, account_id, reference):
                return database
            if await captures.is_known(database, account_id, reference):
                return database
        return None


def _capture_named(callback: VerifiedCallback) -> str | None:
    """Return the reference of the capture that a callback is about, if it is about one."""
    about = callback.dispute or callback.outside_refund or callback.fraud_warning
    if about is not None:
        return about.capture
    capture = callback.report.capture if callback.report else None
    return capture.reference if capture else None
