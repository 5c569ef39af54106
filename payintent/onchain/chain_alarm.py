"""Alarms of chains that are not watched: at once, and after a day a case for each payment.

The case closes by itself when the payment has ended by what the chain's blocks say.
"""

from collections.abc import Awaitable, Callable

from payintent.domain import ids
from payintent.domain.onchain import OUTAGE_MAX
from payintent.log import get_logger
from payintent.onchain.chain_gauge import ChainGauge
from payintent.payments.cases import hand_over_to_operator
from payintent.storage import cases
from payintent.storage.database import Database
from payintent.storage.onchain import chain_gas, chain_watch
from payintent.storage.onchain.chain_watch import ChainWatch

_CASES_MAX = 100  # opened for one chain, or closed, in one step

WATCHED = ChainGauge("payintent_chain_watched", "1 while a chain is watched, and so offered", min)
WAITING = ChainGauge(
    "payintent_chain_waiting", "Sessions that wait for a chain that is not watched", sum
)
AUTOMATIC_GAS_LEFT = ChainGauge(
    "payintent_chain_auto_refund_gas_left", "Gas of the day left for automatic refunds", min
)
_log = get_logger("chain_alarm")


def chain_alarm(database: Database) -> Callable[[], Awaitable[bool]]:
    """Return a step of a cell: it reports each change, opens cases and closes decided ones.

    The step returns whether there are more cases to open or to close.
    """
    watched_before: dict[str, bool] = {}

    async def step() -> bool:
        plenty = False
        for watch in await chain_watch.list_watches(database):
            _report(watch, watched_before.get(watch.chain), database.id_generator.cell)
            watched_before[watch.chain] = watch.watched
            if not watch.watched:
                plenty |= await _open_cases(database, watch.chain)
        await _report_gas(database)
        return await _close_cases(database) or plenty

    return step


def _report(watch: ChainWatch, before: bool | None, cell: int) -> None:
    WATCHED.set(watch.chain, cell, watch.watched)
    WAITING.set(watch.chain, cell, 0 if watch.watched else watch.sessions)
    named = {"cell": cell} if cell else {}
    if watch.watched and before is False:
        _log.info("chain_watched", chain=watch.chain, **named)
    if not watch.watched and before is not False:
        _log.error("chain_unwatched", chain=watch.chain, waiting=watch.sessions, **named)


async def _report_gas(database: Database) -> None:
    cell = database.id_generator.cell
    for chain, gas_left in (await chain_gas.list_left(database)).items():
        if gas_left is None:
            AUTOMATIC_GAS_LEFT.forget(chain, cell)
        else:
            AUTOMATIC_GAS_LEFT.set(chain, cell, gas_left)


async def _open_cases(database: Database, chain: str) -> bool:
    stranded = await chain_watch.list_stranded(database, chain, OUTAGE_MAX, _CASES_MAX)
    for session in stranded:
        await hand_over_to_operator(database, session.payment_id, session.session_id)
        session_id = ids.format_id(ids.SESSION, session.session_id)
        _log.error("payment_stranded", chain=chain, session=session_id)
    return len(stranded) == _CASES_MAX


async def _close_cases(database: Database) -> bool:
    closed = await cases.dismiss_decided(database, _CASES_MAX)
    if closed:
        _log.info("stranded_cases_closed", cases=closed)
    return closed == _CASES_MAX
