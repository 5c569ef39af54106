"""Compares the contracts that are offered with their code on the chain, before it is watched."""

from collections.abc import Sequence

from payintent.domain.errors import ChainUnavailableError
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.contract_abi import read_immutables
from payintent.evm.keccak import to_checksum_address
from payintent.log import get_logger
from payintent.storage.onchain.chains import DeployedContract

_log = get_logger("contracts")
_ADDRESS_BYTES = 20


async def contracts_match(
    chain: str, reader: RpcChainReader, contracts: Sequence[DeployedContract]
) -> bool:
    """Tell whether every contract that is offered has our code, and pays to its receiver.

    Other code could log payments that nobody made, and no code takes coins without a log: such a
    chain is not watched. A retired contract is not compared: what was asked for through it may
    still be paid. Raises `ChainUnavailableError` where no endpoint answers.
    """
    for contract in contracts:
        if contract.current and not await _is_ours(reader, contract):
            address = to_checksum_address(contract.address)
            _log.error("contract_misfit", chain=chain, contract=address)
            return False
    return True


async def _is_ours(reader: RpcChainReader, contract: DeployedContract) -> bool:
    """Ask one endpoint after the other until one shows our code: one alone halts no chain."""
    answered = False
    for name in reader.names:
        try:
            code = await reader.code(name, contract.address)
        except ChainUnavailableError:
            continue
        answered = True
        immutables = read_immutables(code)
        if immutables is not None and immutables["receiver"][-_ADDRESS_BYTES:] == contract.receiver:
            return True
    if not answered:
        raise ChainUnavailableError("no endpoint shows a contract's code")
    return False
