"""Blocks on a development chain while somebody waits for them, and its care after a death."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from payintent.domain.errors import LockTimeoutError, RefusedError, StorageUnavailableError
from payintent_sandbox.chains.dev_chains import instance
from payintent_sandbox.chains.rpc import DevChainError, DevChainRpc

BEAT_S = 1.0
FINAL_DEPTH = 2  # blocks that stand on a final one, on every development chain


@dataclass(slots=True)
class Miner:
    """Makes a block a second on one chain, but none while nobody waits: every block is kept.

    `busy` tells whether the service waits; `back` is called when another instance of the chain
    answers than `known`, for what it has lost, and gives that instance's name.
    """

    chain: DevChainRpc
    known: str
    busy: Callable[[], Awaitable[bool]]
    back: Callable[[], Awaitable[str]]

    async def run(self) -> None:
        """Go on until cancelled; a chain or a database that is away is waited for."""
        while True:
            try:
                await self.beat()
            except (DevChainError, StorageUnavailableError, LockTimeoutError):
                pass  # whoever supervises it says so
            except RefusedError as refused:
                print(f"dev chain at {self.chain.url}: {refused.message}", flush=True)
            await asyncio.sleep(BEAT_S)

    async def beat(self) -> None:
        """Look once, and make a block where one is waited for."""
        if await instance(self.chain) != self.known:
            self.known = await self.back()
        if await self._unsettled() or await self.busy():
            await self.chain.ask("evm_mine")

    async def _unsettled(self) -> bool:
        """Tell whether a transaction is not final yet, whoever has sent it."""
        head = await self.chain.number("eth_blockNumber")
        for number in range(max(0, head - FINAL_DEPTH + 1), head + 1):
            block = await self.chain.ask("eth_getBlockByNumber", hex(number), False)
            if block is not None and block["transactions"]:
                return True
        return False
