"""Register the development chains with the sandbox's service: contracts, tokens, methods."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from payintent.chains import store as chain_store
from payintent.chains import watch_store as chain_watch_store
from payintent.chains.factory_operations import AddFactory
from payintent.chains.operations import (
    AddContract,
    ChainView,
    ListChains,
    ResumeChain,
    RetireContract,
    SetToken,
)
from payintent.evm.abi import parse_address, to_checksum_address
from payintent.merchants.methods_operations import AddPaymentMethod, ListPaymentMethods
from payintent.onchain.operations import SetChain
from payintent.operators.operation import Actor
from payintent.service import Service
from payintent_sandbox.chains.dev_chains import DevChain, DevChains
from payintent_sandbox.chains.rpc import open_chain

CONFIRMATIONS = 2
_BY_COUNT = "native"  # the nodes of all other chains report the final block


@dataclass(frozen=True, slots=True)
class ChainRegistration:
    """Registers development chains with a service, as the sandbox's actor."""

    service: Service
    actor: Actor

    async def settle(self, dev_chains: DevChains, slug: str, merchants: Sequence[int]) -> DevChain:
        """Prepare a chain that was restarted while it was watched. Raises `DevChainError`.

        The cursor is reset before anything is deployed, because a watcher halts the chain if the
        blocks that it has read have changed.
        """
        await self._reset_cursor(slug, dev_chains.url(slug))
        return await self.take(dev_chains, await dev_chains.make_ready(slug), merchants)

    async def take(
        self, dev_chains: DevChains, chain: DevChain, merchants: Sequence[int]
    ) -> DevChain:
        """Accept payments on a chain, and add its tokens to these merchants' methods.

        A retired contract cannot be added again. If a new chain has a contract at the address of a
        retired contract, another contract is deployed.
        """
        view = await self._view(chain.slug)
        while _address(chain) in {
            contract.address for contract in view.contracts if not contract.current
        }:
            chain = await dev_chains.make_ready(chain.slug, anew=True)
        await self._reset_cursor(chain.slug, chain.url)
        await self._set(chain)
        account_ids = [await self._contract(chain, view), await self._factory(chain, view)]
        for merchant_id in merchants:
            for account_id in account_ids:
                await self._offer(chain, account_id, merchant_id)
        return chain

    async def busy(self, slug: str) -> bool:
        """Return whether the service needs a chain's blocks; False for a halted chain."""
        cursor = await chain_store.get_cursor(self.service.database, slug)
        if cursor is not None and cursor.halted:
            return False
        if await chain_watch_store.is_unwatched(self.service.database, slug):
            return True  # its methods are not offered until the watcher has read the chain
        return await chain_watch_store.is_busy(self.service.database, slug)

    async def _view(self, slug: str) -> ChainView:
        [view] = [chain for chain in await self._perform(ListChains()) if chain.slug == slug]
        return view

    async def _set(self, chain: DevChain) -> None:
        by_count = chain.slug == _BY_COUNT
        await self._perform(
            SetChain(
                chain=chain.slug,
                finality="confirmations" if by_count else "finalized",
                confirmations=CONFIRMATIONS if by_count else None,
                public_rpc_urls=[chain.url],
                refunder=to_checksum_address(parse_address(chain.deployment.refunder)),
                sweeper=to_checksum_address(parse_address(chain.deployment.sweeper)),
            )
        )
        for token in chain.deployment.tokens:
            await self._perform(
                SetToken(
                    chain=chain.slug,
                    symbol=token.symbol,
                    address=token.address,
                    decimals=token.decimals,
                    approve_zero_first=token.approve_zero_first,
                    minimum=token.minimum,
                )
            )

    async def _contract(self, chain: DevChain, before: ChainView) -> int:
        """Add the contract if it is new, and retire contracts that the new chain lacks."""
        for contract in before.contracts:
            if contract.address == _address(chain):
                return contract.account_id
        for contract in before.contracts:
            if contract.current:
                await self._perform(RetireContract(account_id=contract.account_id))
        added = await self._perform(
            AddContract(
                chain=chain.slug,
                address=chain.deployment.contract_address,
                receiver=chain.deployment.receiver,
                deployed_block=chain.deployment.deployed_block,
            )
        )
        return added.account_id

    async def _factory(self, chain: DevChain, before: ChainView) -> int:
        """Add the deposit factory if it is new, and retire factories that the new chain lacks."""
        address = parse_address(chain.deployment.factory_address)
        for factory in before.factories:
            if factory.address == address:
                return factory.account_id
        for factory in before.factories:
            if factory.current:
                await self._perform(RetireContract(account_id=factory.account_id))
        added = await self._perform(
            AddFactory(
                chain=chain.slug,
                address=chain.deployment.factory_address,
                forwarder=chain.deployment.forwarder_address,
                receiver=chain.deployment.receiver,
                deployed_block=chain.deployment.deployed_block,
            )
        )
        return added.account_id

    async def _reset_cursor(self, slug: str, url: str) -> None:
        """Read a chain from block 0 again if it lacks the last block that was read.

        A chain that was killed may have lost blocks that were already read. Stored transfers are
        not settled twice. Only the sandbox resets a cursor; elsewhere, a lost final block halts the
        chain.
        """
        cursor = await chain_store.get_cursor(self.service.database, slug)
        if cursor is None or (cursor.block == 0 and not cursor.halted):
            return
        async with open_chain(url) as rpc:
            block = await rpc.ask("eth_getBlockByNumber", hex(cursor.block), False)
        if block is None or cursor.hash is None or block["hash"] != f"0x{cursor.hash.hex()}":
            await self._perform(ResumeChain(chain=slug, block=0))

    async def _offer(self, chain: DevChain, account_id: int, merchant_id: int) -> None:
        methods = await self._perform(ListPaymentMethods(merchant_id=merchant_id))
        offered = {method.token for method in methods if method.account_id == account_id}
        view = await self._view(chain.slug)
        tokens = [token for token in view.tokens if token.enabled and token.address is not None]
        if account_id in {factory.account_id for factory in view.factories}:
            tokens = [token for token in tokens if not token.native]
        for position, token in enumerate(tokens, start=len(methods)):
            if token.symbol in offered:
                continue
            await self._perform(
                AddPaymentMethod(
                    merchant_id=merchant_id,
                    account_id=account_id,
                    kind="onchain",
                    label=f"{token.symbol} on {await self._name(chain.slug)}",
                    currencies=[token.symbol],
                    token=token.symbol,
                    position=position,
                )
            )

    async def _name(self, slug: str) -> str:
        row = await chain_store.get_chain(self.service.database, slug)
        return row.name if row else slug

    async def _perform(self, operation: Any) -> Any:
        return await self.service.run_operation(operation, self.actor)


def _address(chain: DevChain) -> bytes:
    return parse_address(chain.deployment.contract_address)
