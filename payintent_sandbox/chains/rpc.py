"""JSON-RPC client for a development chain: calls, and transactions of its unlocked accounts."""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import aiohttp

REQUEST_TIMEOUT_S = 30.0
MINED_TIMEOUT_S = 30.0
POLL_S = 0.02


class DevChainError(Exception):
    """A development chain is unreachable or rejects a call. The message is a single line."""


class UnreachableDevChainError(DevChainError):
    """A development chain does not respond."""


class DevChainRpc:
    """A development chain. Anvil signs for its accounts, so the client has no keys."""

    def __init__(self, url: str, client: "aiohttp.ClientSession") -> None:
        self.url = url
        self._client = client
        self._ids = itertools.count(1)

    async def ask(self, method: str, *params: Any) -> Any:
        """Call a method and return its result. Raises `DevChainError`."""
        import aiohttp  # imported on use, because most commands do not call a chain

        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        try:
            async with self._client.post(self.url, json=body) as answer:
                content = await answer.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise UnreachableDevChainError(
                f"{self.url} does not respond: {type(error).__name__}"
            ) from None
        if "error" in content:
            raise DevChainError(f"{method}: {content['error'].get('message')}")
        return content.get("result")

    async def number(self, method: str, *params: Any) -> int:
        """Call a method whose result is a hexadecimal number."""
        return int(await self.ask(method, *params), 16)

    async def send(
        self, sender: str, to: str | None, data: str = "0x", value: int = 0
    ) -> dict[str, Any]:
        """Send a transaction from an unlocked account, and return its receipt once it is mined."""
        transaction = {"from": sender, "to": to, "data": data, "value": hex(value)}
        tx_hash = await self.ask("eth_sendTransaction", transaction)
        receipt = await self.receipt(tx_hash)
        if receipt["status"] != "0x1":
            await self.ask("eth_call", transaction, "latest")  # usually fails again, with a reason
            raise DevChainError(f"{tx_hash} was reverted")
        return receipt

    async def receipt(self, tx_hash: str) -> dict[str, Any]:
        """Wait for a receipt. The call that sends a transaction does not wait until it is mined."""
        deadline = time.monotonic() + MINED_TIMEOUT_S
        while time.monotonic() < deadline:
            receipt = await self.ask("eth_getTransactionReceipt", tx_hash)
            if receipt is not None:
                return receipt
            await asyncio.sleep(POLL_S)
        raise DevChainError(f"{tx_hash} was not mined in time")


@asynccontextmanager
async def open_chain(url: str) -> AsyncGenerator[DevChainRpc]:
    """Open a client for a chain."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as client:
        yield DevChainRpc(url, client)
