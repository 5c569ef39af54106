"""Read the balances of deposit addresses for the daily comparison, in batches.

A batch is compared at the last block whose deposits and sweeps have been read, because most
endpoints do not provide balances at older blocks. A balance that differs from the books is also
read from a second endpoint. Transfers that the deposit watcher's recheck has not reached yet are
not reported as differences.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import TypeVar
from uuid import UUID

from payintent.chains.store import ChainRecord, TokenRecord
from payintent.core.errors import ChainUnavailableError
from payintent.core.money import EXACT
from payintent.db.database import Database, Tx
from payintent.evm.abi import to_hex
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.port import (
    BlockRangeTooLargeError,
    TooManyRecipientsError,
    TransferLog,
)
from payintent.evm.rpc import WRONG_RESPONSES
from payintent.gateways.settlement_reports import ProviderFileLine
from payintent.reconciliation import addresses_store, compare_store
from payintent.reconciliation.addresses_store import ComparedAddress, ReadBlocks
from payintent.reconciliation.blocks_store import BlockRun
from payintent.reconciliation.compare_store import ReconciliationScope
from payintent.runtime.log import get_logger

BATCH = 500  # addresses
_log = get_logger("reconciliation")
_Result = TypeVar("_Result")
Balances = Mapping[tuple[UUID, str], int]  # by session and token symbol, in the smallest unit


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressBatch:
    """Balances of addresses at a block, to compare with the books."""

    run: BlockRun  # the state of the run after this batch
    is_last: bool
    at: datetime
    chain: str
    account_id: int
    block: int
    tokens: Sequence[TokenRecord]
    addresses: Sequence[ComparedAddress]
    balances: Balances
    later: Sequence[TransferLog]  # transfers that the recheck may not have reached

    async def load(self, tx: Tx) -> ReconciliationScope:
        unread: dict[tuple[bytes, bytes], int] = {}
        for log in await addresses_store.filter_new(tx, self.chain, self.later):
            key = (log.recipient, log.token)
            unread[key] = unread.get(key, 0) + log.amount
        lines = list[ProviderFileLine]()
        for address in self.addresses:
            for token in self.tokens:
                amount = self.balances[address.session_id, token.symbol]
                amount -= unread.get((address.address, token.address or b""), 0)
                lines.append(
                    ProviderFileLine(
                        number=len(lines) + 1,
                        type="deposit",
                        reference=to_hex(address.address),
                        our_id=address.session_id,
                        amount=Decimal(amount).scaleb(-token.decimals, EXACT),
                        currency=token.symbol,
                        at=self.at,
                    )
                )
        await compare_store.create_tables(tx)
        await compare_store.load_lines(tx, lines)
        await compare_store.analyze_lines(tx)
        return ReconciliationScope(
            accounts=[self.account_id],
            since=self.at,
            until=self.at,
            decimals={token.symbol: token.decimals for token in self.tokens},
            chain=self.chain,
        )

    async def find_missing(self, tx: Tx, scope: ReconciliationScope) -> None:
        tokens = {token.symbol: token.address or b"" for token in self.tokens}
        await addresses_store.find_differing(tx, scope, tokens, self.block)


@dataclass(frozen=True, slots=True)
class AddressReader:
    database: Database
    reader: RpcChainReader
    chain: ChainRecord
    account_id: int
    tokens: Sequence[TokenRecord]

    async def read_batch(self, run: BlockRun) -> AddressBatch:
        """Read the balances of a factory's next addresses.

        Raises `ChainUnavailableError` if no endpoint has the balances, or no second endpoint can
        confirm a difference.
        """
        blocks = await addresses_store.find_read_blocks(self.database, self.chain.slug)
        if blocks is None:
            raise ChainUnavailableError(
                f"{self.chain.slug}: deposits and sweeps have not been read"
            )
        addresses = await addresses_store.list_addresses(
            self.database, self.account_id, run.address_id, BATCH
        )
        names = list(reversed(self.reader.names))
        read = partial(self._read_balances, addresses=addresses, block=blocks.last)
        name, at, balances = await self._ask(names, read)
        differing = await self._list_differing(addresses, balances, blocks.last)
        others = [other for other in names if other != name]
        if differing and others:
            read = partial(self._read_balances, addresses=differing, block=blocks.last)
            _, _, second = await self._ask(others, read)
            balances = await self._merge(name, balances, second, blocks.last)
            differing = await self._list_differing(differing, balances, blocks.last)
        is_last = len(addresses) < BATCH
        return AddressBatch(
            run=replace(
                run,
                address_id=addresses[-1].id if addresses else run.address_id,
                next_block=run.last_block + 1 if is_last else run.next_block,
            ),
            is_last=is_last,
            at=at,
            chain=self.chain.slug,
            account_id=self.account_id,
            block=blocks.last,
            tokens=self.tokens,
            addresses=addresses,
            balances=balances,
            later=await self._read_later(names, differing, blocks),
        )

    async def _ask(
        self, names: Sequence[str], read: Callable[[str], Awaitable[_Result]]
    ) -> _Result:
        failure = ChainUnavailableError("no endpoint is configured")
        for name in names:
            try:
                return await read(name)
            except ChainUnavailableError as error:
                failure = error
        raise failure

    async def _read_balances(
        self, name: str, addresses: Sequence[ComparedAddress], block: int
    ) -> tuple[str, datetime, Balances]:
        header = await self.reader.fetch_block(name, block)
        if header is None:
            raise ChainUnavailableError(f"{name} lacks block {block}")
        balances: dict[tuple[UUID, str], int] = {}
        owners = [item.address for item in addresses]
        for token in self.tokens:
            amounts = await self.reader.fetch_balances(name, token.address or b"", owners, block)
            for item, amount in zip(addresses, amounts, strict=True):
                if amount is None:
                    raise ChainUnavailableError(
                        f"{name} does not have the balances at block {block}"
                    )
                balances[item.session_id, token.symbol] = amount
        return name, header.at, balances

    async def _list_expected(
        self, session_ids: Sequence[UUID], block: int
    ) -> dict[tuple[UUID, str], int]:
        return {
            (session_id, token.symbol): amount
            for token in self.tokens
            for session_id, amount in (
                await addresses_store.list_expected(
                    self.database, session_ids, token.address or b"", block
                )
            ).items()
        }

    async def _list_differing(
        self, addresses: Sequence[ComparedAddress], balances: Balances, block: int
    ) -> list[ComparedAddress]:
        expected = await self._list_expected([item.session_id for item in addresses], block)
        sessions = {key[0] for key, amount in expected.items() if balances[key] != amount}
        return [item for item in addresses if item.session_id in sessions]

    async def _merge(self, name: str, balances: Balances, second: Balances, block: int) -> Balances:
        """Replace balances with a second endpoint's balances that match the books."""
        expected = await self._list_expected(list({key[0] for key in second}), block)
        wrong = {
            key: amount
            for key, amount in second.items()
            if amount == expected[key] and balances[key] != amount
        }
        if wrong:
            WRONG_RESPONSES.labels(self.chain.slug, "balances").inc()
            _log.warning("wrong_balances", chain=self.chain.slug, endpoint=name)
        return {**balances, **wrong}

    async def _read_later(
        self, names: Sequence[str], differing: Sequence[ComparedAddress], blocks: ReadBlocks
    ) -> list[TransferLog]:
        """Read the transfers to these addresses that the recheck may not have reached."""
        recipients = [item.address for item in differing if item.is_looked_at]
        logs: list[TransferLog] = []
        first = blocks.looked_at + 1
        while recipients and first <= blocks.last:
            search = partial(self._search, first=first, last=blocks.last, recipients=recipients)
            end, transfers = await self._ask(names, search)
            logs += transfers
            first = end + 1
        return logs

    async def _search(
        self, name: str, first: int, last: int, recipients: Sequence[bytes]
    ) -> tuple[int, list[TransferLog]]:
        """Search as many blocks as the endpoint allows, and return the last block searched."""
        tokens = [token.address for token in self.tokens if token.address and not token.native]
        end = min(first + self.reader.get_span(name) - 1, last)
        logs: list[TransferLog] = []
        count = 0  # recipients that have been searched
        while count < len(recipients):
            chunk = recipients[count : count + self.reader.get_recipients_max(name)]
            try:
                _, transfers = await self.reader.search_transfers(
                    name, (first, end, end), tokens, chunk
                )
            except TooManyRecipientsError:
                continue
            except BlockRangeTooLargeError:
                if end == first:
                    raise
                end, logs, count = min(first + self.reader.get_span(name) - 1, last), [], 0
                continue
            logs += transfers
            count += len(chunk)
        return end, logs
