"""Send a chain's refunds through its signer, and trace them through its endpoints."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from payintent.core.errors import ChainUnavailableError
from payintent.evm.chain_reader import ReaderConfig, RpcChainReader
from payintent.evm.port import (
    CallRevertedError,
    ContractRefundCall,
    RefundTransactionState,
)
from payintent.evm.rpc import RpcLimits
from payintent.evm.signer import ALREADY_REFUNDED, ExternalSigner, encode_refund_call, open_signers
from payintent.gateways.port import OutcomeUnknown
from payintent.runtime.log import get_logger

if TYPE_CHECKING:
    import ssl

_TRACE_TIMEOUT_S = 15.0
_REQUEST_TIMEOUT_S = 5.0
_SUCCESS = 1
_log = get_logger("refunder")


class RpcRefundSender:
    """Sends refunds on a chain through an external signer, which holds the keys."""

    def __init__(
        self,
        chain: str,
        signer: ExternalSigner,
        urls: Sequence[str],
        clock: Callable[[], float],
        tls: "ssl.SSLContext | None" = None,
    ) -> None:
        self._chain = chain
        self._urls = urls
        self._clock = clock
        self._tls = tls
        self._reader: RpcChainReader | None = None
        self.signer = signer

    async def close(self) -> None:
        await self.signer.close()
        if self._reader is not None:
            await self._reader.close()

    async def trace(
        self, sender: bytes, call: ContractRefundCall, tx_hash: bytes | None, last_final_block: int
    ) -> RefundTransactionState | OutcomeUnknown:
        """Query the endpoints for a refund's state, given the last final block.

        A wrong response can only delay the refund. The contract rejects a second transaction for
        the refund, and only a log settles it.
        """
        if self._reader is None:
            try:
                self._reader = self._open_reader(call.network_id)
            except ValueError:
                return OutcomeUnknown(detail="an endpoint has an invalid URL")
        try:
            async with asyncio.timeout(_TRACE_TIMEOUT_S):
                return await _trace(self._reader, sender, call, tx_hash, last_final_block)
        except TimeoutError:
            return OutcomeUnknown(detail="the endpoints did not respond in time")

    def _open_reader(self, network_id: int) -> RpcChainReader:
        limits = RpcLimits(timeout_s=_REQUEST_TIMEOUT_S)
        config = ReaderConfig(network_id=network_id, limits=limits, tls=self._tls)
        return RpcChainReader(self._chain, self._urls, config, self._clock)


class RefundSenders(dict[str, RpcRefundSender]):
    """Refund senders by chain; only chains with a signer are included."""

    async def close(self) -> None:
        for sender in self.values():
            await sender.close()


def open_refund_senders(
    signers: Mapping[str, str],
    endpoints: Mapping[str, Sequence[str]],
    clock: Callable[[], float] = time.monotonic,
    tls: "ssl.SSLContext | None" = None,
) -> RefundSenders:
    """Open a refund sender for each chain with both a signer and endpoints (URLs by chain)."""
    return RefundSenders(
        {
            chain: RpcRefundSender(chain, signer, endpoints[chain], clock, tls)
            for chain, signer in open_signers(signers, clock, tls).items()
            if endpoints.get(chain)
        }
    )


async def _trace(
    reader: RpcChainReader,
    sender: bytes,
    call: ContractRefundCall,
    tx_hash: bytes | None,
    last_final_block: int,
) -> RefundTransactionState | OutcomeUnknown:
    tx_state: RefundTransactionState | OutcomeUnknown = RefundTransactionState.UNKNOWN
    if tx_hash is not None:
        tx_state = await _find_transaction_state(reader, tx_hash, last_final_block)
    if tx_state is RefundTransactionState.PENDING or isinstance(tx_state, OutcomeUnknown):
        return tx_state
    # A different transaction may have executed this refund.
    state = await _query_contract(reader, sender, call)
    return tx_state if state is RefundTransactionState.UNKNOWN else state


async def _find_transaction_state(
    reader: RpcChainReader, tx_hash: bytes, last_final_block: int
) -> RefundTransactionState | OutcomeUnknown:
    """Look up a transaction. If any endpoint knows it, that endpoint's response is used."""
    has_response = False
    for name in reader.names:
        try:
            [tx] = await reader.fetch_transactions(name, [tx_hash])
            [receipt] = await reader.fetch_receipts(name, [tx_hash])
        except ChainUnavailableError:
            continue
        has_response = True
        if receipt is not None and receipt.status != _SUCCESS:
            is_final = receipt.block_number <= last_final_block
            return RefundTransactionState.REVERTED if is_final else RefundTransactionState.PENDING
        if receipt is not None or tx is not None:
            return RefundTransactionState.PENDING
    if has_response:
        return RefundTransactionState.UNKNOWN
    return OutcomeUnknown(detail="no endpoint responded")


async def _query_contract(
    reader: RpcChainReader, sender: bytes, call: ContractRefundCall
) -> RefundTransactionState | OutcomeUnknown:
    """Simulate the refund. The contract rejects repeated refunds before it checks the funds."""
    for name in reader.names:
        try:
            await reader.call(name, call.contract, encode_refund_call(call), sender=sender)
        except CallRevertedError as error:
            is_refunded = error.reason == ALREADY_REFUNDED
            return RefundTransactionState.PENDING if is_refunded else RefundTransactionState.UNKNOWN
        except ChainUnavailableError:
            continue
        return RefundTransactionState.UNKNOWN
    return OutcomeUnknown(detail="no endpoint responded")
