"""A buyer's wallet, which is in the page like an extension, with a real chain as its node."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import BrowserContext

from payintent_sandbox.chains.rpc import DevChainError, DevChainRpc
from tests.support.patience import PATIENCE_S

REJECTED = 4001
UNKNOWN_CHAIN = 4902
ELSEWHERE = 4242  # a chain on which nothing of ours is
LOOK_S = 0.02
_SYMBOL_CHARS_MAX = 6
_BINDING = "walletRequest"

_PROVIDER = """
    request: async ({ method, params = [] }) => {
      const { result, error, silent } = await globalThis.walletRequest(method, params);
      if (silent) await new Promise(() => {});
      if (error) throw Object.assign(new Error(error.message), error);
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
    """A wallet's response in place of a result."""

    def __init__(self, code: int, message: str, cause: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = {} if cause is None else {"originalError": {"code": cause}}


@dataclass
class Wallet:
    """An EIP-1193 provider with a person's decisions."""

    chain: DevChainRpc
    network_id: int  # where it is now
    accounts: Sequence[str]
    known: set[int]
    own: int  # the network that the chain is
    refuses: dict[str, WalletError] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)
    added: list[Mapping[str, Any]] = field(default_factory=list)
    changes: dict[str, str] = field(default_factory=dict)  # to what is sent
    stays: bool = False  # it says that it has switched, and has not
    silent: set[str] = field(default_factory=set)  # what it never answers
    leaves_after: str = ""  # its owner switches it elsewhere, once this was asked
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.answers.set()

    async def stand_in(self, context: BrowserContext, script: str = ANNOUNCED) -> None:
        """Be in every page of a browser's context, past its policy as an extension is."""
        await context.expose_function(_BINDING, self.request)
        await context.add_init_script(script)

    async def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        """Implement `request` of EIP-1193."""
        self.asked.append(method)
        await self.answers.wait()
        if method in self.silent:
            return {"silent": True}  # the page waits, and not this call: a context could not close
        try:
            return {"result": await self._answer(method, params)}
        except WalletError as error:
            return {"error": {"code": error.code, "message": str(error), "data": error.data}}
        except DevChainError as error:
            return {"error": {"code": -32603, "message": str(error)}}

    def times(self, method: str) -> int:
        """Return the number of calls of a method."""
        return self.asked.count(method)

    async def is_asked(self, method: str, count: int) -> None:
        """Wait until a method was called this many times."""
        async with asyncio.timeout(PATIENCE_S):
            while self.times(method) < count:
                await asyncio.sleep(LOOK_S)

    async def _answer(self, method: str, params: list[Any]) -> Any:
        if method in self.refuses:
            raise self.refuses.pop(method)
        result = await self._do(method, params)
        if method == self.leaves_after:
            self.network_id = ELSEWHERE
        return result

    async def _do(self, method: str, params: list[Any]) -> Any:
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
        assert self.network_id == self.own, "a page asks nothing of another chain"
        return await self.chain.ask(method, *params)

    def _switch(self, network_id: int) -> None:
        if network_id not in self.known:
            raise WalletError(UNKNOWN_CHAIN, f"Unrecognized chain ID {network_id}")
        if not self.stays:
            self.network_id = network_id

    def _add(self, asked: Mapping[str, Any]) -> None:
        """Add a chain, with the checks of the most common wallet. Switching is a separate call."""
        urls = [asked["rpcUrls"], asked.get("blockExplorerUrls", ["https://none.test"])]
        symbol = asked["nativeCurrency"]["symbol"]
        fits = 1 <= len(symbol) <= _SYMBOL_CHARS_MAX
        secure = all(item.startswith("https://") for item in itertools.chain(*urls))
        if not (all(urls) and fits and secure and asked["nativeCurrency"]["decimals"] == 18):
            raise WalletError(-32602, f"Expected another chain than {asked}")
        self.added.append(asked)
        self.known.add(int(asked["chainId"], 16))

    async def _send(self, asked: dict[str, Any]) -> str:
        assert int(asked["chainId"], 16) == self.network_id == self.own
        assert asked["from"] in self.accounts
        self.sent.append(asked)
        self.hashes.append(await self.chain.ask("eth_sendTransaction", asked | self.changes))
        return self.hashes[-1]
