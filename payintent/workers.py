"""The background loops: expire, inquire, refund, deliver, apply callbacks, delete old rows."""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any

# Imported at the start, before processes are forked: the service imports them where they are used.
import payintent.payments.inquire_sessions  # pyright: ignore[reportUnusedImport]
import payintent.payments.send_refund  # noqa: F401  # pyright: ignore[reportUnusedImport]
from payintent import tracing
from payintent.config import Settings
from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.garbage_collection import collect_rarely
from payintent.log import get_logger
from payintent.onchain.watch_loop import run_watch_loop
from payintent.operations.note_process import ProcessNote
from payintent.payments.leased_tasks import STEP_FAILURES
from payintent.service import Service, open_worker_service
from payintent.storage import cell_processes
from payintent.storage.database import Database
from payintent.tracing_export import start_tracing
from payintent.waiting import finish_unless_stopped, wait_until_stopped
from payintent.webhooks.dispatcher import Dispatcher
from payintent.webhooks.endpoint_windows import EndpointWindows
from payintent.webhooks.outbox import DatabaseOutbox
from payintent.webhooks.sender import WebhookSender
from payintent.worker_steps import CellSteps, PeriodicStep, control_steps, write_gateway_calls

_log = get_logger("workers")


async def run_worker(settings: Settings, on_started: Callable[[], None] | None = None) -> None:
    """Run every loop until SIGTERM or Ctrl-C, then finish what is under way."""
    collect_rarely()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    start_tracing(settings, "payintent-worker")
    service = await finish_unless_stopped(open_worker_service(settings), stop)
    if service is None:
        return
    if on_started is not None:
        on_started()
    try:
        await run_loops(service, stop)
    finally:
        await service.close()
        await asyncio.to_thread(tracing.stop)


async def run_loops(service: Service, stop: asyncio.Event) -> None:
    """Run every loop until `stop` is set: those of a cell for each cell, none waits for another.

    A cell that is back and that control does not know any more ends them (`DatabaseRefusedError`).
    """
    settings = service.settings
    sender = WebhookSender(settings, time.time)
    windows = EndpointWindows(settings.webhook_sockets_max, time.monotonic)
    process = ProcessNote(service.cells, "payintent-worker")
    await process.begin()
    cell_steps = CellSteps(service)
    loops: list[Coroutine[Any, Any, None]] = []
    comparison = service.cells.comparison
    listeners = [asyncio.create_task(comparison.run(stop.set))]
    for cell, database in service.cells.items():
        dispatcher = Dispatcher(
            outbox_of(service, database), sender, windows, settings.webhook_poll_s, cell=cell
        )
        wake = service.event_notifiers.at(cell)
        listeners.append(asyncio.create_task(wake.listen(dispatcher.wake)))
        loops.append(dispatcher.run(stop))
        loops += [run_periodically(step, stop) for step in cell_steps.of(cell, database)]
    noting = PeriodicStep("process", cell_processes.EVERY_S, process.step)
    loops += [run_periodically(step, stop) for step in (noting, *control_steps(service))]
    loops += [
        run_watch_loop(watched, slug, stop)
        for watched in service.watch_contexts()
        for slug in settings.endpoints
    ]
    await asyncio.gather(*loops)
    for runner in cell_steps.runners:
        await runner.finish()
    await write_gateway_calls(service)
    await process.flush()
    for listener in listeners:
        listener.cancel()
    await asyncio.gather(*listeners, return_exceptions=True)
    await sender.close()
    if comparison.failure is not None:
        raise comparison.failure


async def run_periodically(doing: PeriodicStep, stop: asyncio.Event) -> None:
    """Repeat a step until `stop` is set: at once while it finds plenty, else every `every_s`.

    A step that fails is logged and tried again; one bad row does not end a worker.
    """
    named = {"cell": doing.cell} if doing.cell else {}
    while not stop.is_set():
        plenty = False
        try:
            plenty = await doing.step()
        except (StorageUnavailableError, LockTimeoutError) as error:
            _log.warning("step_deferred", step=doing.name, why=type(error).__name__, **named)
        except Exception as error:  # noqa: BLE001 - the top level of a worker, as of a request
            STEP_FAILURES.labels(doing.name).inc()
            _log.error("step_failed", step=doing.name, exc_info=error, **named)
        if not plenty:
            await wait_until_stopped(stop, doing.every_s)


def outbox_of(service: Service, database: Database) -> DatabaseOutbox:
    """Return the outbox of a cell, as its dispatcher uses it."""
    return DatabaseOutbox(
        database=database,
        encryption=service.encryption,
        lease_s=service.settings.webhook_lease_s,
        others=[other for other in service.cells if other is not database],
    )
