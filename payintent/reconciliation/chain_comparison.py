"""Once a day each contract's final logs are compared with captures, refunds and the ledger.

A piece of blocks is read first, then compared in one transaction that also moves the run on: a
worker that dies goes on after its last piece, and no request is made within a transaction.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from payintent.config import Settings
from payintent.domain.case import UNKNOWN_ORIGIN, CaseKind
from payintent.domain.errors import ChainUnavailableError
from payintent.domain.evm import ChainReader
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.rpc import WRONG_ANSWERS
from payintent.log import get_logger
from payintent.reconciliation.compare import find_differences, write_cases
from payintent.reconciliation.contract_logs import LogPiece, make_lines, name_tokens, read_piece
from payintent.reconciliation.difference_cases import check_count, make_cases
from payintent.reconciliation.receiver_balances import make_balances, read_holdings
from payintent.reconciliation.runs import SOURCE_FAILURES, failures_recorded, note_end
from payintent.storage import (
    cases,
    reconciliation,
    reconciliation_blocks,
    reconciliation_runs,
)
from payintent.storage.advisory_lock import LockLostError, hold_advisory_lock
from payintent.storage.cases import NewCase
from payintent.storage.database import Database, Tx
from payintent.storage.onchain import chains
from payintent.storage.onchain.chains import ChainRecord, TokenRecord
from payintent.storage.reconciliation import ReconciliationScope
from payintent.storage.reconciliation_blocks import BlockRun, DueContract
from payintent.storage.reconciliation_runs import ClaimedRun, NewRun, RunEnd

SOURCE = "chain"
_log = get_logger("reconciliation")


@dataclass(frozen=True, slots=True)
class ChainComparison:
    settings: Settings
    database: Database
    open_reader: Callable[[Settings, ChainRecord], RpcChainReader | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    database: Database
    reader: ChainReader
    chain: ChainRecord
    contract: DueContract
    tokens: list[TokenRecord]
    claimed: ClaimedRun


async def compare_chain(context: ChainComparison, slug: str) -> None:
    """Compare what is due of a chain's contracts, unless another worker does that now."""
    if not await reconciliation_blocks.list_due(context.database, slug):
        return
    url = context.settings.direct_url
    try:
        async with hold_advisory_lock(url, f"compare:{slug}") as lock:
            chain = await chains.get_chain(context.database, slug)
            if not lock.is_held or chain is None:
                return
            guarded = replace(context, database=context.database.guarded_by(lock.prove))
            await compare_contracts(guarded, chain)
    except (ChainUnavailableError, LockLostError, OSError) as error:
        SOURCE_FAILURES.labels(SOURCE).inc()
        _log.warning("reconciliation_source_unavailable", source=slug, why=str(error))


async def compare_contracts(context: ChainComparison, chain: ChainRecord) -> None:
    """Compare what is due of a chain's contracts; the caller sees to it that nobody else does."""
    reader = context.open_reader(context.settings, chain)
    if reader is None:
        return
    database = context.database
    try:
        tokens = await chains.list_tokens(database, chain.slug)
        for contract in await reconciliation_blocks.list_due(database, chain.slug):
            begun = await _begin(context, reader, chain, contract, tokens)
            if begun is None:
                continue
            claimed, run = begun
            work = _Work(
                database=database,
                reader=reader,
                chain=chain,
                contract=contract,
                tokens=tokens,
                claimed=claimed,
            )
            async with failures_recorded(database, claimed):
                await _run(work, run)
    finally:
        await reader.close()


async def _begin(
    context: ChainComparison,
    reader: ChainReader,
    chain: ChainRecord,
    contract: DueContract,
    tokens: list[TokenRecord],
) -> tuple[ClaimedRun, BlockRun] | None:
    """Claim the open run or a new one; None if there is nothing to compare."""
    database, run = context.database, contract.open_run
    if run is not None:
        claimed = await reconciliation_runs.claim(database, _new_run(chain, contract, run))
        return (claimed, run) if claimed.is_ours else None
    last = await reconciliation_blocks.find_last_block(database, chain.slug)
    if last is None or last < contract.next_block:
        return None
    holdings = await read_holdings(reader, tokens, contract.receiver, chain.refunders, last)
    run = BlockRun(
        run_id=database.id_generator.new_id(),
        first_block=contract.next_block,
        last_block=last,
        next_block=contract.next_block,
        differences=0,
        opened=0,
    )
    async with database.transaction() as tx:
        claimed = await reconciliation_runs.claim(tx, _new_run(chain, contract, run))
        if not claimed.is_ours:
            return None
        entered = await reconciliation_blocks.sum_ledger(tx, chain.slug, contract.receiver, last)
        balances = make_balances(holdings, entered, last)
        await reconciliation_blocks.add(tx, contract.account_id, run, balances)
    return claimed, run


def _new_run(chain: ChainRecord, contract: DueContract, run: BlockRun) -> NewRun:
    name = f"{chain.slug} blocks {run.first_block} to {run.last_block}"
    return NewRun(
        id=run.run_id,
        account_id=contract.account_id,
        source=SOURCE,
        name=name,
        sha256=hashlib.sha256(name.encode()).hexdigest(),
    )


async def _run(work: _Work, run: BlockRun) -> None:
    advanced: BlockRun | None = run
    while advanced is not None:
        piece = await read_piece(
            work.reader,
            work.contract.address,
            advanced.next_block,
            advanced.last_block,
            partial(_lacks, work, advanced),
        )
        if piece.left_out_by is not None:
            WRONG_ANSWERS.labels(work.chain.slug, "logs_left_out").inc()
            _log.warning("logs_left_out", chain=work.chain.slug, endpoint=piece.left_out_by)
        advanced = await _compare(work, advanced, piece)


async def _lacks(work: _Work, run: BlockRun, piece: LogPiece) -> bool:
    """Tell whether a piece lacks captures or refunds: its endpoint may leave logs out."""
    return await reconciliation_blocks.is_lacking(
        work.database,
        work.contract.account_id,
        (run.next_block, piece.last_block),
        make_lines(piece, work.contract.receiver, work.chain.refunders, {}, {}),
    )


async def _compare(work: _Work, run: BlockRun, piece: LogPiece) -> BlockRun | None:
    """Compare a piece, open cases and advance the run; None if it has ended or was taken over."""
    async with work.database.transaction() as tx:
        if not await reconciliation_runs.lock(tx, work.claimed):
            return None
        scope = await _load(tx, work, run, piece)
        blocks = run.next_block, piece.last_block
        differences = await find_differences(
            tx, scope, partial(reconciliation_blocks.find_missing, blocks=blocks)
        )
        check_count(differences.count)
        await reconciliation_runs.add_sums(tx, run.run_id, differences.sums)
        name = work.chain.slug
        new = make_cases(tx.id_generator, name, differences.first, is_timed=False)
        opened, _ = await write_cases(tx, new)
        run = replace(
            run,
            next_block=piece.last_block + 1,
            differences=run.differences + differences.count,
            opened=run.opened + opened,
        )
        ended = None
        if piece.last_block == run.last_block:
            run = await _check_balances(tx, work, run)
            ended = RunEnd(
                status="differs" if run.differences else "matched",
                until=piece.at,
                opened=run.opened,
            )
            await reconciliation_runs.end(tx, run.run_id, ended)
        await reconciliation_blocks.advance(tx, run)
    if ended is None:
        return run
    note_end(work.claimed, work.contract.account_id, ended.status, run.differences)
    return None


async def _load(tx: Tx, work: _Work, run: BlockRun, piece: LogPiece) -> ReconciliationScope:
    account_id, blocks = work.contract.account_id, (run.next_block, piece.last_block)
    stored = await reconciliation_blocks.list_currencies(tx, account_id, *blocks)
    currencies = name_tokens(work.tokens) | stored
    decimals = dict.fromkeys(_unknown_currencies(piece, currencies), 0)
    decimals |= {token.symbol: token.decimals for token in work.tokens}
    lines = make_lines(piece, work.contract.receiver, work.chain.refunders, currencies, decimals)
    await reconciliation.create_tables(tx)
    await reconciliation.add(tx, lines)
    await reconciliation.analyze_lines(tx)
    return ReconciliationScope(
        accounts=[account_id],
        since=piece.at,
        until=piece.at,
        decimals=decimals,
        chain=work.chain.slug,
    )


def _unknown_currencies(piece: LogPiece, currencies: dict[bytes, str]) -> set[str]:
    tokens = {log.token for log in (*piece.paid, *piece.refunded)}
    named = {currencies.get(token, f"0x{token.hex()}") for token in tokens}
    return named | set(currencies.values())


async def _check_balances(tx: Tx, work: _Work, run: BlockRun) -> BlockRun:
    """Open a case for each token that the receiver has less of than it must have."""
    balances = await reconciliation_blocks.list_balances(tx, run.run_id)
    short = [balance for balance in balances if balance.short]
    receiver = f"0x{work.contract.receiver.hex()}"
    new = [
        NewCase(
            id=tx.id_generator.new_id(),
            kind=CaseKind.RECONCILIATION,
            origin=UNKNOWN_ORIGIN,
            # The same text each day, while as much is missing: it identifies the case.
            subject=f"{work.chain.slug} receiver {receiver}: {balance.short:f} {balance.currency}"
            " less than the ledger has that came, and was neither given back nor taken out",
        )
        for balance in short
    ]
    opened = await cases.open_cases(tx, new)
    return replace(run, differences=run.differences + len(short), opened=run.opened + len(opened))
