"""Search a range of blocks for logs of our contracts: the requests and their answers."""

from dataclasses import dataclass

import msgspec

from payintent.domain.evm import Block
from payintent.evm.event_logs import PAID, REFUNDED, ContractLogs, read_logs
from payintent.evm.hex_values import to_hex
from payintent.evm.rpc import RpcAnswer, RpcAnswerError, RpcCall, RpcErrorAnswer, RpcFault, result
from payintent.evm.rpc_answers import read_block


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
        """Decode the answers; logs that contradict the hash of the last block are rejected."""
        end = read_block(result(answers[0]), self.end)
        before = None if self.before is None else read_block(result(answers[1]), self.before)
        if end is None:
            return LogSearchResult(None, before, None)
        answer = answers[-1]
        if isinstance(answer, RpcErrorAnswer) and self.start < self.end:
            return LogSearchResult(end, before, None)
        raw = result(answer)  # refusing a single block does not depend on the span
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
    """Build the request for a block by its number or by a tag such as `latest`."""
    tag = hex(block) if isinstance(block, int) else block
    return RpcCall("eth_getBlockByNumber", [tag, False])
