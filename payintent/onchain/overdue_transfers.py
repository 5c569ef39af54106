"""Alarms for transfers that do not become final in time, and after a day a case for each."""

from prometheus_client import Gauge

from payintent.domain import ids
from payintent.domain.onchain import OUTAGE_MAX
from payintent.log import get_logger
from payintent.payments.cases import hand_over_to_operator
from payintent.storage.database import Database
from payintent.storage.onchain import pending_transfers
from payintent.storage.onchain.chains import ChainRecord

_log = get_logger("overdue")
_OVERDUE_MAX = 100

OVERDUE = Gauge(
    "payintent_chain_overdue", "Payments that were seen but are not final in time", ["chain"]
)


async def report_overdue_transfers(database: Database, chain: ChainRecord) -> None:
    """Report payments that are not final within the chain's grace time; they never fail."""
    overdue = await pending_transfers.list_overdue(
        database, chain.slug, chain.grace_s, _OVERDUE_MAX
    )
    OVERDUE.labels(chain.slug).set(len(overdue))
    for transfer in overdue:
        if transfer.late_s >= OUTAGE_MAX.total_seconds() and not transfer.has_case:
            session = ids.format_id(ids.SESSION, transfer.session_id)
            _log.error(
                "payment_not_final", chain=chain.slug, session=session, late_s=transfer.late_s
            )
            await hand_over_to_operator(database, transfer.payment_id, transfer.session_id)
