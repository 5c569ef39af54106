"""What the sandbox's service is told of its chains: contract, tokens, methods, where to read on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from payintent.evm.keccak import parse_address, to_checksum_address
from payintent.operations.base import Actor
from payintent.operations.chains import (
    AddContract,
    ChainView,
    ListChains,
    ResumeChain,
    RetireContract,
    SetChain,
)
from payintent.operations.payment_methods import AddPaymentMethod, ListPaymentMethods
from payintent.operations.tokens import SetToken
from payintent.service import Service
from payintent.storage.onchain import chain_watch, chains
from payintent_sandbox.chains.dev_chains import DevChain, DevChains
from payintent_sandbox.chains.rpc import open_chain

CONFIRMATIONS = 2
_BY_COUNT = "native"  # the others' nodes say themselves what is final


@dataclass(frozen=True, slots=True)
class ChainRegistration:
    """Tells one service of development chains, in the sandbox's name."""

    service: Service
    actor: Actor

    async def settle(self, dev_chains: DevChains, slug: str, merchants: Sequence[int]) -> DevChain:
        """Make a chain ready that has come back while it was watched (ChainError).

        It is read anew before anything is put there: a watcher that found other blocks where it
        has read some would halt it, and rightly.
        """
        await self._read_on(slug, dev_chains.url(slug))
        return await self.take(dev_chains, await dev_chains.stand(slug), merchants)

    async def take(
        self, dev_chains: DevChains, chain: DevChain, merchants: Sequence[int]
    ) -> DevChain:
        """Take payments on a chain, and offer its tokens at these merchants; gives the chain.

        A contract that was retired may not come back: where a chain began anew and has it at the
        same address, another one is deployed.
        """
        view = await self._view(chain.slug)
        while _address(chain) in {one.address for one in view.contracts if not one.current}:
            chain = await dev_chains.stand(chain.slug, anew=True)
        await self._read_on(chain.slug, chain.url)
        await self._set(chain)
        account_id = await self._contract(chain, view)
        for merchant_id in merchants:
            await self._offer(chain, account_id, merchant_id)
        return chain

    async def busy(self, slug: str) -> bool:
        """Tell whether somebody waits for a chain's blocks; nobody does for one that has halted."""
        cursor = await chains.get_cursor(self.service.database, slug)
        if cursor is not None and cursor.halted:
            return False
        if await chain_watch.is_unwatched(self.service.database, slug):
            return True  # nobody can be offered it until its watcher has seen it
        return await chains.is_busy(self.service.database, slug)

    async def _view(self, slug: str) -> ChainView:
        [view] = [one for one in await self._perform(ListChains()) if one.slug == slug]
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
        """Add the contract where it is new: then so is the chain, and the others are gone."""
        for one in before.contracts:
            if one.address == _address(chain):
                return one.account_id
        for one in before.contracts:
            if one.current:
                await self._perform(RetireContract(account_id=one.account_id))
        added = await self._perform(
            AddContract(
                chain=chain.slug,
                address=chain.deployment.contract_address,
                receiver=chain.deployment.receiver,
                deployed_block=chain.deployment.deployed_block,
            )
        )
        return added.account_id

    async def _read_on(self, slug: str, url: str) -> None:
        """Read a chain from its beginning where it lacks the last block that was read.

        A chain that was killed is some blocks younger than what was read of it, or all of them.
        What is kept already is not judged twice. Only a sandbox may do this: anywhere else a final
        block that is gone halts the chain.
        """
        cursor = await chains.get_cursor(self.service.database, slug)
        if cursor is None or (cursor.block == 0 and not cursor.halted):
            return
        async with open_chain(url) as rpc:
            block = await rpc.ask("eth_getBlockByNumber", hex(cursor.block), False)
        if block is None or cursor.hash is None or block["hash"] != f"0x{cursor.hash.hex()}":
            await self._perform(ResumeChain(chain=slug, block=0))

    async def _offer(self, chain: DevChain, account_id: int, merchant_id: int) -> None:
        methods = await self._perform(ListPaymentMethods(merchant_id=merchant_id))
        offered = {one.token for one in methods if one.account_id == account_id}
        view = await self._view(chain.slug)
        tokens = [one for one in view.tokens if one.enabled and one.address is not None]
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
        row = await chains.get_chain(self.service.database, slug)
        return row.name if row else slug

    async def _perform(self, operation: Any) -> Any:
        return await self.service.run_operation(operation, self.actor)


def _address(chain: DevChain) -> str:
    return to_checksum_address(parse_address(chain.deployment.contract_address))
