"""JSON-RPC client for an external signer, which holds the keys and signs and sends transactions.

The service requests transactions and never sees a key. `NotContacted` means that nothing was
sent; `OutcomeUnknown` means that the signer may have sent the transaction.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from prometheus_client import Counter

from payintent.core.errors import ChainUnavailableError
from payintent.evm import abi
from payintent.evm.abi import to_hex
from payintent.evm.event_logs import read_revert
from payintent.evm.port import (
    AlreadyRefunded,
    CallRevertedError,
    ContractRefundCall,
    GasExceeded,
    SweepCall,
)
from payintent.evm.rpc import (
    RpcCall,
    RpcEndpoint,
    RpcErrorResponse,
    RpcLimits,
    RpcResponse,
    make_session,
    require_result,
)
from payintent.evm.rpc_responses import (
    read_addresses,
    read_bytes,
    read_rpc_number,
    read_tx_hash,
    read_uint256,
)
from payintent.gateways.port import NotContacted, OutcomeUnknown
from payintent.runtime.log import get_logger

if TYPE_CHECKING:
    import ssl

_MARGIN_DIVISOR = 4  # adds a quarter, because balances may change before the refund is mined
_ESTIMATE_TIMEOUT_S = 7.0  # for all requests before the transaction is sent
_SEND_TIMEOUT_S = 8.0  # a signer may be slow; both limits together stay within 15 s
_RESPONSE_BYTES_MAX = 1024 * 1024
#: The contract's revert reason if it has already executed this sender's refund.
ALREADY_REFUNDED = "already refunded"
_NO_FUNDS = re.compile(r"insufficient funds|exceeds (allowance|balance)", re.IGNORECASE)

REFUNDS_BLOCKED = Counter(
    "payintent_chain_refunds_waiting_total",
    "Failed attempts to send a refund, by reason",
    ["chain", "why"],
)
SWEEPS_BLOCKED = Counter(
    "payintent_chain_sweeps_blocked_total",
    "Failed attempts to send a sweep, by reason",
    ["chain", "why"],
)
_log = get_logger("signer")
SignerCall = ContractRefundCall | SweepCall


class RefundBlocker(StrEnum):
    UNREACHABLE = "away"
    WRONG_CHAIN = "another_chain"
    NO_KEY = "no_key"
    FUNDS = "funds"
    REVERTED = "reverted"
    NO_CONTRACT = "no_contract"
    GAS = "gas"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class SignerIdentity:
    network_id: int
    senders: Sequence[bytes]


class ExternalSigner:
    """A chain's external signer; the connection is opened on the first request."""

    def __init__(
        self,
        chain: str,
        url: str,
        clock: Callable[[], float] = time.monotonic,
        tls: "ssl.SSLContext | None" = None,
    ) -> None:
        self._chain = chain
        self._session = make_session(tls)
        self._endpoint = RpcEndpoint(
            chain,
            f"{chain}-signer",
            url,
            limits=RpcLimits(
                timeout_s=_ESTIMATE_TIMEOUT_S, response_bytes_max=_RESPONSE_BYTES_MAX, batch_max=1
            ),
            session=self._session,
            clock=clock,
        )

    async def close(self) -> None:
        await self._session.close()

    async def get_identity(self) -> SignerIdentity:
        """Return the signer's chain and senders. Raises `ChainUnavailableError`."""
        return await self._endpoint.request(_IDENTITY_CALLS, _read_identity)

    async def get_balance(self, sender: bytes) -> int:
        """Return a sender's balance of the native coin. Raises `ChainUnavailableError`."""
        call = RpcCall("eth_getBalance", [to_hex(sender), "latest"])
        return await self._endpoint.request(
            [call], lambda responses: read_uint256(require_result(responses[0]))
        )

    async def estimate(
        self, sender: bytes, call: SignerCall, gas_max: int
    ) -> int | AlreadyRefunded | GasExceeded | NotContacted:
        """Estimate a call's gas and add up to a quarter; nothing is signed or sent."""
        calls = (
            *_IDENTITY_CALLS,
            RpcCall("eth_getCode", [to_hex(call.contract), "latest"]),
            RpcCall("eth_estimateGas", [_build_transaction(sender, call)]),
        )
        try:
            async with asyncio.timeout(_ESTIMATE_TIMEOUT_S):
                identity, code, gas = await self._endpoint.request(calls, _read_estimate)
        except (ChainUnavailableError, TimeoutError) as error:
            return self._report_blocked(
                call, RefundBlocker.UNREACHABLE, str(error) or "the signer did not respond in time"
            )
        if identity.network_id != call.network_id:
            return self._report_blocked(
                call, RefundBlocker.WRONG_CHAIN, f"the signer is on chain {identity.network_id}"
            )
        if sender not in identity.senders:
            return self._report_blocked(
                call, RefundBlocker.NO_KEY, f"the signer has no key for {to_hex(sender)}"
            )
        if not code:  # the call would spend coins without effect
            return self._report_blocked(
                call, RefundBlocker.NO_CONTRACT, f"there is no contract at {to_hex(call.contract)}"
            )
        if isinstance(gas, int):
            return self._add_margin(call, gas, gas_max)
        return self._explain_failure(call, gas)

    async def get_gas_price(self) -> int:
        """Return the price that the node suggests. Raises `ChainUnavailableError`."""
        call = RpcCall("eth_gasPrice", [])
        return await self._endpoint.request(
            [call], lambda responses: read_uint256(require_result(responses[0]))
        )

    async def has_pending_transactions(self, sender: bytes) -> bool:
        """Return whether the node knows of a sender's unmined transactions.

        Raises `ChainUnavailableError`.
        """
        calls = [
            RpcCall("eth_getTransactionCount", [to_hex(sender), tag])
            for tag in ("latest", "pending")
        ]
        mined_count, pending_count = await self._endpoint.request(
            calls, lambda responses: [read_rpc_number(require_result(item)) for item in responses]
        )
        return pending_count > mined_count

    async def send(self, sender: bytes, call: SignerCall, gas: int) -> bytes | OutcomeUnknown:
        request = RpcCall(
            "eth_sendTransaction", [_build_transaction(sender, call) | {"gas": hex(gas)}]
        )
        try:
            response = await self._endpoint.request([request], _read_tx_hash, _SEND_TIMEOUT_S)
        except ChainUnavailableError as error:
            return OutcomeUnknown(detail=str(error))
        if isinstance(response, RpcErrorResponse):
            # Inconclusive: the signer's node may have accepted the transaction anyway.
            return OutcomeUnknown(
                detail=f"the signer returned error code {response.code}", has_responded=True
            )
        return response

    def _add_margin(self, call: SignerCall, gas: int, gas_max: int) -> int | GasExceeded:
        if gas > gas_max:
            _blocked_counter(call).labels(self._chain, RefundBlocker.GAS.value).inc()
            return GasExceeded(gas)
        return min(gas + gas // _MARGIN_DIVISOR, gas_max)

    def _explain_failure(
        self, call: SignerCall, failure: CallRevertedError | RpcErrorResponse
    ) -> AlreadyRefunded | NotContacted:
        if isinstance(failure, RpcErrorResponse) and _NO_FUNDS.search(failure.message):
            return self._report_blocked(
                call, RefundBlocker.FUNDS, "the sender has insufficient funds"
            )
        if isinstance(failure, RpcErrorResponse):
            return self._report_blocked(
                call, RefundBlocker.REFUSED, f"the signer returned error code {failure.code}"
            )
        if failure.reason == ALREADY_REFUNDED:
            return AlreadyRefunded()
        return self._report_blocked(
            call, RefundBlocker.REVERTED, f"the contract reverts the call: {failure}"
        )

    def _report_blocked(
        self, call: SignerCall, blocker: RefundBlocker, detail: str
    ) -> NotContacted:
        _blocked_counter(call).labels(self._chain, blocker.value).inc()
        # A signer that responds is not down. For example, a token that rejects one payer's address
        # must not block all refunds.
        return NotContacted(detail=detail, has_responded=blocker is not RefundBlocker.UNREACHABLE)


def open_signers(
    urls: Mapping[str, str],
    clock: Callable[[], float] = time.monotonic,
    tls: "ssl.SSLContext | None" = None,
) -> dict[str, ExternalSigner]:
    """Return a signer for each chain with a URL. Invalid URLs are logged and skipped."""
    signers: dict[str, ExternalSigner] = {}
    for chain, url in urls.items():
        try:
            if url:
                signers[chain] = ExternalSigner(chain, url, clock, tls)
        except ValueError as error:
            _log.error("chain_signer_unusable", chain=chain, why=str(error))
    return signers


_IDENTITY_CALLS = (RpcCall("eth_chainId", []), RpcCall("eth_accounts", []))


def _read_identity(responses: list[RpcResponse]) -> SignerIdentity:
    return SignerIdentity(
        read_rpc_number(require_result(responses[0])), read_addresses(require_result(responses[1]))
    )


def _read_estimate(
    responses: list[RpcResponse],
) -> tuple[SignerIdentity, bytes, int | CallRevertedError | RpcErrorResponse]:
    identity, code, gas = (
        _read_identity(responses),
        read_bytes(require_result(responses[2])),
        responses[3],
    )
    if isinstance(gas, RpcErrorResponse):
        return identity, code, read_revert(gas) or gas
    return identity, code, read_rpc_number(gas)


def _read_tx_hash(responses: list[RpcResponse]) -> bytes | RpcErrorResponse:
    [response] = responses
    return response if isinstance(response, RpcErrorResponse) else read_tx_hash(response)


def _blocked_counter(call: SignerCall) -> Counter:
    return SWEEPS_BLOCKED if isinstance(call, SweepCall) else REFUNDS_BLOCKED


def _build_transaction(sender: bytes, call: SignerCall) -> dict[str, str]:
    return {
        "from": to_hex(sender),
        "to": to_hex(call.contract),
        "value": hex(call.value),
        "data": to_hex(_encode_call(call)),
    }


def _encode_call(call: SignerCall) -> bytes:
    if isinstance(call, SweepCall):
        return abi.encode_sweep_many(call.uuids, call.token)
    return encode_refund_call(call)


def encode_refund_call(call: ContractRefundCall) -> bytes:
    return abi.encode_refund(call.uuid, call.refund_id, call.token, call.to, call.amount)
