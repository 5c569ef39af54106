"""Mine blocks on a development chain when needed, and restore the chain after a restart."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from payintent.core.errors import LockTimeoutError, RefusedError, StorageUnavailableError
from payintent_sandbox.chains.dev_chains import instance
from payintent_sandbox.chains.rpc import DevChainError, DevChainRpc

INTERVAL_S = 1.0
FINAL_DEPTH = 2  # blocks after the final block, on every development chain


@dataclass(slots=True)
class Miner:
    """Mines a block per second, but only while blocks are needed, because all blocks are stored.

    `busy` returns whether the service needs blocks. `restore` is called when anvil's id is not
    `instance_id`: it deploys the lost contracts and returns the new id.
    """

    chain: DevChainRpc
    instance_id: str
    busy: Callable[[], Awaitable[bool]]
    restore: Callable[[], Awaitable[str]]

    async def run(self) -> None:
        """Run until cancelled. Retry if the chain or the database is unreachable."""
        while True:
            try:
                await self.mine_once()
            except (DevChainError, StorageUnavailableError, LockTimeoutError):
                pass  # the supervisor reports it
            except RefusedError as refused:
                print(f"dev chain at {self.chain.url}: {refused.message}", flush=True)
            await asyncio.sleep(INTERVAL_S)

    async def mine_once(self) -> None:
        """Mine a block if one is needed."""
        if await instance(self.chain) != self.instance_id:
            self.instance_id = await self.restore()
        if await self._unsettled() or await self.busy():
            await self.chain.ask("evm_mine")

    async def _unsettled(self) -> bool:
        """Return whether any sender has a transaction that is not final yet."""
        head = await self.chain.number("eth_blockNumber")
        for number in range(max(0, head - FINAL_DEPTH + 1), head + 1):
            block = await self.chain.ask("eth_getBlockByNumber", hex(number), False)
            if block is not None and block["transactions"]:
                return True
        return False
