"""Alarms for chains that are not watched: immediately, and after a day a case for each payment.

A case closes automatically once the chain's blocks have ended the payment.
"""

from collections.abc import Awaitable, Callable

from prometheus_client import Gauge

from payintent.domain import ids
from payintent.domain.onchain import OUTAGE_MAX
from payintent.log import get_logger
from payintent.payments.cases import hand_over_to_operator
from payintent.storage import cases
from payintent.storage.database import Database
from payintent.storage.onchain import chain_gas, chain_watch
from payintent.storage.onchain.chain_watch import ChainWatch

_CASES_MAX = 100  # opened per chain, or closed, per step

WATCHED = Gauge("payintent_chain_watched", "1 while a chain is watched, and so offered", ["chain"])
WAITING = Gauge("payintent_chain_waiting", "Sessions of a chain that is not watched", ["chain"])
AUTOMATIC_GAS_LEFT = Gauge(
    "payintent_chain_auto_refund_gas_left",
    "Gas of the day left for automatic refunds",
    ["chain"],
)
_log = get_logger("chain_alarm")


def chain_alarm(database: Database) -> Callable[[], Awaitable[bool]]:
    """Return a step that reports changes, opens cases and closes decided cases.

    The step returns whether more cases remain to be opened or closed.
    """
    watched_before: dict[str, bool] = {}

    async def step() -> bool:
        has_more = False
        for watch in await chain_watch.list_watches(database):
            _report_watch(watch, watched_before.get(watch.chain))
            watched_before[watch.chain] = watch.watched
            if not watch.watched:
                has_more |= await _open_cases(database, watch.chain)
        await _report_gas(database)
        return await _close_cases(database) or has_more

    return step


def _report_watch(watch: ChainWatch, watched_before: bool | None) -> None:
    WATCHED.labels(watch.chain).set(watch.watched)
    WAITING.labels(watch.chain).set(0 if watch.watched else watch.sessions)
    if watch.watched and watched_before is False:
        _log.info("chain_watched", chain=watch.chain)
    if not watch.watched and watched_before is not False:
        _log.error("chain_unwatched", chain=watch.chain, waiting=watch.sessions)


async def _report_gas(database: Database) -> None:
    for chain, gas_left in (await chain_gas.list_left(database)).items():
        if gas_left is None:
            AUTOMATIC_GAS_LEFT.remove(chain)
        else:
            AUTOMATIC_GAS_LEFT.labels(chain).set(gas_left)


async def _open_cases(database: Database, chain: str) -> bool:
    stranded = await chain_watch.list_stranded(database, chain, OUTAGE_MAX, _CASES_MAX)
    for session in stranded:
        await hand_over_to_operator(database, session.payment_id, session.session_id)
        session_id = ids.format_id(ids.SESSION, session.session_id)
        _log.error("payment_stranded", chain=chain, session=session_id)
    return len(stranded) == _CASES_MAX


async def _close_cases(database: Database) -> bool:
    closed_count = await cases.dismiss_decided(database, _CASES_MAX)
    if closed_count:
        _log.info("stranded_cases_closed", cases=closed_count)
    return closed_count == _CASES_MAX
