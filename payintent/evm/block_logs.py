"""Request the logs of our contracts in single blocks, by block hash (EIP-234)."""

from collections.abc import Collection, Sequence

import msgspec

from payintent.domain.evm import BlockId, ContractLog, Unanswered
from payintent.evm.event_logs import PAID, REFUNDED, read_logs
from payintent.evm.hex_values import to_hex
from payintent.evm.rpc import RpcAnswer, RpcAnswerError, RpcCall, RpcErrorAnswer, RpcFault
from payintent.evm.rpc_answers import read_block

_CALLS_PER_BLOCK = 2


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
