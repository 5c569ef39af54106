"""Open chain readers, and check endpoints, tokens and contracts against the configuration."""

import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from payintent.chains.store import ChainRecord, DeployedContract, TokenRecord
from payintent.core.errors import ChainUnavailableError
from payintent.core.texts import format_count
from payintent.evm.abi import (
    WORD,
    encode_decimals,
    encode_minimum,
    to_address,
    to_checksum_address,
    to_uint,
)
from payintent.evm.chain_reader import Finality, ReaderConfig, RpcChainReader
from payintent.evm.event_logs import FACTORY, FORWARDER, load_runtime_code, read_immutables
from payintent.evm.port import BlockRangeTooLargeError, CallRevertedError
from payintent.runtime.log import get_logger
from payintent.runtime.settings import Settings

_reader_log = get_logger("watching")
_contract_log = get_logger("contracts")
_token_log = get_logger("tokens")
_ADDRESS_BYTES = 20
RECEIVER_SELECTOR = bytes.fromhex("f7260d3e")  # receiver()
_FAULTS = {
    "connection": "cannot be reached",
    "timeout": "does not respond in time",
    "wrong_chain": "serves a different chain",
    "no_finality": "has no finalized block",
    "finality": "reports its latest block as finalized",
}


@dataclass(frozen=True, slots=True)
class CheckResult:
    is_ok: bool
    text: str


def open_configured_reader(settings: Settings, chain: ChainRecord) -> RpcChainReader | None:
    """Open the reader of a chain that has endpoints; return None if its settings are invalid."""
    try:
        config = ReaderConfig(
            network_id=chain.network_id,
            finality=Finality(chain.finality),
            confirmations=chain.confirmations or 0,
            instant_finality=chain.instant_finality,
            tls=settings.client_tls,
        )
        return RpcChainReader(chain.slug, settings.endpoints[chain.slug], config)
    except ValueError as error:
        _reader_log.error("chain_not_watched", chain=chain.slug, why=str(error))
        return None


async def check_chain(
    reader: RpcChainReader,
    chain: ChainRecord,
    tokens: Sequence[TokenRecord],
    contracts: Sequence[DeployedContract],
) -> AsyncGenerator[CheckResult]:
    """Check each endpoint's chain, and the enabled tokens and current contracts on it.

    `contracts` are payment contracts and deposit factories.
    """
    for name in reader.names:
        result = await _check_endpoint(reader, name, chain)
        yield result
        if result.is_ok:
            async for result in _check_tokens_and_contracts(reader, name, tokens, contracts):
                yield result


async def _check_tokens_and_contracts(
    reader: RpcChainReader,
    name: str,
    tokens: Sequence[TokenRecord],
    contracts: Sequence[DeployedContract],
) -> AsyncGenerator[CheckResult]:
    for token in tokens:
        if token.enabled and token.address is not None and not token.native:
            yield await _check_decimals(reader, name, token, token.address)
    for contract in contracts:
        if contract.current:
            yield await _check_deployment(reader, name, contract)
            for text in await _list_refused_tokens(reader, name, tokens, contract):
                yield CheckResult(False, text)


async def _check_deployment(
    reader: RpcChainReader, name: str, contract: DeployedContract
) -> CheckResult:
    if contract.forwarder is None:
        return await check_contract(reader, name, contract.address, contract.receiver)
    return await check_factory(
        reader, name, contract.address, contract.forwarder, contract.receiver
    )


async def _list_refused_tokens(
    reader: RpcChainReader,
    name: str,
    tokens: Sequence[TokenRecord],
    contract: DeployedContract,
) -> list[str]:
    """Describe the enabled tokens that a payment contract does not accept.

    A contract accepts only the tokens passed to its constructor. A deposit factory accepts all
    tokens.
    """
    if contract.forwarder is not None:
        return []
    address = to_checksum_address(contract.address)
    return [
        f"{name}: contract {address} does not accept {token.symbol}"
        for token in tokens
        if token.enabled
        and token.address is not None
        and await _is_refused(reader, name, token.address, contract)
    ]


async def _is_refused(
    reader: RpcChainReader, name: str, token: bytes, contract: DeployedContract
) -> bool:
    minimum = await read_contract_word(reader, name, contract.address, encode_minimum(token))
    return isinstance(minimum, bytes) and to_uint(minimum) == 0


async def _check_endpoint(reader: RpcChainReader, name: str, chain: ChainRecord) -> CheckResult:
    try:
        heads = await reader.fetch_endpoint_heads(name)
    except ChainUnavailableError as error:
        return CheckResult(
            False, f"{describe_endpoint_fault(name, error)}; expected chain {chain.network_id}"
        )
    behind = heads.latest.number - heads.final.number
    return CheckResult(
        True,
        f"{name} is on chain {chain.network_id} at block {heads.latest.number}, "
        f"{format_count(behind, 'block')} after the last final block",
    )


async def check_search_range(
    reader: RpcChainReader, name: str, chain: ChainRecord, contracts: Sequence[bytes], poll_s: float
) -> CheckResult:
    """Check that an endpoint can search the blocks between two polls in one query."""
    needed = math.ceil(poll_s * 1000 / chain.block_time_ms)
    subject = f"{name}: a search for logs"
    try:
        latest = (await reader.fetch_endpoint_heads(name)).latest.number
        accepted = min(needed, latest + 1)
        while not await _accepts_range(reader, name, latest - accepted + 1, latest, contracts):
            accepted = min(accepted - 1, reader.get_span(name))
    except ChainUnavailableError as error:
        return CheckResult(False, f"{subject}: {describe_endpoint_fault(name, error)}")
    if accepted >= min(needed, latest + 1):
        return CheckResult(True, f"{subject} covers the {needed} blocks between two polls")
    text = (
        f"{subject} covers {format_count(accepted, 'block')}, but {needed} blocks are produced "
        "between two polls; payments are detected later, and detection requires more requests"
    )
    return CheckResult(False, text)


async def _accepts_range(
    reader: RpcChainReader, name: str, first: int, last: int, contracts: Sequence[bytes]
) -> bool:
    try:
        await reader.search_logs(name, first, last, contracts, None)
    except BlockRangeTooLargeError:
        return False
    return True


def get_poll_s(settings: Settings, slug: str) -> float:
    """Return the poll interval of a chain while a session or refund is pending."""
    return settings.chain_poll_ethereum_s if slug == "ethereum" else settings.chain_poll_s


async def _check_decimals(
    reader: RpcChainReader, name: str, token: TokenRecord, address: bytes
) -> CheckResult:
    subject = f"{name}: {token.symbol} at {to_checksum_address(address)}"
    response = await read_contract_word(reader, name, address, encode_decimals())
    if isinstance(response, str):
        return CheckResult(False, f"{subject} {response}")
    decimals = to_uint(response)
    is_ok = decimals == token.decimals
    expected = "" if is_ok else f", expected {token.decimals}"
    return CheckResult(is_ok, f"{subject} has {decimals} decimals{expected}")


async def check_contract(
    reader: RpcChainReader, name: str, address: bytes, receiver: bytes
) -> CheckResult:
    """Check a contract's code against our compiled contract, and its receiver against `receiver`.

    The receiver is read both from the code and by calling `receiver()`.
    """
    subject = f"{name}: contract {to_checksum_address(address)}"
    try:
        code = await reader.fetch_code(name, address)
    except ChainUnavailableError as error:
        return CheckResult(False, f"{subject}: {describe_endpoint_fault(name, error)}")
    immutables = read_immutables(code)
    if immutables is None:
        problem = "code that differs from the compiled contract" if code else "no code"
        return CheckResult(False, f"{subject} has {problem}")
    response = await read_contract_word(reader, name, address, RECEIVER_SELECTOR)
    if isinstance(response, str):
        return CheckResult(False, f"{subject} {response}")
    if response != immutables["receiver"]:
        return CheckResult(False, f"{subject} returns a receiver that differs from its code")
    return _check_receiver(subject, response, receiver)


async def check_block(reader: RpcChainReader, name: str, number: int) -> CheckResult:
    """Check that a contract's deployment block exists, because the chain is read from there."""
    try:
        block = await reader.fetch_block(name, number)
    except ChainUnavailableError as error:
        return CheckResult(False, describe_endpoint_fault(name, error))
    text = f"{name} does not have block {number}; check deployed_block"
    return CheckResult(True, name) if block else CheckResult(False, text)


async def check_factory(
    reader: RpcChainReader, name: str, address: bytes, forwarder: bytes, receiver: bytes
) -> CheckResult:
    """Compare the code of a deposit factory and its forwarder with our compiled contracts."""
    subject = f"{name}: deposit factory {to_checksum_address(address)}"
    try:
        factory_code = await reader.fetch_code(name, address)
        forwarder_code = await reader.fetch_code(name, forwarder)
    except ChainUnavailableError as error:
        return CheckResult(False, f"{subject}: {describe_endpoint_fault(name, error)}")
    if _read_address(FACTORY, factory_code, "forwarder") != forwarder:
        problem = "no code" if not factory_code else "code or a forwarder that differs from ours"
        return CheckResult(False, f"{subject} has {problem}")
    deployed_receiver = _read_address(FORWARDER, forwarder_code, "receiver")
    if deployed_receiver is None:
        return CheckResult(False, f"{subject} has a forwarder whose code differs from ours")
    return _check_receiver(subject, deployed_receiver.rjust(WORD, b"\0"), receiver)


def _read_address(contract: str, code: bytes, immutable: str) -> bytes | None:
    values = load_runtime_code(contract).read_immutables(code)
    return None if values is None else values[immutable][-_ADDRESS_BYTES:]


def _check_receiver(subject: str, response: bytes, receiver: bytes) -> CheckResult:
    try:
        deployed_receiver = to_address(response)
    except ValueError:
        return CheckResult(False, f"{subject} has an invalid receiver")
    is_ok = deployed_receiver == receiver
    expected = "" if is_ok else f"; expected {to_checksum_address(receiver)}"
    return CheckResult(
        is_ok, f"{subject} has our code and pays {to_checksum_address(deployed_receiver)}{expected}"
    )


def describe_endpoint_fault(name: str, error: ChainUnavailableError) -> str:
    """Describe an endpoint's error, giving the endpoint's name but never its URL."""
    fault = str(error).rpartition(": ")[2]
    return f"{name} {_FAULTS[fault]}" if fault in _FAULTS else str(error)


async def read_contract_word(
    reader: RpcChainReader, name: str, to: bytes, data: bytes
) -> bytes | str:
    """Call a contract and return a 32-byte word, or a description of the problem."""
    try:
        response = await reader.call(name, to, data)
    except CallRevertedError:
        return "rejects the call"
    except ChainUnavailableError:
        return "does not respond"
    if not response:
        return "has no code"
    return response if len(response) == WORD else "returns an invalid response"


async def contracts_match(
    chain: str, reader: RpcChainReader, contracts: Sequence[DeployedContract]
) -> bool:
    """Return whether every current contract has our code and the configured receiver.

    Otherwise the chain must not be watched: unknown code could log payments that were never made,
    and a missing contract accepts coins without logging them. Retired contracts are not compared,
    because open payments through them may still arrive. Raises `ChainUnavailableError` if no
    endpoint responds.
    """
    for contract in contracts:
        if contract.current and not await _is_deployed(reader, contract):
            address = to_checksum_address(contract.address)
            _contract_log.error("contract_misfit", chain=chain, contract=address)
            return False
    return True


async def _is_deployed(reader: RpcChainReader, contract: DeployedContract) -> bool:
    if contract.forwarder is None:
        return await _has_code(reader, contract.address, "receiver", contract.receiver)
    return await _has_code(
        reader, contract.address, "forwarder", contract.forwarder, FACTORY
    ) and await _has_code(reader, contract.forwarder, "receiver", contract.receiver, FORWARDER)


async def _has_code(
    reader: RpcChainReader, address: bytes, immutable: str, value: bytes, name: str | None = None
) -> bool:
    """Query endpoints until one of them returns our code.

    A single endpoint therefore cannot halt the chain. `name` is the name of the compiled contract.
    None means any supported payment contract.
    """
    has_response = False
    for endpoint in reader.names:
        try:
            code = await reader.fetch_code(endpoint, address)
        except ChainUnavailableError:
            continue
        has_response = True
        if _has_immutable(code, immutable, value, name):
            return True
    if not has_response:
        raise ChainUnavailableError("no endpoint returns the code of a contract")
    return False


def _has_immutable(code: bytes, immutable: str, value: bytes, name: str | None) -> bool:
    read = load_runtime_code(name).read_immutables if name else read_immutables
    values = read(code)
    return values is not None and values[immutable][-_ADDRESS_BYTES:] == value


async def token_decimals_match(
    chain: str, reader: RpcChainReader, tokens: Sequence[TokenRecord]
) -> bool:
    """Return whether every enabled token has the configured decimals.

    Otherwise the chain must not be watched: confusing 6 decimals with 18 changes an amount by a
    factor of 10^12. Raises `ChainUnavailableError` if no endpoint responds.
    """
    for token in tokens:
        if token.enabled and token.address is not None and not token.native:
            decimals = await _fetch_decimals(reader, token.address, token.decimals)
            if decimals != token.decimals:
                _token_log.error("token_misfit", chain=chain, token=token.symbol, decimals=decimals)
                return False
    return True


async def _fetch_decimals(
    reader: RpcChainReader, token: bytes, expected_decimals: int
) -> int | None:
    """Query endpoints for the expected decimals; if none returns them, return the last response.

    A single endpoint therefore cannot halt the chain. None means that the token or its `decimals`
    function does not exist.
    """
    has_response, decimals = False, None
    for name in reader.names:
        try:
            response = await reader.call(name, token, encode_decimals())
            decimals = to_uint(response) if len(response) == WORD else None
        except CallRevertedError:
            decimals = None
        except ChainUnavailableError:
            continue
        has_response = True
        if decimals == expected_decimals:
            return decimals
    if not has_response:
        raise ChainUnavailableError("no endpoint returns the decimals of a token")
    return decimals
