"""What workers measure of what waits, in all cells together, and whether each cell answers."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from prometheus_client import Gauge

from payintent.domain.case import CaseKind
from payintent.log import get_logger
from payintent.service import Service
from payintent.storage import backlog, ledger_check, mails, payments, reconciliation_runs
from payintent.storage.cells import ByCell
from payintent.storage.replica import ReadDatabase

_log = get_logger("workers")
_LEDGER_LOGGED_MAX = 20
RECENT_HOURS = 24

K = TypeVar("K", bound=Hashable)

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
CELL_UP = Gauge("payintent_cell_up", "1 while what waits in a cell can be read", ["cell"])

#: Kinds and providers of cases that are or were open: one that is over is 0, and no gap.
_OPEN_SEEN: set[tuple[str, str]] = {(kind, "none") for kind in CaseKind}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """What waits in one cell."""

    oldest_s: float = 0.0
    pending_s: float = 0.0
    webhook_s: float = 0.0
    mail_s: float = 0.0
    deliveries: dict[str, int] = field(default_factory=dict[str, int])
    cases: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])


class WaitingMeasures:
    """The figures of each cell as they were last read: one that is away keeps no other waiting.

    Metrics are those of all cells together. `payintent_cell_up` says which of them are old ones.
    """

    def __init__(self, readings: ByCell[ReadDatabase]) -> None:
        self._readings = readings
        self._found: dict[int, _Waiting] = {}

    async def measure(self, cell: int) -> bool:
        """Read what waits in a cell, and set the metrics anew."""
        reading = self._readings.at(cell)
        is_up = False
        try:
            self._found[cell] = await _read(reading)
            if cell == 0:
                await _measure_reconciliations(reading)
            is_up = True
        finally:
            self._show(cell, is_up=is_up)
        self._set(list(self._found.values()))
        return False

    def _show(self, cell: int, *, is_up: bool) -> None:
        if self._readings.are_several:
            CELL_UP.labels(str(cell)).set(is_up)

    def _set(self, found: Sequence[_Waiting]) -> None:
        OLDEST.set(max(waiting.oldest_s for waiting in found))
        PENDING_OVERDUE.set(max(waiting.pending_s for waiting in found))
        WEBHOOK_OVERDUE.set(max(waiting.webhook_s for waiting in found))
        MAIL_OVERDUE.set(max(waiting.mail_s for waiting in found))
        for state, count in _sum(waiting.deliveries for waiting in found).items():
            DELIVERIES.labels(state).set(count)
        cases = _sum(waiting.cases for waiting in found)
        for kind, provider in _OPEN_SEEN | cases.keys():
            _OPEN_SEEN.add((kind, provider))
            OPEN_CASES.labels(kind, provider).set(cases[kind, provider])


class LedgerChecks:
    """How many accounts of each cell's ledger differ from its facts, as it was last seen."""

    def __init__(self, readings: ByCell[ReadDatabase]) -> None:
        self._readings = readings
        self._found: dict[int, int] = {}

    async def check(self, cell: int) -> bool:
        """Compare a cell's ledger with its facts, such as captures; log what differs."""
        differences = await ledger_check.find_differences(self._readings.at(cell))
        self._found[cell] = len(differences)
        LEDGER_IMBALANCE.set(sum(self._found.values()))
        named = {"cell": cell} if self._readings.are_several else {}
        for difference in differences[:_LEDGER_LOGGED_MAX]:
            _log.error(
                "ledger_differs",
                ledger_account=difference.account,
                currency=difference.currency,
                chain=difference.chain,
                ledger_minor=str(difference.ledger_minor),
                facts_minor=str(difference.facts_minor),
                **named,
            )
        return False


async def measure(service: Service) -> None:
    """Set the metrics of what waits in all cells."""
    measures = WaitingMeasures(service.readings)
    for cell in service.readings.numbers():
        await measures.measure(cell)


async def check_ledger(service: Service) -> None:
    """Compare the ledgers of all cells with their facts."""
    checks = LedgerChecks(service.readings)
    for cell in service.readings.numbers():
        await checks.check(cell)


async def _read(reading: ReadDatabase) -> _Waiting:
    return _Waiting(
        oldest_s=await payments.oldest_processing_s(reading),
        pending_s=await backlog.pending_overdue_s(reading),
        webhook_s=await backlog.webhook_overdue_s(reading),
        mail_s=await mails.overdue_s(reading),
        deliveries=await backlog.count_deliveries(reading),
        cases=await backlog.count_open_cases(reading),
    )


async def _measure_reconciliations(control: ReadDatabase) -> None:
    runs = await reconciliation_runs.count_recent(control, RECENT_HOURS)
    for status in ("differs", "failed"):
        RECONCILIATIONS.labels(status).set(runs.get(status, 0))


def _sum(counts: Iterable[Mapping[K, int]]) -> Counter[K]:
    total: Counter[K] = Counter()
    for each in counts:
        total.update(each)
    return total
