"""The background loops of the worker: webhook delivery, periodic steps and chain watchers."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

# Imported before processes are forked; otherwise, the service would import them on first use.
import payintent.payment_sessions.inquire  # pyright: ignore[reportUnusedImport]
import payintent.refunds.send  # noqa: F401  # pyright: ignore[reportUnusedImport]
from payintent.accounting.close_statements import close_due_days
from payintent.callbacks import store as callback_store
from payintent.callbacks.receive import apply_deferred_callbacks
from payintent.chains.checks import open_configured_reader
from payintent.checkout.buyer_mails import (
    compose_payment_link,
    compose_receipt,
    compose_refund_address,
)
from payintent.core.errors import LockTimeoutError, StorageUnavailableError
from payintent.db.database import Database
from payintent.db.locks import STEP_FAILURES, LeasedTaskRunner
from payintent.fraud import store as fraud_store
from payintent.gateway_accounts import calls as gateway_calls
from payintent.gateway_accounts.calls import FLUSH_EVERY_S
from payintent.mail import store as mail_store
from payintent.mail.message import MailKind
from payintent.mail.send import MailSender
from payintent.mail.smtp_client import SmtpClient
from payintent.merchants import access_store
from payintent.onchain.sweeps.sweeper import sweep_deposits
from payintent.onchain.watch_loop import make_chain_alarm, run_watch_loop
from payintent.operators import proposals_store
from payintent.overview.hourly_figures import count_outcomes
from payintent.payment_sessions.expire import expire_processing
from payintent.payments import idempotency_store
from payintent.payments import sessions_store as session_store
from payintent.payments.expire import expire_due_pending
from payintent.payments.sessions_store import DueSession
from payintent.privacy.retention_store import prune_step
from payintent.privacy.seals_store import PayerDataSealer
from payintent.reconciliation.chain_comparison import ChainComparison, compare_chain
from payintent.reconciliation.movements import MovementComparison, compare_movements
from payintent.reconciliation.runs import compare_new_files
from payintent.reconciliation.sources import FileSource, FolderSource, open_s3_source
from payintent.refunds import store as refund_store
from payintent.refunds.address_links import RefundAddressLinks
from payintent.refunds.store import DueRefund
from payintent.runtime import tracing
from payintent.runtime.log import get_logger
from payintent.runtime.settings import Settings
from payintent.runtime.tracing import start_tracing
from payintent.runtime.waiting import (
    finish_unless_stopped,
    raise_file_limit,
    tune_garbage_collector,
    wait_for_event,
)
from payintent.service import Service, open_worker_service
from payintent.webhooks import endpoints_store as endpoint_store
from payintent.webhooks.dispatcher import DatabaseOutbox, Dispatcher
from payintent.webhooks.sender import WebhookSender
from payintent.webhooks.windows import EndpointWindows
from payintent.worker_metrics import check_ledger, measure

_log = get_logger("workers")
_LEASE_S = 60.0  # of claimed sessions and refunds; longer than any gateway call
_COUNT_EVERY_S = 2.0  # console figures lag by at most this interval plus `SETTLING_DELAY_S`
_MAIL_EVERY_S = 5.0
_LEDGER_EVERY_S = 3600.0
_STATEMENTS_EVERY_S = 60.0
_SWEEP_EVERY_S = 15.0


_StepFunction = Callable[[], Awaitable[bool | None]]


@dataclass(frozen=True, slots=True)
class PeriodicStep:
    """A step that runs every `interval_s` seconds, or again immediately if it returns True."""

    name: str
    interval_s: float
    step: _StepFunction


def make_periodic_steps(service: Service) -> Sequence[PeriodicStep]:
    database, settings = service.database, service.settings
    reconcile_s, prune_s = settings.reconcile_every_s, settings.prune_every_s
    steps: list[tuple[str, float, _StepFunction]] = [
        ("expire", settings.expire_every_s, partial(expire, database, settings)),
        ("apply_waiting", settings.inquire_every_s, partial(_apply_deferred, database, settings)),
        ("prune", prune_s, partial(prune, database, settings)),
        ("retention", prune_s, partial(_apply_retention, database, settings)),
        ("seal", prune_s, PayerDataSealer(database).step),
        ("measure", settings.measure_every_s, partial(measure, service)),
        ("ledger", _LEDGER_EVERY_S, partial(check_ledger, service)),
        ("statements", _STATEMENTS_EVERY_S, partial(close_due_days, database)),
        ("count", _COUNT_EVERY_S, partial(count_outcomes, database)),
        ("chain_alarm", settings.chain_poll_s, make_chain_alarm(database)),
        ("reconcile", reconcile_s, partial(reconcile, service)),
        ("reconcile_api", reconcile_s, partial(reconcile_movements, service)),
        ("reconcile_chains", reconcile_s, partial(reconcile_chains, service)),
        ("sweep", _SWEEP_EVERY_S, partial(_sweep_deposits, service)),
        ("gateway_calls", FLUSH_EVERY_S, service.accounts.log.flush),
    ]
    if settings.sends_mail:
        mail = open_mail_sender(service, SmtpClient(settings))
        steps.append(("mail", _MAIL_EVERY_S, mail.step))
    return [PeriodicStep(*step) for step in steps]


async def expire(database: Database, settings: Settings) -> bool:
    """Expire a batch of overdue payments; return True if more may remain."""
    limit = settings.expire_batch_max
    has_more = await expire_due_pending(database, limit)
    async with database.transaction() as tx:
        expired_processing = await expire_processing(tx, limit, settings.closing_patience_s)
    return has_more or expired_processing == limit


async def prune(database: Database, settings: Settings) -> bool:
    """Delete a batch of old rows from each table; return True if more may remain."""
    limit = settings.prune_batch_max
    key_count = await idempotency_store.delete_old_keys(database, limit)
    unmatched_count = await callback_store.delete_unmatched(
        database, settings.unknown_callback_hours, limit
    )
    if unmatched_count:
        # Their sessions were never stored.
        _log.warning("callbacks_forgotten", count=unmatched_count)
    unsent_count = await mail_store.delete_old_mail(database, limit)
    if unsent_count:
        # The usual cause is that no mail server is configured.
        _log.warning("mails_forgotten", count=unsent_count)
    return limit in (
        key_count,
        unmatched_count,
        unsent_count,
        await callback_store.prune_bodies(database, settings.callback_bodies_days, limit),
        await fraud_store.delete_old(database, settings.fraud_decisions_days, limit),
        await access_store.delete_old_calls(database, settings.api_calls_days, limit),
        await gateway_calls.delete_old_calls(database, settings.gateway_calls_days, limit),
        await proposals_store.delete_lapsed_arguments(database, limit),
        await endpoint_store.delete_old(database, limit),
    )


async def reconcile(service: Service) -> None:
    """Compare new settlement files from gateways with our records."""
    settings = service.settings
    sources: list[FileSource] = []
    if settings.settlement_folder:
        sources.append(FolderSource(settings.settlement_folder))
    if settings.settlement_s3_url:
        sources.append(open_s3_source(settings))
    for source in sources:
        try:
            await compare_new_files(service.reconciliation_context, source)
        finally:
            await source.close()


async def reconcile_movements(service: Service) -> None:
    """Compare our records of recent days with the gateways' reporting APIs."""
    context = service.reconciliation_context
    await compare_movements(MovementComparison(service.settings, context, service.accounts))


async def reconcile_chains(service: Service) -> None:
    """Compare the event logs of our contracts with captures, refunds and the ledger."""
    settings = service.settings
    context = ChainComparison(settings, service.database, open_configured_reader)
    for slug in settings.endpoints:
        await compare_chain(context, slug)


async def _sweep_deposits(service: Service) -> bool:
    signers = {slug: sender.signer for slug, sender in service.refund_senders.items()}
    return await sweep_deposits(service.settings, service.database, signers)


def open_mail_sender(service: Service, smtp: SmtpClient) -> MailSender:
    return MailSender(
        service.database,
        service.encryption,
        smtp,
        service.settings.smtp_from,
        {
            MailKind.RECEIPT: partial(compose_receipt, service.database),
            MailKind.REFUND_ADDRESS: partial(
                compose_refund_address,
                service.database,
                RefundAddressLinks(service.encryption, service.settings.pages_base),
            ),
        },
        {
            MailKind.PAYMENT_LINK: partial(
                compose_payment_link, service.database, service.settings.pages_base
            ),
        },
    )


def make_inquiry_runner(service: Service) -> LeasedTaskRunner[DueSession]:
    """Return the runner that queries gateways about due sessions."""
    return LeasedTaskRunner(
        "inquire",
        service.settings.inquire_batch_max,
        lambda limit, busy: session_store.claim_due(service.database, limit, _LEASE_S, busy),
        lambda due_item: due_item.session.quote.account_id,
        service.session_inquirer.inquire,
    )


def make_refund_runner(service: Service) -> LeasedTaskRunner[DueRefund]:
    """Return the runner that sends due refunds to their gateways."""
    return LeasedTaskRunner(
        "refund",
        service.settings.inquire_batch_max,
        lambda limit, busy: refund_store.claim_due(service.database, limit, _LEASE_S, busy),
        lambda due_item: due_item.account_id,
        service.refund_sender.process,
    )


async def _apply_deferred(database: Database, settings: Settings) -> bool:
    limit = settings.inquire_batch_max
    return await apply_deferred_callbacks(database, limit) == limit


async def _apply_retention(database: Database, settings: Settings) -> bool:
    return await prune_step(database, settings.retention, settings.prune_batch_max)


async def run_worker(settings: Settings, on_started: Callable[[], None] | None = None) -> None:
    """Run all loops until SIGTERM or SIGINT, then finish the tasks in progress."""
    tune_garbage_collector()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
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
    windows = EndpointWindows(raise_file_limit(settings.webhook_sockets_max), time.monotonic)
    outbox = DatabaseOutbox(
        database=service.database,
        encryption=service.encryption,
        lease_s=settings.webhook_lease_s,
    )
    dispatcher = Dispatcher(outbox, sender, windows, settings.webhook_poll_s)
    listener = asyncio.create_task(service.event_notifier.listen(dispatcher.wake))
    inquiry_runner, refund_runner = make_inquiry_runner(service), make_refund_runner(service)
    steps = (
        PeriodicStep("inquire", settings.inquire_every_s, inquiry_runner.step),
        PeriodicStep("refund", settings.refund_every_s, refund_runner.step),
        *make_periodic_steps(service),
    )
    await asyncio.gather(
        dispatcher.run(stop),
        *(run_periodically(step, stop) for step in steps),
        *(run_watch_loop(service.watch_context, slug, stop) for slug in settings.endpoints),
    )
    await inquiry_runner.finish()
    await refund_runner.finish()
    await service.accounts.log.flush()
    listener.cancel()
    await asyncio.gather(listener, return_exceptions=True)
    await sender.close()


async def run_periodically(periodic: PeriodicStep, stop: asyncio.Event) -> None:
    """Repeat a step until `stop` is set.

    A failure is logged and the step is retried, so that an invalid row cannot stop the worker.
    """
    while not stop.is_set():
        has_more: bool | None = False
        try:
            has_more = await periodic.step()
        except (StorageUnavailableError, LockTimeoutError) as error:
            _log.warning("step_deferred", step=periodic.name, why=type(error).__name__)
        except Exception as error:  # noqa: BLE001 - top level of a worker loop
            STEP_FAILURES.labels(periodic.name).inc()
            _log.error("step_failed", step=periodic.name, exc_info=error)
        if not has_more:
            await wait_for_event(stop, periodic.interval_s)
