"""A wallet for development chains. It signs transactions as a buyer's own wallet does."""

from dataclasses import dataclass, field
from typing import Any

from payintent_sandbox.chains.rpc import DevChainError, DevChainRpc

GAS_MAX = 300_000


@dataclass(frozen=True, slots=True)
class Wallet:
    """An account on a chain, with its key. The key is never sent to the chain."""

    chain: DevChainRpc
    address: str
    private_key: str = field(repr=False)

    async def send(self, to: str, data: str, value: int = 0) -> dict[str, Any]:
        """Send a transaction; return its receipt even if it failed. Raises `DevChainError`."""
        transaction = {
            "chainId": await self.chain.number("eth_chainId"),
            "nonce": await self.chain.number("eth_getTransactionCount", self.address, "pending"),
            "gasPrice": 2 * await self.chain.number("eth_gasPrice"),
            "gas": GAS_MAX,
            "to": bytes.fromhex(to[2:]),
            "value": value,
            "data": data,
        }
        signed = sign(transaction, self.private_key)
        return await self.chain.receipt(await self.chain.ask("eth_sendRawTransaction", signed))

    async def ask(self, to: str, data: str) -> int:
        """Call a contract function that returns a number. Raises `DevChainError`."""
        answer = await self.chain.ask("eth_call", {"to": to, "data": data}, "latest")
        if answer == "0x":
            raise DevChainError(f"there is no contract at {to}")
        return int(answer, 16)


def sign(transaction: dict[str, Any], private_key: str) -> str:
    """Sign a transaction for its `chainId` (EIP-155); return its bytes as hex digits with 0x."""
    from eth_account import Account  # imported on use, because the import takes a second

    return Account.sign_transaction(transaction, private_key).raw_transaction.to_0x_hex()
