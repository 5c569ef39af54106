"""Alarms of chains that are not watched: at once, and after a day a case for each payment.

The case closes by itself when the payment has ended by what the chain's blocks say.
"""

from collections.abc import Awaitable, Callable

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
from payintent.storage.onchain import chain_watch
from payintent.storage.onchain.chain_watch import ChainWatch, Stranded

_CASES_MAX = 100  # opened for one chain, or closed, in one step

WATCHED = Gauge("payintent_chain_watched", "1 while a chain is watched, and so offered", ["chain"])
WAITING = Gauge(
    "payintent_chain_waiting", "Sessions that wait for a chain that is not watched", ["chain"]
)
_log = get_logger("chain_alarm")


def chain_alarm(database: Database, id_generator: IdGenerator) -> Callable[[], Awaitable[bool]]:
    """Make a worker's step: it reports each change, opens cases and closes those that are decided.

    The step gives whether there are more cases to open or to close.
    """
    watched_before: dict[str, bool] = {}

    async def step() -> bool:
        plenty = False
        for watch in await chain_watch.list_watches(database):
            _report(watch, watched_before.get(watch.chain))
            watched_before[watch.chain] = watch.watched
            if not watch.watched:
                plenty |= await _open_cases(database, id_generator, watch.chain)
        return await _close_cases(database) or plenty

    return step


def _report(watch: ChainWatch, before: bool | None) -> None:
    WATCHED.labels(watch.chain).set(watch.watched)
    WAITING.labels(watch.chain).set(0 if watch.watched else watch.sessions)
    if watch.watched and before is False:
        _log.info("chain_watched", chain=watch.chain)
    if not watch.watched and before is not False:
        _log.error("chain_unwatched", chain=watch.chain, waiting=watch.sessions)


async def _open_cases(database: Database, id_generator: IdGenerator, chain: str) -> bool:
    stranded = await chain_watch.list_stranded(database, chain, OUTAGE_MAX, _CASES_MAX)
    for session in stranded:
        await _open_case(database, id_generator, chain, session)
    return len(stranded) == _CASES_MAX


async def _close_cases(database: Database) -> bool:
    closed = await chain_watch.close_decided_cases(database, _CASES_MAX)
    if closed:
        _log.info("stranded_cases_closed", cases=closed)
    return closed == _CASES_MAX


async def _open_case(
    database: Database, id_generator: IdGenerator, chain: str, stranded: Stranded
) -> None:
    """Open a case, once; the payment goes on waiting for its chain."""
    async with database.transaction() as tx:
        locked = await lock_payments(tx, [stranded.payment_id])
        origin = MoneyOrigin(
            merchant_id=locked.payments[0].merchant_id,
            payment_id=stranded.payment_id,
            session_id=stranded.session_id,
            account_id=stranded.account_id,
            at=locked.now,
        )
        await cases.open_case(tx, id_generator.new_id(), CaseKind.RECONCILIATION, origin, None)
    session = ids.format_id(ids.SESSION, stranded.session_id)
    _log.error("payment_stranded", chain=chain, session=session)
