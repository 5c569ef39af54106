"""Refuses a contract whose code, as any endpoint of its chain shows it, is not the compiled one."""

import asyncio

from payintent.domain.errors import UnprocessableError
from payintent.evm.chain_reader import ReaderConfig, RpcChainReader, open_chain_reader
from payintent.evm.rpc import RpcLimits
from payintent.onchain.chain_checks import examine_contract
from payintent.operations.base import OperationContext
from payintent.storage.onchain.chains import ChainRecord

_LIMITS = RpcLimits(timeout_s=5.0, answer_bytes_max=256 * 1024)  # code has at most 24 KiB


async def check_code(
    context: OperationContext, chain: ChainRecord, address: bytes, receiver: bytes
) -> None:
    """Raise `UNPROCESSABLE` where an endpoint shows other code than ours, or none.

    Outside the sandbox a chain without endpoints in this process is refused too. In the sandbox
    nothing is compared: no real money can go through such a contract.
    """
    if not context.settings.endpoints.get(chain.slug):
        if context.settings.sandbox:
            return
        raise UnprocessableError(
            f"the contract's code cannot be compared: PAYINTENT_RPC_{chain.slug.upper()} is empty"
        )
    reader = _open(context, chain)
    try:
        found = await asyncio.gather(
            *(examine_contract(reader, name, address, receiver) for name in reader.names)
        )
    finally:
        await reader.close()
    if wrong := [finding.text for finding in found if not finding.right]:
        raise UnprocessableError("; ".join(wrong))


def _open(context: OperationContext, chain: ChainRecord) -> RpcChainReader:
    config = ReaderConfig(
        network_id=chain.network_id, limits=_LIMITS, tls=context.settings.client_tls
    )
    try:
        return open_chain_reader(chain.slug, context.settings.endpoints[chain.slug], config)
    except ValueError as error:  # its message names the endpoint, not its address
        problem = str(error)
    raise UnprocessableError(problem)
