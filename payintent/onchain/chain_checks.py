"""Compares a chain with the operator's settings: its endpoints, tokens and our contracts."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from payintent.domain.errors import ChainUnavailableError
from payintent.domain.evm import CallRevertedError
from payintent.evm.abi import WORD, encode_decimals, to_address, to_uint
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.contract_abi import read_immutables
from payintent.evm.keccak import to_checksum_address
from payintent.storage.onchain.chains import ChainRecord, DeployedContract, TokenRecord

RECEIVER = bytes.fromhex("f7260d3e")  # receiver()
_FAULTS = {
    "connection": "cannot be reached",
    "timeout": "does not answer in time",
    "wrong_chain": "is another chain",
    "no_finality": "has no finalized block",
    "finality": "takes its latest block for finalized",
}


@dataclass(frozen=True, slots=True)
class CheckResult:
    right: bool
    text: str


async def check_chain(
    reader: RpcChainReader,
    chain: ChainRecord,
    tokens: Sequence[TokenRecord],
    contracts: Sequence[DeployedContract],
) -> AsyncGenerator[CheckResult]:
    """Check each endpoint's identity, and there the enabled tokens and our contracts."""
    for name in reader.names:
        head = await _head(reader, name, chain)
        yield head
        if not head.right:
            continue
        for token in tokens:
            if token.enabled and token.address is not None and not token.native:
                yield await _token(reader, name, token, token.address)
        for contract in contracts:
            if contract.current:
                yield await examine_contract(reader, name, contract.address, contract.receiver)


async def _head(reader: RpcChainReader, name: str, chain: ChainRecord) -> CheckResult:
    try:
        heads = await reader.heads_of(name)
    except ChainUnavailableError as error:
        return CheckResult(
            False, f"{endpoint_fault(name, error)}, wanted is chain {chain.network_id}"
        )
    behind = heads.latest.number - heads.final.number
    return CheckResult(
        True,
        f"{name} is chain {chain.network_id} at block {heads.latest.number}, "
        f"final {behind} blocks before it",
    )


async def _token(
    reader: RpcChainReader, name: str, token: TokenRecord, address: bytes
) -> CheckResult:
    where = f"{name}: {token.symbol} at {to_checksum_address(address)}"
    word_or_problem = await read_contract_word(reader, name, address, encode_decimals())
    if isinstance(word_or_problem, str):
        return CheckResult(False, f"{where} {word_or_problem}")
    right = to_uint(word_or_problem) == token.decimals
    set_here = "" if right else f", set are {token.decimals}"
    return CheckResult(right, f"{where} has {to_uint(word_or_problem)} decimals{set_here}")


async def examine_contract(
    reader: RpcChainReader, name: str, address: bytes, receiver: bytes
) -> CheckResult:
    """Compare a contract, as one endpoint shows it, with the compiled code and its receiver.

    The receiver is read twice: from the code itself, and from the answer to `receiver()`.
    """
    where = f"{name}: contract {to_checksum_address(address)}"
    try:
        code = await reader.code(name, address)
    except ChainUnavailableError as error:
        return CheckResult(False, f"{where}: {endpoint_fault(name, error)}")
    immutables = read_immutables(code)
    if immutables is None:
        other = "other code than the compiled contract" if code else "no code"
        return CheckResult(False, f"{where} has {other}")
    answer = await read_contract_word(reader, name, address, RECEIVER)
    if isinstance(answer, str):
        return CheckResult(False, f"{where} {answer}")
    if answer != immutables["receiver"]:
        return CheckResult(False, f"{where} does not answer as its code does")
    return _receiver(where, answer, receiver)


def _receiver(where: str, answer: bytes, receiver: bytes) -> CheckResult:
    try:
        deployed = to_address(answer)
    except ValueError:
        return CheckResult(False, f"{where} pays to no address")
    right = deployed == receiver
    expected = "" if right else f", set is {to_checksum_address(receiver)}"
    return CheckResult(
        right, f"{where} has our code and pays to {to_checksum_address(deployed)}{expected}"
    )


def endpoint_fault(name: str, error: ChainUnavailableError) -> str:
    """Return what is wrong with an endpoint, with its name but never its address."""
    fault = str(error).rpartition(": ")[2]
    return f"{name} {_FAULTS[fault]}" if fault in _FAULTS else str(error)


async def read_contract_word(
    reader: RpcChainReader, name: str, to: bytes, data: bytes
) -> bytes | str:
    """Call for one word of 32 bytes; a text says why there is none."""
    try:
        answer = await reader.call(name, to, data)
    except CallRevertedError:
        return "does not know the question"
    except ChainUnavailableError:
        return "gives no answer"
    if not answer:
        return "has no code"
    return answer if len(answer) == WORD else "does not answer as it should"
