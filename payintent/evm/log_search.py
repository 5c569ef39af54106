"""A search for logs of our contracts in a range of blocks: its requests, and what is answered."""

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
        searched = {
            "fromBlock": hex(self.start),
            "toBlock": hex(self.end),
            "address": sorted(to_hex(contract) for contract in self.contracts),
            "topics": [[to_hex(PAID), to_hex(REFUNDED)]],
        }
        return [*blocks, RpcCall("eth_getLogs", [searched])]

    def read(self, answers: list[RpcAnswer]) -> "FoundLogs":
        """Read the answers; logs of another block than the last one's own are refused."""
        end = read_block(result(answers[0]), self.end)
        before = None if self.before is None else read_block(result(answers[1]), self.before)
        if end is None:
            return FoundLogs(None, before, None)
        last = answers[-1]
        if isinstance(last, RpcErrorAnswer) and self.start < self.end:
            return FoundLogs(end, before, None)
        last = result(last)  # the refusal of a single block does not depend on the span
        try:
            logs = read_logs(last, self.contracts, self.start, self.end)
        except msgspec.MsgspecError:
            raise  # not a list of logs at all
        except ValueError:
            raise RpcAnswerError(RpcFault.LOGS) from None
        of_end = {log.block_hash for both in logs for log in both if log.block_number == self.end}
        if of_end - {end.hash}:
            raise RpcAnswerError(RpcFault.LOGS)
        return FoundLogs(end, before, logs)


@dataclass(frozen=True, slots=True)
class FoundLogs:
    """The result of a search; no logs means that the endpoint refused it."""

    end: Block | None
    before: Block | None
    logs: ContractLogs | None


def block_call(block: int | str) -> RpcCall:
    """Ask for a block by its number, or by a tag such as `latest`."""
    tag = hex(block) if isinstance(block, int) else block
    return RpcCall("eth_getBlockByNumber", [tag, False])
