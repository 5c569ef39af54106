"""Read chain heads, logs, receipts and contract calls through a chain's endpoints."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from payintent.core.errors import ChainUnavailableError
from payintent.evm.abi import to_hex
from payintent.evm.deposit_searches import (
    SweepSearch,
    TransferSearch,
    make_sweep_proof,
    make_transfer_proof,
)
from payintent.evm.event_logs import read_revert
from payintent.evm.port import (
    Block,
    BlockId,
    BlockRangeTooLargeError,
    CallRevertedError,
    ChainHeads,
    ChainTransaction,
    ContractLog,
    EndpointBehindError,
    LogBatch,
    MissingReason,
    SweepLog,
    TooManyRecipientsError,
    TransactionReceipt,
    TransferLog,
)
from payintent.evm.rpc import (
    RpcCall,
    RpcEndpoint,
    RpcErrorResponse,
    RpcFault,
    RpcFaultError,
    RpcLimits,
    RpcResponse,
    make_session,
    require_result,
)
from payintent.evm.rpc_responses import (
    LogSearch,
    make_balance_call,
    make_block_call,
    make_block_log_calls,
    read_balances,
    read_block,
    read_block_logs,
    read_bytes,
    read_receipts,
    read_rpc_number,
    read_transactions,
)
from payintent.evm.search_limits import SearchLimits, concerns_recipients

if TYPE_CHECKING:
    import ssl

HEADS_TIMEOUT_S = 4.0  # a maximum, because all callers wait for the slowest endpoint

_Result = TypeVar("_Result")
_LIMITS = RpcLimits()


class Finality(StrEnum):
    FINALIZED = "finalized"  # by the node's `finalized` tag
    CONFIRMATIONS = "confirmations"  # by the number of later blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderConfig:
    """A chain's configuration.

    `instant_finality` is for chains with immediately final blocks. Without it, a response that
    reports the latest block as finalized is rejected.
    """

    network_id: int
    finality: Finality = Finality.FINALIZED
    confirmations: int = 0
    instant_finality: bool = False
    limits: RpcLimits = _LIMITS
    tls: "ssl.SSLContext | None" = field(default=None, repr=False)  # None uses the system's CAs

    def __post_init__(self) -> None:
        by_count = self.finality is Finality.CONFIRMATIONS
        if by_count and self.confirmations < 1 and not self.instant_finality:
            raise ValueError("finality by confirmations requires at least one confirmation")


class RpcChainReader:
    """Reads a chain through several endpoints, named `name-1`, `name-2` etc.

    Connections are opened on the first request. All methods except `fetch_heads` query the given
    endpoint. They raise `ChainUnavailableError` if the endpoint does not return a usable response.
    During the backoff after a failure, they raise it immediately. Invalid URLs raise ValueError.
    """

    def __init__(
        self,
        name: str,
        urls: Sequence[str],
        config: ReaderConfig,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not urls:
            raise ValueError(f"{name} has no endpoint")
        self._config = config
        self._heads_timeout_s = min(HEADS_TIMEOUT_S, config.limits.timeout_s)
        self._session = make_session(config.tls)
        self._endpoints = {
            endpoint: RpcEndpoint(
                name, endpoint, url, limits=config.limits, session=self._session, clock=clock
            )
            for number, url in enumerate(urls, 1)
            if (endpoint := f"{name}-{number}")
        }
        self._search_limits = {endpoint: SearchLimits() for endpoint in self._endpoints}

    @property
    def names(self) -> tuple[str, ...]:
        ordered = sorted(self._endpoints.values(), key=lambda endpoint: endpoint.failures)
        return tuple(endpoint.name for endpoint in ordered)

    def get_span(self, endpoint: str) -> int:
        """Return the maximum number of blocks per search, at least 1."""
        return self._search_limits[endpoint].span

    def get_recipients_max(self, endpoint: str) -> int:
        """Return the maximum number of recipients per search for transfers, at least 1."""
        return self._search_limits[endpoint].recipients

    async def close(self) -> None:
        await self._session.close()

    async def fetch_heads(self) -> list[ChainHeads]:
        """Query all endpoints concurrently. Raises `ChainUnavailableError` only if all fail."""
        responses = await asyncio.gather(*(self._fetch_heads_or_none(name) for name in self.names))
        heads = [head for head in responses if head is not None]
        if not heads:
            raise ChainUnavailableError("no endpoint returns a usable response")
        return heads

    async def fetch_endpoint_heads(self, endpoint: str) -> ChainHeads:
        """Query an endpoint for its heads. The `ChainUnavailableError` message states the fault."""
        if self._config.finality is Finality.FINALIZED:
            return await self._fetch_heads_by_tag(endpoint)
        return await self._fetch_heads_by_count(endpoint)

    async def search_logs(
        self, endpoint: str, start: int, end: int, contracts: Sequence[bytes], before: int | None
    ) -> LogBatch:
        """Search the blocks from `start` to `end` for logs of these contracts.

        Raises `EndpointBehindError` if the endpoint lacks `end` or `before`. Raises
        `BlockRangeTooLargeError` if the endpoint refuses the search. The span is then reduced,
        unless the search was wider, so a loop that searches at most the span terminates.
        """
        if not contracts or not 0 <= start <= end:  # nodes treat an empty list as all contracts
            raise ValueError("a search needs contracts and blocks")
        search = LogSearch(start, end, frozenset(contracts), before)
        response = await self._request(endpoint, search.make_calls(), search.read)
        if response.end is None or (before is not None and response.before is None):
            raise EndpointBehindError(
                f"{endpoint} lacks block {end if response.end is None else before}"
            )
        if response.logs is None:
            raise self._narrow_span(endpoint, end - start + 1)
        self._search_limits[endpoint].widen(end - start + 1)
        logs, refunds = response.logs
        return LogBatch(start, response.end, response.before, logs, refunds, endpoint)

    async def search_transfers(
        self,
        endpoint: str,
        blocks: tuple[int, int, int],
        tokens: Collection[bytes],
        recipients: Collection[bytes],
    ) -> tuple[Block, tuple[TransferLog, ...]]:
        """Search for transfers of tokens to recipients, and read a block in the same request.

        `blocks` are the first block, the block to read, and the last block. Raises the same
        errors as `search_logs`, and `TooManyRecipientsError` if the endpoint refuses the number of
        recipients; the maximum is then reduced.
        """
        start, final, end = blocks
        if not tokens or not recipients or not 0 <= start <= end or not 0 <= final <= end:
            raise ValueError("a search needs tokens, recipients and blocks")
        search = TransferSearch(start, final, end, frozenset(tokens), frozenset(recipients))
        response = await self._request(endpoint, search.make_calls(), search.read)
        if response.final is None:
            raise EndpointBehindError(f"{endpoint} lacks block {final}")
        if isinstance(response.logs, RpcErrorResponse):
            if concerns_recipients(response.logs, end - start + 1, len(search.recipients)):
                raise self._narrow_recipients(endpoint, len(search.recipients))
            raise self._narrow_span(endpoint, end - start + 1)
        self._search_limits[endpoint].widen(end - start + 1, len(search.recipients))
        return response.final, response.logs

    async def has_transfers(self, endpoint: str, logs: Sequence[TransferLog]) -> bool:
        """Return whether each log is found again by a search of only its block."""
        proof = make_transfer_proof(logs, self.get_recipients_max(endpoint))
        return not logs or await self._request(endpoint, proof.calls, proof.read)

    async def search_sweeps(
        self,
        endpoint: str,
        start: int,
        end: int,
        receivers: Mapping[bytes, bytes],
        tokens: Collection[bytes],
    ) -> tuple[Block, tuple[SweepLog, ...], tuple[TransferLog, ...]]:
        """Search the blocks from `start` to `end` for sweeps.

        `receivers` are the factories' receivers. Returns the last block, the factories' logs, and
        the transfers of these tokens to the receivers. Raises the same errors as `search_logs`.
        """
        if not receivers or not 0 <= start <= end:
            raise ValueError("a search needs factories and blocks")
        search = SweepSearch(
            start, end, frozenset(receivers), frozenset(tokens), frozenset(receivers.values())
        )
        response = await self._request(endpoint, search.make_calls(), search.read)
        if response.end is None:
            raise EndpointBehindError(f"{endpoint} lacks block {end}")
        if response.logs is None:
            raise self._narrow_span(endpoint, end - start + 1)
        self._search_limits[endpoint].widen(end - start + 1)
        return response.end, *response.logs

    async def has_sweeps(self, endpoint: str, logs: Sequence[SweepLog]) -> bool:
        """Return whether each log is found again by a search of only its block."""
        proof = make_sweep_proof(logs)
        return not logs or await self._request(endpoint, proof.calls, proof.read)

    async def fetch_receipts(
        self, endpoint: str, tx_hashes: Sequence[bytes]
    ) -> list[TransactionReceipt | None]:
        """Read receipts, in the order of the hashes; None for a transaction that is not mined."""
        calls = [RpcCall("eth_getTransactionReceipt", [to_hex(tx_hash)]) for tx_hash in tx_hashes]
        return await self._request(endpoint, calls, partial(read_receipts, tx_hashes))

    async def fetch_block_logs(
        self, endpoint: str, blocks: Sequence[BlockId], contracts: Sequence[bytes]
    ) -> list[list[ContractLog] | MissingReason]:
        """Read all logs of these contracts in each block, in the order of the blocks.

        A block that is not on the endpoint's chain has no logs.
        """
        calls = make_block_log_calls(blocks, contracts)
        read = partial(read_block_logs, blocks, frozenset(contracts))
        return await self._request(endpoint, calls, read) if calls else []

    async def fetch_transactions(
        self, endpoint: str, tx_hashes: Sequence[bytes]
    ) -> list[ChainTransaction | MissingReason | None]:
        """Read transactions, in the order of the hashes; None for an unknown transaction."""
        # Anyone can send a transaction that is too large to read: `read_transactions` skips it.
        calls = [RpcCall("eth_getTransactionByHash", [to_hex(tx_hash)]) for tx_hash in tx_hashes]
        return await self._request(endpoint, calls, partial(read_transactions, tx_hashes))

    async def call(
        self,
        endpoint: str,
        to: bytes,
        data: bytes,
        block: int | str = "latest",
        *,
        sender: bytes | None = None,
        value: int = 0,
    ) -> bytes:
        """Call a contract without a transaction. Raises `CallRevertedError` if the call reverts."""
        transaction = {"to": to_hex(to), "data": to_hex(data), "value": hex(value)}
        if sender is not None:
            transaction["from"] = to_hex(sender)
        tag = hex(block) if isinstance(block, int) else block
        response = await self._request(
            endpoint, [RpcCall("eth_call", [transaction, tag])], _read_call
        )
        if isinstance(response, CallRevertedError):
            raise response
        if isinstance(response, RpcErrorResponse):
            # Not a failure of the endpoint: an external caller may have chosen the request.
            self._endpoints[endpoint].count_fault(RpcFault.REFUSED)
            raise ChainUnavailableError(f"{endpoint} refuses a call")
        return response

    async def fetch_balances(
        self, endpoint: str, token: bytes, owners: Sequence[bytes], block: int
    ) -> list[int | None]:
        """Read a token's balances at a block; None for a balance that is not returned."""
        calls = [make_balance_call(token, owner, block) for owner in owners]
        return await self._request(endpoint, calls, read_balances) if calls else []

    async def fetch_code(self, endpoint: str, address: bytes) -> bytes:
        """Read an account's code at the latest block; empty if it is not a contract."""
        calls = [RpcCall("eth_getCode", [to_hex(address), "latest"])]
        return await self._request(
            endpoint, calls, lambda responses: read_bytes(require_result(responses[0]))
        )

    async def fetch_block(self, endpoint: str, number: int) -> Block | None:
        """Read a block header; None if the endpoint does not have the block."""
        read = partial(_read_block_at, number=number)
        return await self._request(endpoint, [make_block_call(number)], read)

    async def fetch_blocks(self, endpoint: str, numbers: Sequence[int]) -> list[Block | None]:
        """Read block headers, in the order of the numbers; None for an unavailable block."""
        calls = [make_block_call(number) for number in numbers]
        read = partial(_read_blocks, numbers)
        return await self._request(endpoint, calls, read) if calls else []

    async def _request(
        self,
        endpoint: str,
        calls: Sequence[RpcCall],
        read: Callable[[list[RpcResponse]], _Result],
        timeout_s: float | None = None,
    ) -> _Result:
        """Query an endpoint. Its identity is checked first if it is new or has just failed."""
        rpc = self._endpoints[endpoint]
        if not rpc.is_identified:
            await rpc.request([RpcCall("eth_chainId", [])], self._check_identity, timeout_s)
            rpc.is_identified = True
        return await rpc.request(calls, read, timeout_s)

    def _check_identity(self, responses: list[RpcResponse]) -> None:
        if read_rpc_number(require_result(responses[0])) != self._config.network_id:
            raise RpcFaultError(RpcFault.WRONG_CHAIN)

    async def _fetch_heads_or_none(self, endpoint: str) -> ChainHeads | None:
        try:
            return await self.fetch_endpoint_heads(endpoint)
        except ChainUnavailableError:
            return None

    async def _fetch_heads_by_tag(self, endpoint: str) -> ChainHeads:
        # A block can appear between the two calls. A node that reports its latest block as final
        # must still be rejected or, with instant finality, still be accepted.
        tags = ["latest", "finalized"]
        if self._config.instant_finality:
            tags.reverse()
        calls = [make_block_call(tag) for tag in tags]
        read = partial(self._read_heads, tags)
        final, latest = await self._request(endpoint, calls, read, self._heads_timeout_s)
        return ChainHeads(endpoint, latest, final)

    async def _fetch_heads_by_count(self, endpoint: str) -> ChainHeads:
        calls = [make_block_call("latest")]
        latest = await self._request(endpoint, calls, _read_latest, self._heads_timeout_s)
        number = max(0, latest.number - self._config.confirmations)
        read = partial(_read_block_at, number=number)
        final = await self._request(
            endpoint, [make_block_call(number)], read, self._heads_timeout_s
        )
        if final is None:
            raise EndpointBehindError(f"{endpoint} lacks block {number}")
        return ChainHeads(endpoint, latest, final)

    def _read_heads(self, tags: Sequence[str], responses: list[RpcResponse]) -> tuple[Block, Block]:
        response = dict(zip(tags, responses, strict=True))
        latest = _read_latest([response["latest"]])
        finalized = response["finalized"]
        final = None if isinstance(finalized, RpcErrorResponse) else read_block(finalized)
        if final is None:
            raise RpcFaultError(RpcFault.NO_FINALITY)
        if final.number > latest.number:
            raise RpcFaultError(RpcFault.FINALITY)
        if final.number == latest.number > 0 and not self._config.instant_finality:
            raise RpcFaultError(RpcFault.FINALITY)
        return final, latest

    def _narrow_span(self, endpoint: str, blocks: int) -> BlockRangeTooLargeError:
        """Reduce the span, to at least one block.

        If an endpoint refuses a single block, an `RpcFaultError` is raised instead.
        """
        self._search_limits[endpoint].narrow_span(blocks)
        self._endpoints[endpoint].count_fault(RpcFault.RANGE)
        return BlockRangeTooLargeError(f"{endpoint} refuses to search {blocks} blocks")

    def _narrow_recipients(self, endpoint: str, recipients: int) -> TooManyRecipientsError:
        self._search_limits[endpoint].narrow_recipients(recipients)
        self._endpoints[endpoint].count_fault(RpcFault.TOPICS)
        return TooManyRecipientsError(f"{endpoint} refuses to search for {recipients} recipients")


def _read_latest(responses: list[RpcResponse]) -> Block:
    if (latest := read_block(require_result(responses[0]))) is None:
        raise RpcFaultError(RpcFault.MALFORMED)
    return latest


def _read_block_at(responses: list[RpcResponse], number: int) -> Block | None:
    return read_block(require_result(responses[0]), number)


def _number(block: BlockId) -> int:
    return block.number


def _read_blocks(numbers: Sequence[int], responses: list[RpcResponse]) -> list[Block | None]:
    return [
        read_block(require_result(response), number)
        for number, response in zip(numbers, responses, strict=True)
    ]


def _read_call(responses: list[RpcResponse]) -> bytes | CallRevertedError | RpcErrorResponse:
    [response] = responses
    if not isinstance(response, RpcErrorResponse):
        return read_bytes(response)
    return read_revert(response) or response
