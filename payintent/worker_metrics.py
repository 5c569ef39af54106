"""Gauges of pending work, set by workers."""

from prometheus_client import Gauge

from payintent.accounting import ledger_check_store
from payintent.cases.model import CaseKind
from payintent.mail import store as mail_store
from payintent.overview import store as overview_store
from payintent.payments import store as payment_store
from payintent.reconciliation import runs_store
from payintent.runtime.log import get_logger
from payintent.service import Service

_log = get_logger("workers")
_LEDGER_LOGGED_MAX = 20
RECENT_HOURS = 24

OLDEST_PROCESSING = Gauge(
    "payintent_processing_oldest_seconds",
    "Age of the PROCESSING payment with the earliest deadline",
)
PENDING_OVERDUE = Gauge(
    "payintent_pending_overdue_seconds",
    "Time since the deadline of the oldest overdue PENDING payment",
)
WEBHOOK_OVERDUE = Gauge(
    "payintent_webhook_overdue_seconds", "Time since the earliest due delivery became due"
)
MAIL_OVERDUE = Gauge("payintent_mail_overdue_seconds", "Age of the oldest unsent email")
OPEN_CASES = Gauge("payintent_cases_open", "Open cases", ["kind", "provider"])
OLDEST_CASE = Gauge(
    "payintent_case_oldest_seconds",
    "Age of the oldest open case, without disputes that the bank is reviewing",
    ["kind", "provider"],
)
LEDGER_IMBALANCE = Gauge(
    "payintent_ledger_imbalance_accounts", "Ledger accounts that differ from their sources"
)
RECONCILIATIONS = Gauge(
    "payintent_reconciliation_runs",
    "Reconciliation runs that found differences or failed in the last 24 hours",
    ["status"],
)
DELIVERIES = Gauge("payintent_deliveries", "Deliveries that have not succeeded", ["state"])

#: Labels of all cases seen since the process started. Gauges drop to 0 when the last case closes.
_CASE_LABELS: set[tuple[str, str]] = {(kind, "none") for kind in CaseKind}


async def measure(service: Service) -> None:
    """Update the gauges. If a query fails, no gauge is changed."""
    read_database = service.read_database
    oldest_s = await payment_store.get_oldest_processing_age_s(read_database)
    pending_s = await overview_store.get_pending_overdue_s(read_database)
    webhook_s = await overview_store.get_webhook_overdue_s(read_database)
    mail_s = await mail_store.get_oldest_age_s(read_database)
    deliveries = await overview_store.count_deliveries(read_database)
    cases = await overview_store.measure_open_cases(read_database)
    runs = await runs_store.count_recent(read_database, RECENT_HOURS)
    OLDEST_PROCESSING.set(oldest_s)
    PENDING_OVERDUE.set(pending_s)
    WEBHOOK_OVERDUE.set(webhook_s)
    MAIL_OVERDUE.set(mail_s)
    for state, count in deliveries.items():
        DELIVERIES.labels(state).set(count)
    _CASE_LABELS.update(cases)
    for kind, provider in _CASE_LABELS:
        count, oldest_s = cases.get((kind, provider), (0, 0.0))
        OPEN_CASES.labels(kind, provider).set(count)
        OLDEST_CASE.labels(kind, provider).set(oldest_s)
    for status in ("differs", "failed"):
        RECONCILIATIONS.labels(status).set(runs.get(status, 0))


async def check_ledger(service: Service) -> None:
    """Compare the ledger with its sources, such as captures, and log up to 20 differences."""
    differences = await ledger_check_store.find_differences(service.read_database)
    LEDGER_IMBALANCE.set(len(differences))
    for difference in differences[:_LEDGER_LOGGED_MAX]:
        _log.error(
            "ledger_differs",
            ledger_account=difference.account,
            currency=difference.currency,
            chain=difference.chain,
            ledger_minor=difference.ledger_minor,
            facts_minor=difference.facts_minor,
        )
