"""Payments that are on a chain and do not become final: an alarm, and after a day a case."""

from prometheus_client import Gauge

from payintent.domain import ids
from payintent.domain.case import CaseKind
from payintent.domain.onchain import OUTAGE_MAX
from payintent.id_generator import IdGenerator
from payintent.log import get_logger
from payintent.payments.transitions import lock_payments
from payintent.storage import cases
from payintent.storage.captures import MoneyOrigin
from payintent.storage.database import Database
from payintent.storage.onchain import pending_transfers
from payintent.storage.onchain.chains import ChainRecord
from payintent.storage.onchain.pending_transfers import OverdueTransfer

_log = get_logger("overdue")
_SHOWN_MAX = 100

OVERDUE = Gauge(
    "payintent_chain_overdue", "Payments that were seen and are not final in time", ["chain"]
)


async def report_overdue_transfers(
    database: Database, id_generator: IdGenerator, chain: ChainRecord
) -> None:
    """Tell of payments that are not final within the chain's grace; none is ever failed."""
    found = await pending_transfers.list_overdue(database, chain.slug, chain.grace_s, _SHOWN_MAX)
    OVERDUE.labels(chain.slug).set(len(found))
    for transfer in found:
        if transfer.late_s >= OUTAGE_MAX.total_seconds() and not transfer.has_case:
            session = ids.format_id(ids.SESSION, transfer.session_id)
            _log.error(
                "payment_not_final", chain=chain.slug, session=session, late_s=transfer.late_s
            )
            await _hand_over(database, id_generator, transfer)


async def _hand_over(
    database: Database, id_generator: IdGenerator, transfer: OverdueTransfer
) -> None:
    """Open a case, once; the payment goes on waiting."""
    async with database.transaction() as tx:
        locked = await lock_payments(tx, [transfer.payment_id])
        origin = MoneyOrigin(
            merchant_id=locked.payments[0].merchant_id,
            payment_id=transfer.payment_id,
            session_id=transfer.session_id,
            account_id=transfer.account_id,
            at=locked.now,
        )
        await cases.open_case(tx, id_generator.new_id(), CaseKind.RECONCILIATION, origin, None)
