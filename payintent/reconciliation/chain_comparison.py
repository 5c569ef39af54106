"""Compare each contract and deposit factory with captures, refunds and the ledger, once a day.

A contract's final logs are compared in block ranges, and the balances of a factory's addresses in
batches. A range or batch is read before its transaction begins, because no transaction may wait for
the network. The transaction compares it and advances the run, so a restarted worker resumes after
the last comparison.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Protocol

from payintent.cases import store as case_store
from payintent.cases.model import CaseKind
from payintent.cases.store import NewCase
from payintent.chains import store as chain_store
from payintent.chains.store import ChainRecord, TokenRecord
from payintent.core.errors import ChainUnavailableError
from payintent.core.money import EXACT
from payintent.db.database import Database, Tx
from payintent.db.locks import LockLostError, hold_advisory_lock
from payintent.evm.abi import to_hex
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.rpc import WRONG_RESPONSES
from payintent.payments.captures_store import UNKNOWN_ORIGIN
from payintent.reconciliation import addresses_store, blocks_store, compare_store, runs_store
from payintent.reconciliation.blocks_store import BlockRun, DueContract, LedgerSum, ReceiverBalance
from payintent.reconciliation.compare import (
    check_difference_count,
    find_differences,
    make_cases,
    open_cases,
)
from payintent.reconciliation.compare_store import ReconciliationScope
from payintent.reconciliation.contract_logs import (
    LogRange,
    make_lines,
    map_token_symbols,
    read_range,
)
from payintent.reconciliation.deposit_comparison import AddressReader
from payintent.reconciliation.runs import SOURCE_FAILURES, record_failures, report_end
from payintent.reconciliation.runs_store import ClaimedRun, NewRun, RunOutcome
from payintent.runtime.log import get_logger
from payintent.runtime.settings import Settings

SOURCE = "chain"
_log = get_logger("reconciliation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """A token's balances as decimal amounts; None if no endpoint returned the balance."""

    token: TokenRecord
    receiver: str | None
    refund_senders: str | None


async def read_holdings(
    reader: RpcChainReader,
    tokens: Sequence[TokenRecord],
    receiver: bytes,
    refund_senders: Sequence[bytes],
    block: int,
) -> list[Holdings]:
    """Read the balances of each token at a block, for the receiver and the refund senders.

    Balances that are more than a few hours old are available only from archive nodes.
    """
    other_senders = [address for address in dict.fromkeys(refund_senders) if address != receiver]
    return [
        Holdings(
            token=token,
            receiver=await _sum_balances(reader, token.address, token.decimals, [receiver], block),
            refund_senders=await _sum_balances(
                reader, token.address, token.decimals, other_senders, block
            ),
        )
        for token in tokens
        if token.address is not None
    ]


def make_balances(
    holdings: Sequence[Holdings], ledger: Mapping[str, LedgerSum], block: int
) -> list[ReceiverBalance]:
    """Combine each token's holdings with its total in the ledger.

    docs/contribute/decisions/books.md explains the expected minimum.
    """
    empty_sum = LedgerSum(minor=0, has_manual_entries=False)
    balances = list[ReceiverBalance]()
    for holding in holdings:
        ledger_sum = ledger.get(holding.token.symbol, empty_sum)
        total = _format_units(ledger_sum.minor, holding.token.decimals)
        balance = ReceiverBalance(
            currency=holding.token.symbol,
            block=block,
            receiver=holding.receiver,
            refunders=holding.refund_senders,
            ledger=total,
            expected=total if ledger_sum.has_manual_entries else None,
        )
        balances.append(balance)
    return balances


def _format_units(minor: int, decimals: int) -> str:
    return format(Decimal(minor).scaleb(-decimals, EXACT), "f")


async def _sum_balances(
    reader: RpcChainReader, token: bytes, decimals: int, owners: Sequence[bytes], block: int
) -> str | None:
    for name in reader.names:
        try:
            balances = await reader.fetch_balances(name, token, owners, block)
        except ChainUnavailableError:
            continue
        amounts = [balance for balance in balances if balance is not None]
        if len(amounts) == len(owners):
            return _format_units(sum(amounts), decimals)
    return None


@dataclass(frozen=True, slots=True)
class ChainComparison:
    settings: Settings
    database: Database
    open_reader: Callable[[Settings, ChainRecord], RpcChainReader | None]


async def compare_chain(context: ChainComparison, slug: str) -> None:
    """Compare a chain's due contracts, unless another worker is already doing so."""
    if not await blocks_store.list_due(context.database, slug):
        return
    url = context.settings.direct_url
    try:
        async with hold_advisory_lock(url, f"compare:{slug}") as lock:
            chain = await chain_store.get_chain(context.database, slug)
            if not lock.is_held or chain is None:
                return
            guarded_context = replace(context, database=context.database.make_guarded(lock.verify))
            await compare_contracts(guarded_context, chain)
    except (ChainUnavailableError, LockLostError, OSError) as error:
        SOURCE_FAILURES.labels(SOURCE).inc()
        _log.warning("reconciliation_source_unavailable", source=slug, why=str(error))


async def compare_contracts(context: ChainComparison, chain: ChainRecord) -> None:
    """Compare a chain's due contracts. The caller must hold the chain's advisory lock."""
    reader = context.open_reader(context.settings, chain)
    if reader is None:
        return
    database = context.database
    try:
        tokens = await chain_store.list_tokens(database, chain.slug)
        for contract in await blocks_store.list_due(database, chain.slug):
            comparison = _ContractComparison(database, reader, chain, contract, tokens)
            if (claimed_run := await comparison.claim()) is not None:
                async with record_failures(database, claimed_run[0]):
                    await comparison.run(*claimed_run)
    finally:
        await reader.close()


class ComparedPiece(Protocol):
    """Lines from the chain that one transaction compares with the books."""

    @property
    def run(self) -> BlockRun: ...  # the state of the run after this piece

    @property
    def is_last(self) -> bool: ...

    @property
    def at(self) -> datetime: ...

    async def load(self, tx: Tx) -> ReconciliationScope: ...

    async def find_missing(self, tx: Tx, scope: ReconciliationScope) -> None: ...


@dataclass(frozen=True, slots=True)
class _ContractComparison:
    database: Database
    reader: RpcChainReader
    chain: ChainRecord
    contract: DueContract
    tokens: list[TokenRecord]

    async def claim(self) -> tuple[ClaimedRun, BlockRun] | None:
        """Claim the contract's open run or start a new run; None if there is nothing to compare."""
        database, contract, slug = self.database, self.contract, self.chain.slug
        run = contract.open_run
        if run is not None:
            claimed_run = await runs_store.claim(database, self._make_run(run))
            return (claimed_run, run) if claimed_run.was_claimed else None
        last_block = await self._find_last_block()
        if last_block is None or last_block < contract.next_block:
            return None
        holdings = await read_holdings(
            self.reader, self.tokens, contract.receiver, self.chain.refunders, last_block
        )
        run = BlockRun(
            run_id=database.id_generator.new_id(),
            first_block=contract.next_block,
            last_block=last_block,
            next_block=contract.next_block,
            differences=0,
            opened=0,
        )
        async with database.transaction() as tx:
            claimed_run = await runs_store.claim(tx, self._make_run(run))
            if not claimed_run.was_claimed:
                return None
            ledger = await blocks_store.sum_ledger(tx, slug, contract.receiver, last_block)
            balances = make_balances(holdings, ledger, last_block)
            await blocks_store.add(tx, contract.account_id, run, balances)
        return claimed_run, run

    async def _find_last_block(self) -> int | None:
        if not self.contract.is_factory:
            return await blocks_store.find_last_block(self.database, self.chain.slug)
        blocks = await addresses_store.find_read_blocks(self.database, self.chain.slug)
        return blocks.last if blocks else None

    def _make_run(self, run: BlockRun) -> NewRun:
        name = f"{self.chain.slug} blocks {run.first_block} to {run.last_block}"
        return NewRun(
            id=run.run_id,
            account_id=self.contract.account_id,
            source=SOURCE,
            name=name,
            sha256=hashlib.sha256(name.encode()).hexdigest(),
        )

    async def run(self, claimed_run: ClaimedRun, run: BlockRun) -> None:
        remaining_run: BlockRun | None = run
        while remaining_run is not None:
            piece = await self._read_piece(remaining_run)
            remaining_run = await self._compare(claimed_run, remaining_run, piece)

    async def _read_piece(self, run: BlockRun) -> ComparedPiece:
        if self.contract.is_factory:
            return await self._make_address_reader().read_batch(run)
        logs = await read_range(
            self.reader,
            self.contract.address,
            run.next_block,
            run.last_block,
            partial(self._is_incomplete, run),
        )
        if logs.incomplete_endpoint is not None:
            slug, endpoint = self.chain.slug, logs.incomplete_endpoint
            WRONG_RESPONSES.labels(slug, "logs_left_out").inc()
            _log.warning("logs_left_out", chain=slug, endpoint=endpoint)
        return _LogPiece(self, run, logs)

    def _make_address_reader(self) -> AddressReader:
        return AddressReader(
            self.database,
            self.reader,
            self.chain,
            self.contract.account_id,
            [token for token in self.tokens if token.address is not None],
        )

    async def _is_incomplete(self, run: BlockRun, logs: LogRange) -> bool:
        """Return whether a capture or refund lacks a log, which the endpoint may have omitted."""
        return await blocks_store.has_missing_lines(
            self.database,
            self.contract.account_id,
            (run.next_block, logs.last_block),
            make_lines(logs, self.contract.receiver, self.chain.refunders, {}, {}),
        )

    async def _compare(
        self, claimed_run: ClaimedRun, run: BlockRun, piece: ComparedPiece
    ) -> BlockRun | None:
        """Compare a piece and return the advanced run, or None if it has ended or was reclaimed."""
        async with self.database.transaction() as tx:
            if not await runs_store.lock(tx, claimed_run):
                return None
            scope = await piece.load(tx)
            differences = await find_differences(tx, scope, piece.find_missing)
            check_difference_count(differences.count)
            await runs_store.add_sums(tx, run.run_id, differences.sums)
            cases = make_cases(tx.id_generator, self.chain.slug, differences.items, with_time=False)
            case_count, _ = await open_cases(tx, cases)
            run = replace(
                piece.run,
                differences=run.differences + differences.count,
                opened=run.opened + case_count,
            )
            outcome = None
            if piece.is_last:
                run = await self._check_balances(tx, run)
                outcome = RunOutcome(until=piece.at, differences=run.differences, opened=run.opened)
                await runs_store.end(tx, run.run_id, outcome)
            await blocks_store.advance(tx, run)
        if outcome is None:
            return run
        report_end(claimed_run, self.contract.account_id, outcome)
        return None

    async def _check_balances(self, tx: Tx, run: BlockRun) -> BlockRun:
        """Open a case for each token whose balance is below the expected minimum."""
        balances = await blocks_store.list_balances(tx, run.run_id)
        low_balances = [balance for balance in balances if balance.shortfall]
        cases = [
            NewCase(
                id=tx.id_generator.new_id(),
                kind=CaseKind.RECONCILIATION,
                origin=UNKNOWN_ORIGIN,
                # The subject identifies the case, so it must not change while the shortfall lasts.
                subject=f"{self.chain.slug} receiver {to_hex(self.contract.receiver)}:"
                f" the balance is {balance.shortfall:f} {balance.currency} below the ledger",
            )
            for balance in low_balances
        ]
        case_ids = await case_store.open_cases(tx, cases)
        return replace(
            run, differences=run.differences + len(low_balances), opened=run.opened + len(case_ids)
        )


@dataclass(frozen=True, slots=True)
class _LogPiece:
    """A contract's logs in a block range."""

    comparison: _ContractComparison
    run_before: BlockRun
    logs: LogRange

    @property
    def run(self) -> BlockRun:
        return replace(self.run_before, next_block=self.logs.last_block + 1)

    @property
    def is_last(self) -> bool:
        return self.logs.last_block == self.run_before.last_block

    @property
    def at(self) -> datetime:
        return self.logs.at

    async def load(self, tx: Tx) -> ReconciliationScope:
        contract, chain, logs = self.comparison.contract, self.comparison.chain, self.logs
        captured_currencies = await blocks_store.list_currencies(
            tx, contract.account_id, self.run_before.next_block, logs.last_block
        )
        currencies = map_token_symbols(self.comparison.tokens) | captured_currencies
        decimals = dict.fromkeys(_list_currencies(logs, currencies), 0)
        decimals |= {token.symbol: token.decimals for token in self.comparison.tokens}
        lines = make_lines(logs, contract.receiver, chain.refunders, currencies, decimals)
        await compare_store.create_tables(tx)
        await compare_store.load_lines(tx, lines)
        await compare_store.analyze_lines(tx)
        return ReconciliationScope(
            accounts=[contract.account_id],
            since=logs.at,
            until=logs.at,
            decimals=decimals,
            chain=chain.slug,
        )

    async def find_missing(self, tx: Tx, scope: ReconciliationScope) -> None:
        blocks = self.run_before.next_block, self.logs.last_block
        await blocks_store.find_missing(tx, scope, blocks)


def _list_currencies(logs: LogRange, currencies: dict[bytes, str]) -> set[str]:
    tokens = {log.token for log in (*logs.paid_logs, *logs.refunded_logs)}
    return {currencies.get(token, to_hex(token)) for token in tokens} | set(currencies.values())
