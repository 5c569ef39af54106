"""Check that all endpoints of a chain show the compiled code of our contract."""

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
    """Raise `UNPROCESSABLE` if an endpoint shows other code or none.

    Outside the sandbox, a chain without endpoints in this process is rejected too. The sandbox
    skips the check, because its contracts never hold real money.
    """
    if not context.settings.endpoints.get(chain.slug):
        if context.settings.sandbox:
            return
        raise UnprocessableError(
            f"the contract cannot be checked: PAYINTENT_RPC_{chain.slug.upper()} is empty"
        )
    reader = _open_reader(context, chain)
    try:
        results = await asyncio.gather(
            *(examine_contract(reader, name, address, receiver) for name in reader.names)
        )
    finally:
        await reader.close()
    if problems := [result.text for result in results if not result.right]:
        raise UnprocessableError("; ".join(problems))


def _open_reader(context: OperationContext, chain: ChainRecord) -> RpcChainReader:
    config = ReaderConfig(
        network_id=chain.network_id, limits=_LIMITS, tls=context.settings.client_tls
    )
    try:
        return open_chain_reader(chain.slug, context.settings.endpoints[chain.slug], config)
    except ValueError as error:  # the message has the endpoint's name, not its URL
        problem = str(error)
    raise UnprocessableError(problem)
