"""The logs of our contracts in single blocks, requested by the block's hash (EIP-234)."""

from collections.abc import Collection, Sequence

import msgspec

from payintent.domain.evm import BlockId, ContractLog, Unanswered
from payintent.evm.event_logs import PAID, REFUNDED, read_logs
from payintent.evm.rpc import RpcAnswer, RpcAnswerError, RpcCall, RpcErrorAnswer, RpcFault
from payintent.evm.rpc_answers import read_block

_CALLS_PER_BLOCK = 2


def block_log_calls(blocks: Sequence[BlockId], contracts: Sequence[bytes]) -> list[RpcCall]:
    """Build the calls for each block's header by its number, and for its logs by its hash."""
    calls: list[RpcCall] = []
    for block in blocks:
        search = {
            "blockHash": f"0x{block.hash.hex()}",
            "address": sorted(f"0x{address.hex()}" for address in contracts),
            "topics": [[f"0x{PAID.hex()}", f"0x{REFUNDED.hex()}"]],
        }
        calls.append(RpcCall("eth_getBlockByNumber", [hex(block.number), False]))
        calls.append(RpcCall("eth_getLogs", [search]))
    return calls


def read_block_logs(
    blocks: Sequence[BlockId], contracts: Collection[bytes], answers: list[RpcAnswer]
) -> list[list[ContractLog] | Unanswered]:
    """Read the answers to these calls; a refusal concerns its own block alone."""
    return [
        _read_one(block, contracts, answers[at], answers[at + 1])
        for block, at in zip(blocks, range(0, len(answers), _CALLS_PER_BLOCK), strict=True)
    ]


def _read_one(
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
        raise  # not a list of logs at all
    except ValueError:
        raise RpcAnswerError(RpcFault.LOGS) from None
    logs: list[ContractLog] = [*paid, *refunded]
    if any(log.block_hash != block.hash for log in logs):
        raise RpcAnswerError(RpcFault.LOGS)
    return logs
