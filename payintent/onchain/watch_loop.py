"""The watch loops: one for each chain that has endpoints, in one process at a time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from prometheus_client import Counter, Gauge

from payintent.config import Settings
from payintent.domain.errors import ChainUnavailableError, LockTimeoutError, StorageUnavailableError
from payintent.domain.evm import ChainHeads, ChainReader
from payintent.evm.chain_reader import Finality, ReaderConfig, RpcChainReader, open_chain_reader
from payintent.evm.rpc import ERRORS
from payintent.log import get_logger
from payintent.onchain.contract_checks import contracts_match
from payintent.onchain.overdue_transfers import OVERDUE, report_overdue_transfers
from payintent.onchain.pending_transfers import PendingTransferScanner
from payintent.onchain.settle_refund_logs import settle_refund_logs
from payintent.onchain.token_checks import token_decimals_match
from payintent.onchain.watcher import (
    CURSOR,
    FINAL,
    HALTED,
    FinalBlockReader,
    agreed_final_block,
    wake_decidable_sessions,
)
from payintent.storage.advisory_lock import AdvisoryLock, LockLostError, hold_advisory_lock
from payintent.storage.database import Database, Executor, current_time
from payintent.storage.onchain import chain_watch, chains
from payintent.storage.onchain.chains import ChainRecord, DeployedContract, TokenRecord
from payintent.waiting import wait_until_stopped

_log = get_logger("watching")
_LOOK_S = 1.0  # how often we check whether a session or a refund waits for the chain
#: Why a chain is halted, so that no quote is made in it.
_WRONG_DECIMALS = "a token is not what is set here; doctor says which"
_WRONG_CONTRACT = "a contract is not ours, or pays to another receiver; doctor says which"
_LOOKS_WHILE_WATCHED = 3  # two may fail
_FOLLOW_S = 5.0  # how often another process's lock is tried

FAILURES = Counter("payintent_chain_failures_total", "Looks at a chain that failed", ["chain"])
HEAD = Gauge("payintent_chain_head", "The newest block that was shown", ["chain"])
LAG = Gauge("payintent_chain_lag_seconds", "Age of the last block that was read", ["chain"])


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchContext:
    settings: Settings
    database: Database


async def run_watch_loop(context: WatchContext, slug: str, stop: asyncio.Event) -> None:
    """Watch one chain until `stop` is set; while another process watches it, wait."""
    url = context.settings.direct_url
    while not stop.is_set():
        try:
            async with hold_advisory_lock(url, f"watch:{slug}") as lock:
                await _lead(context, slug, stop, lock)
        except (StorageUnavailableError, LockTimeoutError, LockLostError, OSError) as error:
            _log.warning("watch_deferred", chain=slug, why=type(error).__name__)
        await wait_until_stopped(stop, _FOLLOW_S)


async def _lead(context: WatchContext, slug: str, stop: asyncio.Event, lock: AdvisoryLock) -> None:
    """Watch a chain while the lock is held, which is proven again before every commit."""
    context = replace(context, database=context.database.guarded_by(lock.prove))
    view = _ReaderHolder(context, slug)
    next_at = 0.0
    loop = asyncio.get_running_loop()
    try:
        while lock.is_held and not stop.is_set():
            if loop.time() >= next_at:
                next_at = loop.time() + await _look(context, view)
            elif await _is_awaited(context, view):
                next_at = min(next_at, loop.time() + _poll_s(context, slug))
            await wait_until_stopped(
                stop, min(_LOOK_S, _poll_s(context, slug), next_at - loop.time())
            )
    finally:
        await view.close()
        _forget(slug)


def _forget(slug: str) -> None:
    """Drop the figures of a chain: the process that watches it now reports them."""
    for gauge in (HEAD, LAG, FINAL, CURSOR, HALTED, OVERDUE):
        gauge.remove(slug)


async def _is_awaited(context: WatchContext, view: "_ReaderHolder") -> bool:
    """Tell whether the next pass is awaited, if only to offer the chain again."""
    if await chains.is_busy(context.database, view.slug):
        return True
    return view.reader is not None and await chain_watch.is_unwatched(context.database, view.slug)


@dataclass(slots=True)
class _ReaderHolder:
    """A chain's reader, rebuilt when the operator changes the chain; None if it does not fit."""

    context: WatchContext
    slug: str
    made_for: tuple[ChainRecord, "_Offered"] | None = None
    reader: RpcChainReader | None = None

    async def open(self) -> tuple[ChainRecord, RpcChainReader] | None:
        """Return the chain and its reader, once what it offers is what the operator has set."""
        chain = await chains.get_chain(self.context.database, self.slug)
        if chain is None:
            return None
        offered = await _read_offered(self.context.database, self.slug)
        if self.made_for != (chain, offered):
            await self.close()
            self.reader = open_configured_reader(self.context.settings, chain)
            if self.reader is None:
                return None
            if misfit := await _find_misfit(self.slug, self.reader, offered):
                await self._halt(misfit, offered)
                return None
            self.made_for = (chain, offered)
        return (chain, self.reader) if self.reader else None

    async def _halt(self, why: str, offered: "_Offered") -> None:
        """Halt the chain, unless the operator has changed what it offers since it was compared.

        It takes the lock that `resume` takes too: a comparison from before a change halts nothing.
        """
        async with self.context.database.transaction() as tx:
            await chains.lock_cursor(tx, self.slug)
            if await _read_offered(tx, self.slug) == offered:
                await chains.halt(tx, self.slug, why)
                HALTED.labels(self.slug).set(1)

    async def close(self) -> None:
        if self.reader is not None:
            await self.reader.close()
        self.reader = self.made_for = None


@dataclass(frozen=True, slots=True)
class _Offered:
    """What is compared with the chain before it is watched."""

    tokens: list[TokenRecord]
    contracts: list[DeployedContract]


async def _read_offered(database: Executor, slug: str) -> _Offered:
    return _Offered(
        await chains.list_tokens(database, slug), await chains.list_contracts(database, slug)
    )


async def _find_misfit(slug: str, reader: RpcChainReader, offered: _Offered) -> str | None:
    """Say what is not as the operator has set it; None where all is."""
    if not await token_decimals_match(slug, reader, offered.tokens):
        return _WRONG_DECIMALS
    if not await contracts_match(slug, reader, offered.contracts):
        return _WRONG_CONTRACT
    return None


async def _look(context: WatchContext, view: _ReaderHolder) -> float:
    """Make one pass; returns the seconds until the next one."""
    try:
        opened = await view.open()
        if opened is None:
            return _idle_s(context.settings)
        return 0.0 if await watch_once(context, *opened) else _idle_s(context.settings)
    except (ChainUnavailableError, StorageUnavailableError, LockTimeoutError) as error:
        _log.warning("chain_away", chain=view.slug, why=str(error) or type(error).__name__)
    except LockLostError:
        raise
    except Exception as error:  # noqa: BLE001 - the top level of a worker, as of a request
        _log.error("watch_failed", chain=view.slug, exc_info=error)
    FAILURES.labels(view.slug).inc()
    return _poll_s(context, view.slug)


async def watch_once(context: WatchContext, chain: ChainRecord, reader: ChainReader) -> bool:
    """Make one pass: final blocks, pending transfers, posted transactions; then inquiries.

    True where there are more final blocks. Where the final blocks cannot be read or proven
    (ChainUnavailableError), the newest ones are still read.
    """
    database, slug = context.database, chain.slug
    watcher = FinalBlockReader(database=database, reader=reader, chain=chain)
    scanner = PendingTransferScanner(database=database, reader=reader, chain=slug)
    heads = await _leave_out_stuck(context, slug, await reader.heads())
    HEAD.labels(slug).set(max(head.latest.number for head in heads))
    away: ChainUnavailableError | None = None
    try:
        cursor = await watcher.read_final(heads)
    except ChainUnavailableError as error:
        away, cursor = error, await chains.get_cursor(database, slug)
    if cursor is None:
        return False
    if cursor.at is not None:
        LAG.labels(slug).set(_age_s(cursor.at, max(head.latest.at for head in heads)))
    if away is None and cursor.block < agreed_final_block(heads):
        return True
    await scanner.scan(cursor, heads)
    await scanner.check_posted_transactions(cursor)
    if away is None:
        await watcher.recheck_recent_blocks(cursor, heads)
    await settle_refund_logs(database, slug)
    if away is not None:
        raise away
    await report_overdue_transfers(database, chain)
    await wake_decidable_sessions(database, slug)
    if max(head.latest.number for head in heads) < cursor.block:
        return False  # a node that is late for a moment, or nothing can be read: not prolonged
    near = await _is_near_head(context, heads)
    watched_s = context.settings.chain_watched_s if near else 0.0
    await chain_watch.mark_watched(database, slug, cursor.block, watched_s)
    return False


async def _leave_out_stuck(
    context: WatchContext, slug: str, heads: Sequence[ChainHeads]
) -> Sequence[ChainHeads]:
    """Leave out endpoints that stand still while others go on: they count as away.

    Final blocks would wait for them, and all payments with these, while the chain is offered.
    """
    behind_max_s = context.settings.chain_behind_max_s
    if not behind_max_s or len(heads) == 1:
        return heads
    now = await current_time(context.database)
    moving = [head for head in heads if _age_s(head.latest.at, now) <= behind_max_s]
    if not moving:
        return heads
    for endpoint in {head.endpoint for head in heads} - {head.endpoint for head in moving}:
        ERRORS.labels(slug, endpoint, "stuck").inc()
    return moving


async def _is_near_head(context: WatchContext, heads: Sequence[ChainHeads]) -> bool:
    """Tell whether the newest block is young enough that a payment made now is seen soon."""
    behind_max_s = context.settings.chain_behind_max_s
    if not behind_max_s:
        return True
    newest = max(head.latest.at for head in heads)
    return _age_s(newest, await current_time(context.database)) <= behind_max_s


def open_configured_reader(settings: Settings, chain: ChainRecord) -> RpcChainReader | None:
    """Build the reader of a chain that has endpoints; None where its settings allow none."""
    try:
        config = ReaderConfig(
            network_id=chain.network_id,
            finality=Finality(chain.finality),
            confirmations=chain.confirmations or 0,
            instant_finality=chain.instant_finality,
            tls=settings.client_tls,
        )
        return open_chain_reader(chain.slug, settings.endpoints[chain.slug], config)
    except ValueError as error:
        _log.error("chain_not_watched", chain=chain.slug, why=str(error))
        return None


def _poll_s(context: WatchContext, slug: str) -> float:
    settings = context.settings
    return settings.chain_poll_ethereum_s if slug == "ethereum" else settings.chain_poll_s


def _idle_s(settings: Settings) -> float:
    """Return the pause while nothing waits, short enough that the chain stays watched."""
    return min(settings.chain_poll_idle_s, settings.chain_watched_s / _LOOKS_WHILE_WATCHED)


def _age_s(at: datetime, now: datetime) -> float:
    return (now - at).total_seconds()
