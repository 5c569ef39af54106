"""Compare current contracts with their code on the chain before the chain is watched."""

from collections.abc import Sequence

from payintent.domain.errors import ChainUnavailableError
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.contract_abi import read_immutables
from payintent.evm.keccak import to_checksum_address
from payintent.log import get_logger
from payintent.storage.onchain.chains import DeployedContract

_contract_log = get_logger("contracts")
_ADDRESS_BYTES = 20


async def contracts_match(
    chain: str, reader: RpcChainReader, contracts: Sequence[DeployedContract]
) -> bool:
    """Return True if every current contract has our code and the configured receiver.

    If not, the chain is not watched: unknown code could log payments that were never made, and a
    missing contract accepts coins without a log. Retired contracts are not compared, because open
    payments through them may still arrive. Raises `ChainUnavailableError` if no endpoint answers.
    """
    for contract in contracts:
        if contract.current and not await _has_our_code(reader, contract):
            address = to_checksum_address(contract.address)
            _contract_log.error("contract_misfit", chain=chain, contract=address)
            return False
    return True


async def _has_our_code(reader: RpcChainReader, contract: DeployedContract) -> bool:
    """Query endpoints until our code is found, so that none can halt the chain alone."""
    has_answer = False
    for name in reader.names:
        try:
            code = await reader.code(name, contract.address)
        except ChainUnavailableError:
            continue
        has_answer = True
        immutables = read_immutables(code)
        if immutables is not None and immutables["receiver"][-_ADDRESS_BYTES:] == contract.receiver:
            return True
    if not has_answer:
        raise ChainUnavailableError("no endpoint returns the code of a contract")
    return False
