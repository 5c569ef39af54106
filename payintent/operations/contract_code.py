"""Refuses a contract whose code, as any endpoint of its chain shows it, is not the compiled one."""

import asyncio

from payintent.domain.errors import Code, Refused
from payintent.evm.chain_reader import Reader, ReaderConfig, open_reader
from payintent.evm.rpc import Limits
from payintent.onchain.chain_checks import examine_contract
from payintent.operations.base import Desk
from payintent.storage.onchain.chains import ChainRow

_LIMITS = Limits(timeout_s=5.0, answer_bytes_max=256 * 1024)  # code has at most 24 KiB


async def check_code(desk: Desk, chain: ChainRow, address: bytes, receiver: bytes) -> None:
    """Refuse (`UNPROCESSABLE`) a contract that one endpoint does not show as ours, or not at all.

    Outside the sandbox a chain without endpoints in this process is refused too. In the sandbox
    nothing is compared there: no real money can go through such a contract.
    """
    if not desk.endpoints.get(chain.slug):
        if desk.sandbox:
            return
        raise Refused(
            Code.UNPROCESSABLE,
            f"the contract's code cannot be compared: PAYINTENT_RPC_{chain.slug.upper()} is empty",
        )
    reader = _open(desk, chain)
    try:
        found = await asyncio.gather(
            *(examine_contract(reader, name, address, receiver) for name in reader.names)
        )
    finally:
        await reader.close()
    if wrong := [finding.text for finding in found if not finding.right]:
        raise Refused(Code.UNPROCESSABLE, "; ".join(wrong))


def _open(desk: Desk, chain: ChainRow) -> Reader:
    config = ReaderConfig(network_id=chain.network_id, limits=_LIMITS)
    try:
        return open_reader(chain.slug, desk.endpoints[chain.slug], config)
    except ValueError as error:  # which names the endpoint, not its address
        problem = str(error)
    raise Refused(Code.UNPROCESSABLE, problem)
