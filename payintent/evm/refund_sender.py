"""Refunds on one chain: its signer sends them, and its endpoints say what became of them."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from payintent.domain.errors import ChainDown
from payintent.domain.evm import Reverted
from payintent.domain.gateway import NotContacted, Unknown
from payintent.domain.onchain_refund import AlreadyRefunded, Fate, RefundCall, Refunder
from payintent.evm.chain_reader import Reader, ReaderConfig, open_reader
from payintent.evm.rpc import Limits
from payintent.evm.signer import DONE, Signer, encoded, open_signers
from payintent.log import get

_TRACE_S = 15.0
_ROUND_S = 5.0
_SUCCESS = 1
_log = get("refunder")


class ChainRefunder(Refunder):
    """Implements `Refunder` for a chain that has a signer, and endpoints or at least the signer."""

    def __init__(
        self, chain: str, signer: Signer, urls: Sequence[str], clock: Callable[[], float]
    ) -> None:
        self._chain = chain
        self._urls = urls
        self._clock = clock
        self._reader: Reader | None = None
        self.signer = signer

    async def close(self) -> None:
        """Close all connections."""
        await self.signer.close()
        if self._reader is not None:
            await self._reader.close()

    async def estimate(
        self, sender: bytes, call: RefundCall
    ) -> int | AlreadyRefunded | NotContacted:
        """Give the gas that a refund needs."""
        return await self.signer.estimate(sender, call)

    async def send(self, sender: bytes, call: RefundCall, gas: int) -> bytes | Unknown:
        """Have a refund signed and sent."""
        return await self.signer.send(sender, call, gas)

    async def trace(
        self, sender: bytes, call: RefundCall, tx_hash: bytes | None, read_up_to: int
    ) -> Fate | Unknown:
        """Ask the endpoints what became of a refund; one that lies can only delay it.

        Sending again what was done is refused by the contract, and a log alone settles a refund.
        """
        if self._reader is None:
            try:
                self._reader = self._open(call.network_id)
            except ValueError:
                return Unknown(detail="an endpoint's address is none")
        try:
            async with asyncio.timeout(_TRACE_S):
                return await _trace(self._reader, sender, call, tx_hash, read_up_to)
        except TimeoutError:
            return Unknown(detail="the endpoints do not answer in time")

    def _open(self, network_id: int) -> Reader:
        config = ReaderConfig(network_id=network_id, limits=Limits(timeout_s=_ROUND_S))
        return open_reader(self._chain, self._urls, config, self._clock)


class Refunders(dict[str, ChainRefunder]):
    """The chains that have a signer."""

    async def close(self) -> None:
        """Close all connections."""
        for one in self.values():
            await one.close()


def open_refunders(
    signers: Mapping[str, str],
    endpoints: Mapping[str, Sequence[str]],
    clock: Callable[[], float] = time.monotonic,
) -> Refunders:
    """Make what sends refunds, for every chain with a signer and endpoints, by their addresses."""
    opened = open_signers(signers, clock)
    return Refunders(
        {
            chain: ChainRefunder(chain, signer, endpoints[chain], clock)
            for chain, signer in opened.items()
            if endpoints.get(chain)
        }
    )


async def _trace(
    reader: Reader, sender: bytes, call: RefundCall, tx_hash: bytes | None, read_up_to: int
) -> Fate | Unknown:
    fate = Fate.UNSEEN if tx_hash is None else await _fate(reader, tx_hash, read_up_to)
    if fate is Fate.UNDER_WAY or isinstance(fate, Unknown):
        return fate
    state = await _state(reader, sender, call)  # by another transaction than this one, perhaps
    return fate if state is Fate.UNSEEN else state


async def _fate(reader: Reader, tx_hash: bytes, read_up_to: int) -> Fate | Unknown:
    """Look a transaction up; who knows it is believed before those who do not."""
    answered = False
    for name in reader.names:
        try:
            [tx] = await reader.transactions(name, [tx_hash])
            [receipt] = await reader.receipts(name, [tx_hash])
        except ChainDown:
            continue
        answered = True
        if receipt is not None and receipt.status != _SUCCESS:
            final = receipt.block_number <= read_up_to
            return Fate.REVERTED if final else Fate.UNDER_WAY
        if receipt is not None or tx is not None:
            return Fate.UNDER_WAY
    return Fate.UNSEEN if answered else Unknown(detail="no endpoint answers")


async def _state(reader: Reader, sender: bytes, call: RefundCall) -> Fate | Unknown:
    """Ask the contract: it refuses a refund that it has done before it looks for any funds."""
    for name in reader.names:
        try:
            await reader.call(name, call.contract, encoded(call), sender=sender)
        except Reverted as reverted:
            return Fate.UNDER_WAY if reverted.reason == DONE else Fate.UNSEEN
        except ChainDown:
            continue
        return Fate.UNSEEN
    return Unknown(detail="no endpoint answers")
