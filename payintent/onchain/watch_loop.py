"""Runs a watch loop for each configured chain, in one process at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from prometheus_client import Counter, Gauge

from payintent.cases import store as case_store
from payintent.chains import store as chain_store
from payintent.chains import watch_store as chain_watch_store
from payintent.chains.checks import (
    contracts_match,
    get_poll_s,
    open_configured_reader,
    token_decimals_match,
)
from payintent.chains.store import ChainRecord, DeployedContract, TokenRecord
from payintent.chains.watch_store import ChainWatch
from payintent.core import ids
from payintent.core.errors import ChainUnavailableError, LockTimeoutError, StorageUnavailableError
from payintent.db.database import Database, Executor, get_current_time
from payintent.db.locks import AdvisoryLock, LockLostError, hold_advisory_lock
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.port import ChainHeads
from payintent.evm.rpc import ERRORS
from payintent.onchain.deposit_watcher import DepositWatcher
from payintent.onchain.pending_transfers import (
    OVERDUE,
    PendingTransferScanner,
    report_overdue_transfers,
)
from payintent.onchain.settle_logs import settle_refund_logs
from payintent.onchain.settlement_rules import OUTAGE_MAX
from payintent.onchain.sweeps.watcher import SweepWatcher
from payintent.onchain.watcher import (
    CURSOR,
    FINAL,
    HALTED,
    FinalBlockReader,
    agreed_final_block,
)
from payintent.payment_sessions.inquire import escalate_to_operator
from payintent.payments import sessions_store as session_store
from payintent.runtime.log import get_logger
from payintent.runtime.settings import Settings
from payintent.runtime.waiting import wait_for_event

_log = get_logger("watching")
_alarm_log = get_logger("chain_alarm")
_CHECK_S = 1.0  # between checks for sessions and refunds that need the chain
_WRONG_DECIMALS = "a token has unexpected decimals; run `payintent doctor` for details"
_WRONG_CONTRACT = "a contract has unexpected code or an unexpected receiver; run `payintent doctor`"
_PASSES_WHILE_WATCHED = 3  # within `chain_watched_s`, so that two passes may fail
_LOCK_RETRY_S = 5.0
_CASES_MAX = 100  # per step: opened for each chain, and closed in total

FAILURES = Counter("payintent_chain_failures_total", "Failed passes over a chain", ["chain"])
HEAD = Gauge("payintent_chain_head", "The newest block that any endpoint reported", ["chain"])
LAG = Gauge("payintent_chain_lag_seconds", "Age of the last block that was read", ["chain"])
WATCHED = Gauge(
    "payintent_chain_watched", "1 while a chain is watched and offered to buyers", ["chain"]
)
WAITING = Gauge("payintent_chain_waiting", "Open sessions on an unwatched chain", ["chain"])
AUTOMATIC_GAS_LEFT = Gauge(
    "payintent_chain_auto_refund_gas_left",
    "Gas that automatic refunds may still use today",
    ["chain"],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchContext:
    settings: Settings
    database: Database


async def run_watch_loop(context: WatchContext, slug: str, stop: asyncio.Event) -> None:
    """Watch a chain until `stop` is set; wait while another process watches it."""
    url = context.settings.direct_url
    while not stop.is_set():
        try:
            async with hold_advisory_lock(url, f"watch:{slug}") as lock:
                await _watch_while_locked(context, slug, stop, lock)
        except (StorageUnavailableError, LockTimeoutError, LockLostError) as error:
            _log.warning("watch_deferred", chain=slug, why=type(error).__name__)
        await wait_for_event(stop, _LOCK_RETRY_S)


async def _watch_while_locked(
    context: WatchContext, slug: str, stop: asyncio.Event, lock: AdvisoryLock
) -> None:
    """Watch a chain while the lock is held. Every commit verifies the lock."""
    context = replace(context, database=context.database.make_guarded(lock.verify))
    holder = _ReaderHolder(context, slug)
    next_at, poll_s = 0.0, get_poll_s(context.settings, slug)
    loop = asyncio.get_running_loop()
    try:
        while lock.is_held and not stop.is_set():
            if loop.time() >= next_at:
                next_at = loop.time() + await _run_pass(context, holder)
            elif await _is_pass_needed(context, holder):
                next_at = min(next_at, loop.time() + poll_s)
            await wait_for_event(stop, min(_CHECK_S, poll_s, next_at - loop.time()))
    finally:
        await holder.close()
        for gauge in (HEAD, LAG, FINAL, CURSOR, HALTED, OVERDUE):
            gauge.remove(slug)  # the next process that watches the chain reports them


async def _is_pass_needed(context: WatchContext, holder: "_ReaderHolder") -> bool:
    """Return whether a session or refund needs the chain, or the chain is no longer watched."""
    if await chain_watch_store.is_busy(context.database, holder.slug):
        return True
    return holder.reader is not None and await chain_watch_store.is_unwatched(
        context.database, holder.slug
    )


@dataclass(slots=True)
class _ReaderHolder:
    """Holds a chain's reader, and rebuilds it when the operator changes the chain."""

    context: WatchContext
    slug: str
    loaded_config: tuple[ChainRecord, "_WatchedConfig"] | None = None
    reader: RpcChainReader | None = None

    async def open(self) -> tuple[ChainRecord, RpcChainReader] | None:
        """Return the chain and its reader, or None if the chain differs from its configuration."""
        chain = await chain_store.get_chain(self.context.database, self.slug)
        if chain is None:
            return None
        config = await _load_config(self.context.database, self.slug)
        if self.loaded_config != (chain, config):
            await self.close()
            self.reader = open_configured_reader(self.context.settings, chain)
            if self.reader is None:
                return None
            if difference := await _find_difference(self.slug, self.reader, config):
                await self._halt(difference, config)
                return None
            self.loaded_config = (chain, config)
        return (chain, self.reader) if self.reader else None

    async def _halt(self, why: str, config: "_WatchedConfig") -> None:
        """Halt the chain, unless the operator has changed it since the comparison.

        The cursor lock prevents a race, because `resume` also takes it.
        """
        async with self.context.database.transaction() as tx:
            await chain_store.lock_cursor(tx, self.slug)
            if await _load_config(tx, self.slug) == config:
                await chain_store.halt(tx, self.slug, why)
                HALTED.labels(self.slug).set(1)

    async def close(self) -> None:
        if self.reader is not None:
            await self.reader.close()
        self.reader = self.loaded_config = None


@dataclass(frozen=True, slots=True)
class _WatchedConfig:
    """The configuration that is compared with the chain before it is watched."""

    tokens: list[TokenRecord]
    contracts: list[DeployedContract]


async def _load_config(database: Executor, slug: str) -> _WatchedConfig:
    return _WatchedConfig(
        await chain_store.list_tokens(database, slug),
        [
            *await chain_store.list_contracts(database, slug),
            *await chain_store.list_factories(database, slug),
        ],
    )


async def _find_difference(slug: str, reader: RpcChainReader, config: _WatchedConfig) -> str | None:
    if not await token_decimals_match(slug, reader, config.tokens):
        return _WRONG_DECIMALS
    if not await contracts_match(slug, reader, config.contracts):
        return _WRONG_CONTRACT
    return None


async def _run_pass(context: WatchContext, holder: _ReaderHolder) -> float:
    """Run a pass and return the seconds until the next pass."""
    try:
        chain_and_reader = await holder.open()
        if chain_and_reader is not None and await watch_once(context, *chain_and_reader):
            return 0.0
        return _idle_s(context.settings)
    except (ChainUnavailableError, StorageUnavailableError, LockTimeoutError) as error:
        _log.warning("chain_away", chain=holder.slug, why=str(error) or type(error).__name__)
    except LockLostError:
        raise
    except Exception as error:  # noqa: BLE001 - the top level of a worker
        _log.error("watch_failed", chain=holder.slug, exc_info=error)
    FAILURES.labels(holder.slug).inc()
    return get_poll_s(context.settings, holder.slug)


async def watch_once(context: WatchContext, chain: ChainRecord, reader: RpcChainReader) -> bool:
    """Read final blocks, pending transfers and posted transactions, then wake decided sessions.

    Returns True if more final blocks remain to be read. If final blocks cannot be read or proven,
    the newest blocks are still read before `ChainUnavailableError` is raised.
    """
    database, slug = context.database, chain.slug
    watcher = FinalBlockReader(database=database, reader=reader, chain=chain)
    scanner = PendingTransferScanner(database=database, reader=reader, chain=slug)
    heads = await _drop_stuck_endpoints(context, slug, await reader.fetch_heads())
    HEAD.labels(slug).set(max(head.latest.number for head in heads))
    failure: ChainUnavailableError | None = None
    try:
        cursor = await watcher.read_final(heads)
    except ChainUnavailableError as error:
        failure, cursor = error, await chain_store.get_cursor(database, slug)
    if cursor is None:
        return False
    if cursor.at is not None:
        LAG.labels(slug).set(_age_s(cursor.at, max(head.latest.at for head in heads)))
    if failure is None and cursor.block < agreed_final_block(heads):
        return True
    deposits = DepositWatcher(database=database, reader=reader, chain=chain)
    sweeps = SweepWatcher(database=database, reader=reader, chain=chain)
    try:
        await deposits.read_deposits(cursor, heads)
        await sweeps.read_sweeps(heads)
    except ChainUnavailableError as error:
        failure = failure or error
    await scanner.scan_newest_blocks(cursor, heads)
    await scanner.check_posted_transactions(cursor)
    if failure is None:
        await watcher.recheck_recent_blocks(cursor, heads)
    await settle_refund_logs(database, slug)
    if failure is not None:
        raise failure
    await report_overdue_transfers(database, chain)
    await session_store.request_chain_inquiries(database, slug)
    if max(head.latest.number for head in heads) < cursor.block:
        return False  # the endpoints lag behind, so the chain no longer counts as watched
    is_near_head = await _is_near_head(context, heads)
    watched_s = context.settings.chain_watched_s if is_near_head else 0.0
    await chain_watch_store.mark_watched(database, slug, cursor.block, watched_s)
    return False


async def _drop_stuck_endpoints(
    context: WatchContext, slug: str, heads: Sequence[ChainHeads]
) -> Sequence[ChainHeads]:
    """Drop endpoints whose newest block is old while other endpoints advance.

    They would delay final blocks and the payments in them.
    """
    behind_max_s = context.settings.chain_behind_max_s
    if not behind_max_s or len(heads) == 1:
        return heads
    now = await get_current_time(context.database)
    advancing_heads = [head for head in heads if _age_s(head.latest.at, now) <= behind_max_s]
    if not advancing_heads:
        return heads
    for endpoint in {head.endpoint for head in heads} - {head.endpoint for head in advancing_heads}:
        ERRORS.labels(slug, endpoint, "stuck").inc()
    return advancing_heads


async def _is_near_head(context: WatchContext, heads: Sequence[ChainHeads]) -> bool:
    """Return whether the newest block is recent enough for new payments to be seen soon."""
    behind_max_s = context.settings.chain_behind_max_s
    if not behind_max_s:
        return True
    newest = max(head.latest.at for head in heads)
    return _age_s(newest, await get_current_time(context.database)) <= behind_max_s


def _idle_s(settings: Settings) -> float:
    """Return the idle delay, which is short enough for the chain to stay watched."""
    return min(settings.chain_poll_idle_s, settings.chain_watched_s / _PASSES_WHILE_WATCHED)


def _age_s(at: datetime, now: datetime) -> float:
    return (now - at).total_seconds()


def make_chain_alarm(database: Database) -> Callable[[], Awaitable[bool]]:
    """Return a step that reports unwatched chains, and opens and closes cases for their payments.

    The step returns whether more cases remain to be opened or closed.
    """
    was_watched: dict[str, bool] = {}

    async def step() -> bool:
        has_more = False
        for watch in await chain_watch_store.list_watches(database):
            _report_watch(watch, was_watched.get(watch.chain))
            was_watched[watch.chain] = watch.watched
            if not watch.watched:
                has_more |= await _open_stranded_cases(database, watch.chain)
        await _report_gas(database)
        return await _close_decided_cases(database) or has_more

    return step


def _report_watch(watch: ChainWatch, was_watched: bool | None) -> None:
    WATCHED.labels(watch.chain).set(watch.watched)
    WAITING.labels(watch.chain).set(0 if watch.watched else watch.sessions)
    if watch.watched and was_watched is False:
        _alarm_log.info("chain_watched", chain=watch.chain)
    if not watch.watched and was_watched is not False:
        _alarm_log.error("chain_unwatched", chain=watch.chain, waiting=watch.sessions)


async def _report_gas(database: Database) -> None:
    for chain, gas_left in (await chain_watch_store.list_remaining_gas(database)).items():
        if gas_left is None:
            AUTOMATIC_GAS_LEFT.remove(chain)
        else:
            AUTOMATIC_GAS_LEFT.labels(chain).set(gas_left)


async def _open_stranded_cases(database: Database, chain: str) -> bool:
    stranded_payments = await chain_watch_store.list_stranded(
        database, chain, OUTAGE_MAX, _CASES_MAX
    )
    for session in stranded_payments:
        await escalate_to_operator(database, session.payment_id, session.session_id)
        session_id = ids.format_id(ids.SESSION, session.session_id)
        _alarm_log.error("payment_stranded", chain=chain, session=session_id)
    return len(stranded_payments) == _CASES_MAX


async def _close_decided_cases(database: Database) -> bool:
    closed_count = await case_store.dismiss_stranded_cases(database, _CASES_MAX)
    if closed_count:
        _alarm_log.info("stranded_cases_closed", cases=closed_count)
    return closed_count == _CASES_MAX
