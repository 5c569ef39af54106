"""Simulate a buyer's wallet extension, with a real chain as its node."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import BrowserContext

from payintent_sandbox.chains.rpc import DevChainError, DevChainRpc
from tests.support.timeouts import PATIENCE_S

REJECTED = 4001
UNKNOWN_CHAIN = 4902
ELSEWHERE = 4242  # a chain without our contracts
POLL_S = 0.02
_SYMBOL_CHARS_MAX = 6
_BINDING = "walletRequest"

_PROVIDER = """
    request: async ({ method, params = [] }) => {
      const { result, error, silent } = await globalThis.walletRequest(method, params);
      if (silent) await new Promise(() => {});
      if (error) throw error.code ? Object.assign(new Error(error.message), error) : error.message;
      return result;
    },
"""
ANNOUNCED = f"""(() => {{
  const info = {{ uuid: "b8ae36d2-6c0e-4b0d-9d5c-0a6e3a6a1c11", name: "Test Wallet",
    icon: "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 2 2'>\
<circle cx='1' cy='1' r='1' fill='orange'/></svg>", rdns: "test.wallet" }};
  const detail = Object.freeze({{ info, provider: {{ {_PROVIDER} }} }});
  const announce = () =>
    dispatchEvent(new CustomEvent("eip6963:announceProvider", {{ detail }}));
  addEventListener("eip6963:requestProvider", announce);
  announce();
}})()"""
LEGACY = f"globalThis.ethereum = {{ {_PROVIDER} }};"


class WalletError(Exception):
    """An error response from the wallet. Without a code, the wallet throws a text."""

    def __init__(self, code: int, message: str, cause: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = {} if cause is None else {"originalError": {"code": cause}}


@dataclass
class Wallet:
    """An EIP-1193 provider with configurable user decisions and faults."""

    chain: DevChainRpc
    network_id: int  # the current network
    accounts: Sequence[str]
    known_chains: set[int]
    own_network_id: int  # the chain's network
    refusals: dict[str, WalletError] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    transactions: list[dict[str, Any]] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)
    added_chains: list[Mapping[str, Any]] = field(default_factory=list)
    overrides: dict[str, str] = field(default_factory=dict)  # replace fields of transactions
    ignores_switch: bool = False  # reports a network switch without switching
    silent_methods: set[str] = field(default_factory=set)  # never receive a response
    leaves_network_after: str = ""  # after this call, the user switches networks
    is_unblocked: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.is_unblocked.set()

    async def install(self, context: BrowserContext, script: str = ANNOUNCED) -> None:
        """Add the wallet to every page of a context, like an extension."""
        await context.expose_function(_BINDING, self.request)
        await context.add_init_script(script)

    async def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        """Implement `request` of EIP-1193."""
        self.calls.append(method)
        await self.is_unblocked.wait()
        if method in self.silent_methods:
            # The page waits, because a pending call would prevent the context from closing.
            return {"silent": True}
        try:
            return {"result": await self._respond(method, params)}
        except WalletError as error:
            return {"error": {"code": error.code, "message": str(error), "data": error.data}}
        except DevChainError as error:
            return {"error": {"code": -32603, "message": str(error)}}

    def count_calls(self, method: str) -> int:
        """Return the number of calls of a method."""
        return self.calls.count(method)

    async def wait_for_call(self, method: str, count: int) -> None:
        """Wait until a method has been called this many times."""
        async with asyncio.timeout(PATIENCE_S):
            while self.count_calls(method) < count:
                await asyncio.sleep(POLL_S)

    async def _respond(self, method: str, params: list[Any]) -> Any:
        if method in self.refusals:
            raise self.refusals.pop(method)
        result = await self._execute(method, params)
        if method == self.leaves_network_after:
            self.network_id = ELSEWHERE
        return result

    async def _execute(self, method: str, params: list[Any]) -> Any:
        match method:
            case "eth_requestAccounts":
                return self.accounts
            case "eth_chainId":
                return hex(self.network_id)
            case "wallet_switchEthereumChain":
                return self._switch(int(params[0]["chainId"], 16))
            case "wallet_addEthereumChain":
                return self._add(params[0])
            case "eth_sendTransaction":
                return await self._send(params[0])
        assert self.network_id == self.own_network_id, "a page must not query a different chain"
        return await self.chain.ask(method, *params)

    def _switch(self, network_id: int) -> None:
        if network_id not in self.known_chains:
            raise WalletError(UNKNOWN_CHAIN, f"Unrecognized chain ID {network_id}")
        if not self.ignores_switch:
            self.network_id = network_id

    def _add(self, chain: Mapping[str, Any]) -> None:
        """Add a chain with MetaMask's checks. The page must then request a switch."""
        urls = [chain["rpcUrls"], chain.get("blockExplorerUrls", ["https://none.test"])]
        symbol = chain["nativeCurrency"]["symbol"]
        fits = 1 <= len(symbol) <= _SYMBOL_CHARS_MAX
        secure = all(item.startswith("https://") for item in itertools.chain(*urls))
        if not (all(urls) and fits and secure and chain["nativeCurrency"]["decimals"] == 18):
            raise WalletError(-32602, f"Invalid chain parameters: {chain}")
        self.added_chains.append(chain)
        self.known_chains.add(int(chain["chainId"], 16))

    async def _send(self, transaction: dict[str, Any]) -> str:
        assert int(transaction["chainId"], 16) == self.network_id == self.own_network_id
        assert transaction["from"] in self.accounts
        self.transactions.append(transaction)
        self.hashes.append(
            await self.chain.ask("eth_sendTransaction", transaction | self.overrides)
        )
        return self.hashes[-1]
