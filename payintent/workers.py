"""The background loops: expire, inquire, refund, deliver, apply callbacks, delete old rows."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from prometheus_client import Gauge

# Imported at the start, before processes are forked: the service imports them where they are used.
import payintent.payments.inquire_sessions  # pyright: ignore[reportUnusedImport]
import payintent.payments.send_refund  # noqa: F401  # pyright: ignore[reportUnusedImport]
from payintent import tracing
from payintent.checkout.receipt_mail import compose_receipt
from payintent.config import Settings
from payintent.domain.case import CaseKind
from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.garbage_collection import collect_rarely
from payintent.log import get_logger
from payintent.mail.send_due import MailSender
from payintent.mail.smtp_client import SmtpClient
from payintent.onchain.chain_alarm import chain_alarm
from payintent.onchain.watch_loop import open_configured_reader, run_watch_loop
from payintent.operations.note_process import ProcessNote
from payintent.payments.close_statements import close_due_days
from payintent.payments.count_outcomes import count_outcomes
from payintent.payments.expire import expire_due_pending, expire_processing
from payintent.payments.gateway_calls import EVERY_S
from payintent.payments.leased_tasks import STEP_FAILURES, LeasedTaskRunner
from payintent.payments.receive_callback import apply_waiting_callbacks
from payintent.payments.retention import prune_step
from payintent.payments.seal_payer_data import PayerDataSealer
from payintent.reconciliation.chain_comparison import ChainComparison, compare_chain
from payintent.reconciliation.intake import take_files
from payintent.reconciliation.movements import MovementComparison, compare_movements
from payintent.reconciliation.s3_source import open_s3_source
from payintent.reconciliation.sources import FileSource, FolderSource
from payintent.service import Service, open_worker_service
from payintent.storage import (
    api_calls,
    backlog,
    callbacks,
    cell_processes,
    endpoint_outages,
    fraud,
    gateway_calls,
    idempotency,
    ledger_check,
    mails,
    payments,
    proposals,
    reconciliation_runs,
    refunds,
    sessions,
)
from payintent.storage.refunds import DueRefund
from payintent.storage.sessions import DueSession
from payintent.tracing_export import start_tracing
from payintent.waiting import finish_unless_stopped, wait_until_stopped
from payintent.webhooks.dispatcher import Dispatcher
from payintent.webhooks.endpoint_windows import EndpointWindows
from payintent.webhooks.outbox import DatabaseOutbox
from payintent.webhooks.sender import WebhookSender

_log = get_logger("workers")
_LEASE_S = 60.0  # of a session claimed for an inquiry; a gateway call takes 15 s at most
_COUNT_EVERY_S = 2.0  # figures of the console are so old at most, and `SETTLED_S` more
_MAIL_EVERY_S = 5.0
_LEDGER_EVERY_S = 3600.0
_STATEMENTS_EVERY_S = 60.0
_LEDGER_LOGGED_MAX = 20
RECENT_HOURS = 24

OLDEST = Gauge(
    "payintent_processing_oldest_seconds",
    "Age of the PROCESSING payment whose time is over first, or was",
)
PENDING_OVERDUE = Gauge(
    "payintent_pending_overdue_seconds", "How long ago the first PENDING payment should have ended"
)
WEBHOOK_OVERDUE = Gauge(
    "payintent_webhook_overdue_seconds", "How long the first delivery that is due has waited"
)
MAIL_OVERDUE = Gauge(
    "payintent_mail_overdue_seconds", "How long the mail that waits longest has waited"
)
OPEN_CASES = Gauge("payintent_cases_open", "Open cases", ["kind", "provider"])
LEDGER_IMBALANCE = Gauge(
    "payintent_ledger_imbalance_accounts", "Accounts of the ledger that differ from the facts"
)
RECONCILIATIONS = Gauge(
    "payintent_reconciliation_runs", "Runs of the last day that did not match", ["status"]
)
DELIVERIES = Gauge("payintent_deliveries", "Deliveries that have not arrived", ["state"])

#: Kinds and providers of cases that are or were open: one that is over is 0, and no gap.
_OPEN_SEEN: set[tuple[str, str]] = {(kind, "none") for kind in CaseKind}


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
    """Run every loop until `stop` is set."""
    settings = service.settings
    sender = WebhookSender(settings, time.time)
    dispatcher = Dispatcher(
        DatabaseOutbox(
            database=service.database,
            encryption=service.encryption,
            id_generator=service.id_generator,
            lease_s=settings.webhook_lease_s,
        ),
        sender,
        EndpointWindows(settings.webhook_sockets_max, time.monotonic),
        settings.webhook_poll_s,
    )
    process = ProcessNote(service.cells, "payintent-worker")
    await process.begin()
    listener = asyncio.create_task(service.event_notifier.listen(dispatcher.wake))
    written = service.database, service.id_generator
    inquirers, submitters = _session_inquirers(service), _submitters(service)
    steps: list[tuple[str, float, Callable[[], Awaitable[bool]]]] = [
        ("expire", settings.expire_every_s, lambda: _expire(service)),
        ("inquire", settings.inquire_every_s, inquirers.step),
        ("refund", settings.refund_every_s, submitters.step),
        ("apply_waiting", settings.inquire_every_s, lambda: _apply_waiting(service)),
        ("chain_alarm", settings.chain_poll_s, chain_alarm(service.database, service.id_generator)),
        ("prune", settings.prune_every_s, lambda: _prune(service)),
        ("retention", settings.prune_every_s, lambda: _retain(service)),
        ("seal", settings.prune_every_s, PayerDataSealer(service.database).step),
        ("measure", settings.measure_every_s, lambda: measure(service)),
        ("ledger", _LEDGER_EVERY_S, lambda: check_ledger(service)),
        ("statements", _STATEMENTS_EVERY_S, partial(close_due_days, *written)),
        ("reconcile", settings.reconcile_every_s, lambda: reconcile(service)),
        ("reconcile_api", settings.reconcile_every_s, lambda: reconcile_movements(service)),
        ("reconcile_chains", settings.reconcile_every_s, lambda: reconcile_chains(service)),
        ("gateway_calls", EVERY_S, lambda: _write_gateway_calls(service)),
        ("count", _COUNT_EVERY_S, lambda: count_outcomes(service.database)),
        ("process", cell_processes.EVERY_S, process.step),
    ]
    if settings.smtp_host:
        steps.append(("mail", _MAIL_EVERY_S, open_mail_sender(service).step))
    loops: list[Coroutine[Any, Any, None]] = [
        run_periodically(name, step, every, stop) for name, every, step in steps
    ]
    loops += [run_watch_loop(service.watch_context, slug, stop) for slug in settings.endpoints]
    await asyncio.gather(dispatcher.run(stop), *loops)
    await inquirers.finish()
    await submitters.finish()
    await _write_gateway_calls(service)
    await process.flush()
    listener.cancel()
    await asyncio.gather(listener, return_exceptions=True)
    await sender.close()


async def run_periodically(
    name: str, step: Callable[[], Awaitable[bool]], every_s: float, stop: asyncio.Event
) -> None:
    """Repeat a step until `stop` is set: at once while it finds plenty, else every `every_s`.

    A step that fails is logged and tried again; one bad row does not end a worker.
    """
    while not stop.is_set():
        plenty = False
        try:
            plenty = await step()
        except (StorageUnavailableError, LockTimeoutError) as error:
            _log.warning("step_deferred", step=name, why=type(error).__name__)
        except Exception as error:  # noqa: BLE001 - the top level of a worker, as of a request
            STEP_FAILURES.labels(name).inc()
            _log.error("step_failed", step=name, exc_info=error)
        if not plenty:
            await wait_until_stopped(stop, every_s)


async def _expire(service: Service) -> bool:
    settings = service.settings
    limit = settings.expire_batch_max
    more = await expire_due_pending(service.database, service.id_generator, limit)
    async with service.database.transaction() as tx:
        processing = await expire_processing(
            tx, service.id_generator, limit, settings.closing_patience_s
        )
    return more or processing == limit


async def measure(service: Service) -> bool:
    """Set the metrics of what waits: payments, deliveries, cases."""
    OLDEST.set(await payments.oldest_processing_s(service.reading))
    PENDING_OVERDUE.set(await backlog.pending_overdue_s(service.reading))
    WEBHOOK_OVERDUE.set(await backlog.webhook_overdue_s(service.reading))
    MAIL_OVERDUE.set(await mails.overdue_s(service.reading))
    for state, deliveries in (await backlog.count_deliveries(service.reading)).items():
        DELIVERIES.labels(state).set(deliveries)
    runs = await reconciliation_runs.count_recent(service.reading, RECENT_HOURS)
    for status in ("differs", "failed"):
        RECONCILIATIONS.labels(status).set(runs.get(status, 0))
    cases = await backlog.count_open_cases(service.reading)
    for kind, provider in _OPEN_SEEN | cases.keys():
        _OPEN_SEEN.add((kind, provider))
        OPEN_CASES.labels(kind, provider).set(cases.get((kind, provider), 0))
    return False


async def check_ledger(service: Service) -> bool:
    """Compare the ledger with captures, refunds, disputes, cases and payouts; log what differs."""
    differences = await ledger_check.find_differences(service.reading)
    LEDGER_IMBALANCE.set(len(differences))
    for difference in differences[:_LEDGER_LOGGED_MAX]:
        _log.error(
            "ledger_differs",
            ledger_account=difference.account,
            currency=difference.currency,
            chain=difference.chain,
            ledger_minor=str(difference.ledger_minor),
            facts_minor=str(difference.facts_minor),
        )
    return False


async def reconcile(service: Service) -> bool:
    """Compare the gateways' lists that have arrived with our records."""
    settings = service.settings
    sources: list[FileSource] = []
    if settings.settlement_folder:
        sources.append(FolderSource(settings.settlement_folder))
    if settings.settlement_s3_url:
        sources.append(open_s3_source(settings))
    for source in sources:
        try:
            await take_files(service.reconciliation_context, source)
        finally:
            await source.close()
    return False


async def reconcile_movements(service: Service) -> bool:
    """Compare what gateways' reporting APIs list of the days that are over."""
    context = service.reconciliation_context
    await compare_movements(MovementComparison(service.settings, context, service.accounts))
    return False


async def reconcile_chains(service: Service) -> bool:
    """Compare what is due of the logs of our contracts with captures, refunds and the ledger."""
    settings, written = service.settings, (service.database, service.id_generator)
    context = ChainComparison(settings, *written, open_configured_reader)
    for slug in settings.endpoints:
        await compare_chain(context, slug)
    return False


async def _write_gateway_calls(service: Service) -> bool:
    await service.accounts.log.flush()
    return False


async def _apply_waiting(service: Service) -> bool:
    limit = service.settings.inquire_batch_max
    return await apply_waiting_callbacks(service.database, service.id_generator, limit) == limit


async def _prune(service: Service) -> bool:
    limit = service.settings.prune_batch_max
    keys = await idempotency.delete_old_keys(service.database, limit)
    unknown = await callbacks.delete_unmatched(
        service.database, service.settings.unknown_callback_hours, limit
    )
    if unknown:
        _log.warning("callbacks_forgotten", count=unknown)  # their sessions never appeared
    days = service.settings.callback_bodies_days
    bodies = await callbacks.prune_bodies(service.database, days, limit)
    screened = await fraud.delete_old(
        service.database, service.settings.fraud_decisions_days, limit
    )
    calls = await api_calls.delete_old(service.database, service.settings.api_calls_days, limit)
    gateway_requests = await gateway_calls.delete_old(
        service.database, service.settings.gateway_calls_days, limit
    )
    lapsed = await proposals.forget_lapsed(service.database, limit)
    outages = await endpoint_outages.delete_old(service.database, limit)
    unsent = await mails.delete_old(service.database, limit)
    if unsent:
        _log.warning("mails_forgotten", count=unsent)  # nothing sends them
    return limit in (
        keys,
        unknown,
        bodies,
        screened,
        calls,
        gateway_requests,
        lapsed,
        outages,
        unsent,
    )


async def _retain(service: Service) -> bool:
    settings = service.settings
    return await prune_step(service.database, settings.retention, settings.prune_batch_max)


def open_mail_sender(service: Service) -> MailSender:
    """Return the sender of what waits in the outbox of mail."""
    return MailSender(
        service.database,
        service.encryption,
        SmtpClient(service.settings),
        service.settings.smtp_from,
        partial(compose_receipt, service.database),
    )


def _session_inquirers(service: Service) -> LeasedTaskRunner[DueSession]:
    return LeasedTaskRunner(
        "inquire",
        service.settings.inquire_batch_max,
        lambda limit, busy: sessions.claim_due(service.database, limit, _LEASE_S, busy),
        lambda ask: ask.session.quote.account_id,
        service.session_inquirer.inquire,
    )


def _submitters(service: Service) -> LeasedTaskRunner[DueRefund]:
    return LeasedTaskRunner(
        "refund",
        service.settings.inquire_batch_max,
        lambda limit, busy: refunds.claim_due(service.database, limit, _LEASE_S, busy),
        lambda due: due.account_id,
        service.refund_sender.process,
    )
