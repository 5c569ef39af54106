"""Search for the logs of deposits and sweeps.

Invalid responses raise ValueError. Contradictory logs raise `RpcFaultError`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from payintent.evm.abi import to_hex
from payintent.evm.event_logs import SWEEP_FAILED, SWEPT, TRANSFER, read_sweeps, read_transfers
from payintent.evm.port import Block, BlockId, SweepLog, TransferLog
from payintent.evm.rpc import (
    RpcCall,
    RpcErrorResponse,
    RpcFault,
    RpcFaultError,
    RpcResponse,
    require_result,
)
from payintent.evm.rpc_responses import make_block_call, read_block

_TOPIC_START = "0x" + "00" * 12
_Log = TypeVar("_Log", TransferLog, SweepLog)


@dataclass(frozen=True, slots=True)
class TransferSearch:
    """Search the blocks from `start` to `end` for transfers of tokens to recipients.

    The same request reads `final`, a block that is not after `end`.
    """

    start: int
    final: int
    end: int
    tokens: frozenset[bytes]
    recipients: frozenset[bytes]

    def make_calls(self) -> list[RpcCall]:
        block_range = {"fromBlock": hex(self.start), "toBlock": hex(self.end)}
        log_call = make_transfer_call(block_range, self.tokens, self.recipients)
        return [make_block_call(self.final), log_call]

    def read(self, responses: list[RpcResponse]) -> "TransferSearchResult":
        final = read_block(require_result(responses[0]), self.final)
        response = responses[1]
        if final is None:
            return TransferSearchResult(None, ())
        can_be_narrower = self.start < self.end or len(self.recipients) > 1
        if isinstance(response, RpcErrorResponse) and can_be_narrower:
            return TransferSearchResult(final, response)
        raw = require_result(response)
        try:
            logs = read_transfers(raw, self.tokens, self.recipients, self.start, self.end)
        except msgspec.MsgspecError:
            raise
        except ValueError:
            raise RpcFaultError(RpcFault.LOGS) from None
        if any(log.block_hash != final.hash for log in logs if log.block_number == final.number):
            raise RpcFaultError(RpcFault.LOGS)
        return TransferSearchResult(final, logs)


@dataclass(frozen=True, slots=True)
class TransferSearchResult:
    """`final` is None if the endpoint lacks the block. `logs` may be an error response."""

    final: Block | None
    logs: tuple[TransferLog, ...] | RpcErrorResponse


@dataclass(frozen=True, slots=True)
class SweepSearch:
    """Search the blocks from `start` to `end` for sweeps, and read the last block.

    Sweeps appear as logs of `factories` and as transfers of `tokens` to `receivers`.
    """

    start: int
    end: int
    factories: frozenset[bytes]
    tokens: frozenset[bytes]
    receivers: frozenset[bytes]

    def make_calls(self) -> list[RpcCall]:
        block_range = {"fromBlock": hex(self.start), "toBlock": hex(self.end)}
        calls = [make_block_call(self.end), make_sweep_call(block_range, self.factories)]
        if self.tokens:
            calls.append(make_transfer_call(block_range, self.tokens, self.receivers))
        return calls

    def read(self, responses: list[RpcResponse]) -> "SweepSearchResult":
        end = read_block(require_result(responses[0]), self.end)
        are_refused = any(isinstance(response, RpcErrorResponse) for response in responses)
        if end is None or (are_refused and self.start < self.end):
            return SweepSearchResult(end, None)
        sweeps, *transfers = map(require_result, responses[1:])
        try:
            logs = read_sweeps(sweeps, self.factories, self.start, self.end)
            received = tuple(
                log
                for raw in transfers
                for log in read_transfers(raw, self.tokens, self.receivers, self.start, self.end)
            )
        except msgspec.MsgspecError:
            raise
        except ValueError:
            raise RpcFaultError(RpcFault.LOGS) from None
        if any(
            log.block_hash != end.hash
            for log in (*logs, *received)
            if log.block_number == end.number
        ):
            raise RpcFaultError(RpcFault.LOGS)
        return SweepSearchResult(end, (logs, received))


@dataclass(frozen=True, slots=True)
class SweepSearchResult:
    """`end` is None if the endpoint lacks the block; `logs` is None if it refused the search."""

    end: Block | None
    logs: tuple[tuple[SweepLog, ...], tuple[TransferLog, ...]] | None


def make_transfer_proof(logs: Sequence[TransferLog], recipients_max: int) -> "Proof[TransferLog]":
    """Build searches for the logs, each for one block and up to `recipients_max` recipients."""
    recipients: dict[BlockId, set[bytes]] = {}
    for log in logs:
        block = BlockId(log.block_number, log.block_hash)
        recipients.setdefault(block, set()).add(log.recipient)
    tokens = {log.token for log in logs}
    proof = Proof(frozenset(logs))
    for block, addresses in recipients.items():
        for first in range(0, len(addresses), recipients_max):
            chunk = sorted(addresses)[first : first + recipients_max]
            proof.calls.append(make_transfer_call({"blockHash": to_hex(block.hash)}, tokens, chunk))
            proof.reads.append(
                partial(
                    read_transfers,
                    tokens=tokens,
                    recipients=chunk,
                    start=block.number,
                    end=block.number,
                )
            )
    return proof


def make_sweep_proof(logs: Sequence[SweepLog]) -> "Proof[SweepLog]":
    """Build searches for the logs, each for one block."""
    factories = {log.factory for log in logs}
    proof = Proof(frozenset(logs))
    for block in {BlockId(log.block_number, log.block_hash) for log in logs}:
        proof.calls.append(make_sweep_call({"blockHash": to_hex(block.hash)}, factories))
        proof.reads.append(
            partial(read_sweeps, factories=factories, start=block.number, end=block.number)
        )
    return proof


@dataclass(frozen=True, slots=True)
class Proof(Generic[_Log]):
    """Searches whose results must contain the logs."""

    logs: frozenset[_Log]
    calls: list[RpcCall] = field(default_factory=list[RpcCall])
    reads: list[Callable[[msgspec.Raw], tuple[_Log, ...]]] = field(default_factory=list)

    def read(self, responses: list[RpcResponse]) -> bool:
        """Return whether the responses contain all logs."""
        return self.logs <= {
            log
            for read, response in zip(self.reads, responses, strict=True)
            for log in read(require_result(response))
        }


def make_sweep_call(blocks: Mapping[str, str], factories: Collection[bytes]) -> RpcCall:
    """Build the search for sweeps of factories in a range or a block."""
    log_filter: dict[str, Any] = {
        **blocks,
        "address": sorted(map(to_hex, factories)),
        "topics": [[to_hex(SWEPT), to_hex(SWEEP_FAILED)]],
    }
    return RpcCall("eth_getLogs", [log_filter])


def make_transfer_call(
    blocks: Mapping[str, str], tokens: Collection[bytes], recipients: Collection[bytes]
) -> RpcCall:
    """Build the search for transfers of tokens to recipients in a range or a block."""
    log_filter: dict[str, Any] = {
        **blocks,
        "address": sorted(map(to_hex, tokens)),
        "topics": [[to_hex(TRANSFER)], None, sorted(map(_to_topic, recipients))],
    }
    return RpcCall("eth_getLogs", [log_filter])


def _to_topic(address: bytes) -> str:
    return _TOPIC_START + address.hex()
