"""The background loops of a worker: webhook delivery, periodic steps, and chain watchers."""

import asyncio
import signal
import time
from collections.abc import Callable

# Imported here, before processes are forked; the service would import them at their first use.
import payintent.payments.inquire_sessions  # pyright: ignore[reportUnusedImport]
import payintent.payments.send_refund  # noqa: F401  # pyright: ignore[reportUnusedImport]
from payintent import tracing
from payintent.config import Settings
from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.garbage_collection import collect_rarely
from payintent.log import get_logger
from payintent.onchain.watch_loop import run_watch_loop
from payintent.payments.leased_tasks import STEP_FAILURES
from payintent.service import Service, open_worker_service
from payintent.tracing_export import start_tracing
from payintent.waiting import finish_unless_stopped, wait_until_stopped
from payintent.webhooks.dispatcher import Dispatcher
from payintent.webhooks.endpoint_windows import EndpointWindows
from payintent.webhooks.outbox import DatabaseOutbox
from payintent.webhooks.sender import WebhookSender
from payintent.worker_steps import (
    PeriodicStep,
    periodic_steps,
    refund_submitters,
    session_inquirers,
)

_log = get_logger("workers")


async def run_worker(settings: Settings, on_started: Callable[[], None] | None = None) -> None:
    """Run all loops until SIGTERM or Ctrl-C, then finish the running tasks."""
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
    settings = service.settings
    sender = WebhookSender(settings, time.time)
    windows = EndpointWindows(settings.webhook_sockets_max, time.monotonic)
    outbox = DatabaseOutbox(
        database=service.database,
        encryption=service.encryption,
        lease_s=settings.webhook_lease_s,
    )
    dispatcher = Dispatcher(outbox, sender, windows, settings.webhook_poll_s)
    listener = asyncio.create_task(service.event_notifier.listen(dispatcher.wake))
    inquirers, submitters = session_inquirers(service), refund_submitters(service)
    steps = (
        PeriodicStep("inquire", settings.inquire_every_s, inquirers.step),
        PeriodicStep("refund", settings.refund_every_s, submitters.step),
        *periodic_steps(service),
    )
    await asyncio.gather(
        dispatcher.run(stop),
        *(run_periodically(step, stop) for step in steps),
        *(run_watch_loop(service.watch_context, slug, stop) for slug in settings.endpoints),
    )
    await inquirers.finish()
    await submitters.finish()
    await service.accounts.log.flush()
    listener.cancel()
    await asyncio.gather(listener, return_exceptions=True)
    await sender.close()


async def run_periodically(periodic: PeriodicStep, stop: asyncio.Event) -> None:
    """Repeat a step until `stop` is set: at once while it has more to do, else after its interval.

    A failed step is logged and repeated: a bad row must not stop a worker.
    """
    while not stop.is_set():
        has_more: bool | None = False
        try:
            has_more = await periodic.step()
        except (StorageUnavailableError, LockTimeoutError) as error:
            _log.warning("step_deferred", step=periodic.name, why=type(error).__name__)
        except Exception as error:  # noqa: BLE001 - the top level of a worker
            STEP_FAILURES.labels(periodic.name).inc()
            _log.error("step_failed", step=periodic.name, exc_info=error)
        if not has_more:
            await wait_until_stopped(stop, periodic.every_s)
