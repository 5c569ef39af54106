"""Builds requests for our contracts' logs and decodes the answers."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from payintent.evm.abi import to_hex
from payintent.evm.event_logs import PAID, REFUNDED, ContractLogs, read_logs
from payintent.evm.port import Block, BlockId, ContractLog, Unanswered
from payintent.evm.rpc import RpcAnswer, RpcAnswerError, RpcCall, RpcErrorAnswer, RpcFault, result
from payintent.evm.rpc_answers import read_block

_CALLS_PER_BLOCK = 2


@dataclass(frozen=True, slots=True)
class LogSearch:
    start: int
    end: int
    contracts: frozenset[bytes]
    before: int | None

    def calls(self) -> list[RpcCall]:
        blocks = [block_call(self.end)]
        if self.before is not None:
            blocks.append(block_call(self.before))
        log_filter = {
            "fromBlock": hex(self.start),
            "toBlock": hex(self.end),
            "address": sorted(to_hex(contract) for contract in self.contracts),
            "topics": [[to_hex(PAID), to_hex(REFUNDED)]],
        }
        return [*blocks, RpcCall("eth_getLogs", [log_filter])]

    def read(self, answers: list[RpcAnswer]) -> "LogSearchResult":
        """Decode the answers; logs that contradict the last block's hash are rejected."""
        end = read_block(result(answers[0]), self.end)
        before = None if self.before is None else read_block(result(answers[1]), self.before)
        if end is None:
            return LogSearchResult(None, before, None)
        answer = answers[-1]
        if isinstance(answer, RpcErrorAnswer) and self.start < self.end:
            return LogSearchResult(end, before, None)
        raw = result(answer)  # a smaller span would not help with a single block
        try:
            logs = read_logs(raw, self.contracts, self.start, self.end)
        except msgspec.MsgspecError:
            raise  # not a list of logs
        except ValueError:
            raise RpcAnswerError(RpcFault.LOGS) from None
        paid, refunded = logs
        last_logs = [log for log in (*paid, *refunded) if log.block_number == self.end]
        if any(log.block_hash != end.hash for log in last_logs):
            raise RpcAnswerError(RpcFault.LOGS)
        return LogSearchResult(end, before, logs)


@dataclass(frozen=True, slots=True)
class LogSearchResult:
    """`logs` is None if the endpoint refused the search."""

    end: Block | None
    before: Block | None
    logs: ContractLogs | None


def block_call(block: int | str) -> RpcCall:
    """Build the request for a block by number, or by a tag such as `latest`."""
    tag = hex(block) if isinstance(block, int) else block
    return RpcCall("eth_getBlockByNumber", [tag, False])


def block_log_calls(blocks: Sequence[BlockId], contracts: Sequence[bytes]) -> list[RpcCall]:
    """Build two calls per block: its header by number, and its logs by hash.

    The header is needed because a node may know blocks that are not on its chain.
    """
    calls: list[RpcCall] = []
    for block in blocks:
        search = {
            "blockHash": to_hex(block.hash),
            "address": sorted(map(to_hex, contracts)),
            "topics": [[to_hex(PAID), to_hex(REFUNDED)]],
        }
        calls.append(RpcCall("eth_getBlockByNumber", [hex(block.number), False]))
        calls.append(RpcCall("eth_getLogs", [search]))
    return calls


def read_block_logs(
    blocks: Sequence[BlockId], contracts: Collection[bytes], answers: list[RpcAnswer]
) -> list[list[ContractLog] | Unanswered]:
    """Decode the answers to `block_log_calls`; an error answer affects only its own block."""
    return [
        _decode_block_logs(block, contracts, answers[at], answers[at + 1])
        for block, at in zip(blocks, range(0, len(answers), _CALLS_PER_BLOCK), strict=True)
    ]


def _decode_block_logs(
    block: BlockId, contracts: Collection[bytes], head_answer: RpcAnswer, logs_answer: RpcAnswer
) -> list[ContractLog] | Unanswered:
    if isinstance(head_answer, RpcErrorAnswer):
        return Unanswered.REFUSED
    head = read_block(head_answer, block.number)
    if head is None:
        return Unanswered.BEHIND
    if head.hash != block.hash:
        return []
    if isinstance(logs_answer, RpcErrorAnswer):
        return Unanswered.REFUSED
    try:
        paid, refunded = read_logs(logs_answer, contracts, block.number, block.number)
    except msgspec.MsgspecError:
        raise  # not a list of logs
    except ValueError:
        raise RpcAnswerError(RpcFault.LOGS) from None
    logs: list[ContractLog] = [*paid, *refunded]
    if any(log.block_hash != block.hash for log in logs):
        raise RpcAnswerError(RpcFault.LOGS)
    return logs
