"""The periodic steps of workers, and the runners of session inquiries and refunds."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from payintent.checkout.receipt_mail import compose_receipt
from payintent.config import Settings
from payintent.log import get_logger
from payintent.mail.send_due import MailSender
from payintent.mail.smtp_client import SmtpClient
from payintent.onchain.chain_alarm import chain_alarm
from payintent.onchain.watch_loop import open_configured_reader
from payintent.payments.close_statements import close_due_days
from payintent.payments.count_outcomes import count_outcomes
from payintent.payments.expire import expire_due_pending, expire_processing
from payintent.payments.gateway_calls import EVERY_S
from payintent.payments.leased_tasks import LeasedTaskRunner
from payintent.payments.receive_callback import apply_waiting_callbacks
from payintent.payments.retention import prune_step
from payintent.payments.seal_payer_data import PayerDataSealer
from payintent.reconciliation.chain_comparison import ChainComparison, compare_chain
from payintent.reconciliation.intake import compare_new_files
from payintent.reconciliation.movements import MovementComparison, compare_movements
from payintent.reconciliation.s3_source import open_s3_source
from payintent.reconciliation.sources import FileSource, FolderSource
from payintent.service import Service
from payintent.storage import (
    api_calls,
    callbacks,
    endpoint_outages,
    fraud,
    gateway_calls,
    idempotency,
    mails,
    proposals,
    refunds,
    sessions,
)
from payintent.storage.database import Database
from payintent.storage.refunds import DueRefund
from payintent.storage.sessions import DueSession
from payintent.worker_metrics import check_ledger, measure

_log = get_logger("workers")
_LEASE_S = 60.0  # of a claimed session or refund; a gateway call takes at most 15 s
_COUNT_EVERY_S = 2.0  # figures of the console are at most this old, plus `SETTLED_S`
_MAIL_EVERY_S = 5.0
_LEDGER_EVERY_S = 3600.0
_STATEMENTS_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class PeriodicStep:
    """A step to run every `every_s`, or again at once if it returns True."""

    name: str
    every_s: float
    step: Callable[[], Awaitable[bool | None]]


def periodic_steps(service: Service) -> Sequence[PeriodicStep]:
    database, settings = service.database, service.settings
    steps = [
        PeriodicStep("expire", settings.expire_every_s, partial(expire, database, settings)),
        PeriodicStep(
            "apply_waiting", settings.inquire_every_s, partial(_apply_waiting, database, settings)
        ),
        PeriodicStep("prune", settings.prune_every_s, partial(prune, database, settings)),
        PeriodicStep(
            "retention", settings.prune_every_s, partial(_apply_retention, database, settings)
        ),
        PeriodicStep("seal", settings.prune_every_s, PayerDataSealer(database).step),
        PeriodicStep("measure", settings.measure_every_s, partial(measure, service)),
        PeriodicStep("ledger", _LEDGER_EVERY_S, partial(check_ledger, service)),
        PeriodicStep("statements", _STATEMENTS_EVERY_S, partial(close_due_days, database)),
        PeriodicStep("count", _COUNT_EVERY_S, partial(count_outcomes, database)),
        PeriodicStep("chain_alarm", settings.chain_poll_s, chain_alarm(database)),
        PeriodicStep("reconcile", settings.reconcile_every_s, partial(reconcile, service)),
        PeriodicStep(
            "reconcile_api", settings.reconcile_every_s, partial(reconcile_movements, service)
        ),
        PeriodicStep(
            "reconcile_chains", settings.reconcile_every_s, partial(reconcile_chains, service)
        ),
        PeriodicStep("gateway_calls", EVERY_S, service.accounts.log.flush),
    ]
    if settings.sends_mail:
        mail = open_mail_sender(service, SmtpClient(settings))
        steps.append(PeriodicStep("mail", _MAIL_EVERY_S, mail.step))
    return steps


async def expire(database: Database, settings: Settings) -> bool:
    """Expire a batch of overdue payments; return True if there may be more."""
    limit = settings.expire_batch_max
    has_more = await expire_due_pending(database, limit)
    async with database.transaction() as tx:
        processing = await expire_processing(tx, limit, settings.closing_patience_s)
    return has_more or processing == limit


async def prune(database: Database, settings: Settings) -> bool:
    """Delete a batch of old rows from each table; return True if there may be more."""
    limit = settings.prune_batch_max
    keys = await idempotency.delete_old_keys(database, limit)
    unknown = await callbacks.delete_unmatched(database, settings.unknown_callback_hours, limit)
    if unknown:
        _log.warning("callbacks_forgotten", count=unknown)  # their sessions were never stored
    unsent = await mails.delete_old(database, limit)
    if unsent:
        _log.warning("mails_forgotten", count=unsent)  # no mail server is configured
    return limit in (
        keys,
        unknown,
        unsent,
        await callbacks.prune_bodies(database, settings.callback_bodies_days, limit),
        await fraud.delete_old(database, settings.fraud_decisions_days, limit),
        await api_calls.delete_old(database, settings.api_calls_days, limit),
        await gateway_calls.delete_old(database, settings.gateway_calls_days, limit),
        await proposals.forget_lapsed(database, limit),
        await endpoint_outages.delete_old(database, limit),
    )


async def reconcile(service: Service) -> None:
    """Compare the settlement files that gateways have delivered with our records."""
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
    """Compare the past days with the reporting APIs of gateways."""
    context = service.reconciliation_context
    await compare_movements(MovementComparison(service.settings, context, service.accounts))


async def reconcile_chains(service: Service) -> None:
    """Compare the event logs of our contracts with captures, refunds and the ledger."""
    settings = service.settings
    context = ChainComparison(settings, service.database, open_configured_reader)
    for slug in settings.endpoints:
        await compare_chain(context, slug)


def open_mail_sender(service: Service, smtp: SmtpClient) -> MailSender:
    return MailSender(
        service.database,
        service.encryption,
        smtp,
        service.settings.smtp_from,
        partial(compose_receipt, service.database),
    )


def session_inquirers(service: Service) -> LeasedTaskRunner[DueSession]:
    """Return the runner that queries gateways about due sessions."""
    return LeasedTaskRunner(
        "inquire",
        service.settings.inquire_batch_max,
        lambda limit, busy: sessions.claim_due(service.database, limit, _LEASE_S, busy),
        lambda due: due.session.quote.account_id,
        service.session_inquirer.inquire,
    )


def refund_submitters(service: Service) -> LeasedTaskRunner[DueRefund]:
    """Return the runner that sends due refunds to their gateways."""
    return LeasedTaskRunner(
        "refund",
        service.settings.inquire_batch_max,
        lambda limit, busy: refunds.claim_due(service.database, limit, _LEASE_S, busy),
        lambda due: due.account_id,
        service.refund_sender.process,
    )


async def _apply_waiting(database: Database, settings: Settings) -> bool:
    limit = settings.inquire_batch_max
    return await apply_waiting_callbacks(database, limit) == limit


async def _apply_retention(database: Database, settings: Settings) -> bool:
    return await prune_step(database, settings.retention, settings.prune_batch_max)
