"""Compare the endpoints, tokens and contracts of a chain with its configuration."""

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
    "finality": "reports its latest block as finalized",
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
    """Check the identity of each endpoint, and the enabled tokens and our contracts there."""
    for name in reader.names:
        head = await _check_endpoint(reader, name, chain)
        yield head
        if not head.right:
            continue
        for token in tokens:
            if token.enabled and token.address is not None and not token.native:
                yield await _check_decimals(reader, name, token, token.address)
        for contract in contracts:
            if contract.current:
                yield await examine_contract(reader, name, contract.address, contract.receiver)


async def _check_endpoint(reader: RpcChainReader, name: str, chain: ChainRecord) -> CheckResult:
    try:
        heads = await reader.heads_of(name)
    except ChainUnavailableError as error:
        return CheckResult(
            False, f"{endpoint_fault(name, error)}, expected is chain {chain.network_id}"
        )
    behind = heads.latest.number - heads.final.number
    return CheckResult(
        True,
        f"{name} is chain {chain.network_id} at block {heads.latest.number}, "
        f"which is {behind} blocks after the last final block",
    )


async def _check_decimals(
    reader: RpcChainReader, name: str, token: TokenRecord, address: bytes
) -> CheckResult:
    subject = f"{name}: {token.symbol} at {to_checksum_address(address)}"
    word_or_problem = await read_contract_word(reader, name, address, encode_decimals())
    if isinstance(word_or_problem, str):
        return CheckResult(False, f"{subject} {word_or_problem}")
    decimals = to_uint(word_or_problem)
    is_right = decimals == token.decimals
    expected = "" if is_right else f", configured are {token.decimals}"
    return CheckResult(is_right, f"{subject} has {decimals} decimals{expected}")


async def examine_contract(
    reader: RpcChainReader, name: str, address: bytes, receiver: bytes
) -> CheckResult:
    """Compare the code and the receiver of a contract with our compiled contract.

    The receiver is read twice: from the code, and from the answer to `receiver()`.
    """
    subject = f"{name}: contract {to_checksum_address(address)}"
    try:
        code = await reader.code(name, address)
    except ChainUnavailableError as error:
        return CheckResult(False, f"{subject}: {endpoint_fault(name, error)}")
    immutables = read_immutables(code)
    if immutables is None:
        problem = "other code than the compiled contract" if code else "no code"
        return CheckResult(False, f"{subject} has {problem}")
    answer = await read_contract_word(reader, name, address, RECEIVER)
    if isinstance(answer, str):
        return CheckResult(False, f"{subject} {answer}")
    if answer != immutables["receiver"]:
        return CheckResult(False, f"{subject} returns another receiver than its code has")
    return _check_receiver(subject, answer, receiver)


def _check_receiver(subject: str, answer: bytes, receiver: bytes) -> CheckResult:
    try:
        deployed = to_address(answer)
    except ValueError:
        return CheckResult(False, f"{subject} has an invalid receiver")
    is_right = deployed == receiver
    expected = "" if is_right else f", configured is {to_checksum_address(receiver)}"
    return CheckResult(
        is_right, f"{subject} has our code and pays to {to_checksum_address(deployed)}{expected}"
    )


def endpoint_fault(name: str, error: ChainUnavailableError) -> str:
    """Describe an endpoint's error by the endpoint's name, never its URL."""
    fault = str(error).rpartition(": ")[2]
    return f"{name} {_FAULTS[fault]}" if fault in _FAULTS else str(error)


async def read_contract_word(
    reader: RpcChainReader, name: str, to: bytes, data: bytes
) -> bytes | str:
    """Call a contract and return a word of 32 bytes, or a description of the problem."""
    try:
        answer = await reader.call(name, to, data)
    except CallRevertedError:
        return "rejects the call"
    except ChainUnavailableError:
        return "does not answer"
    if not answer:
        return "has no code"
    return answer if len(answer) == WORD else "returns an invalid answer"
