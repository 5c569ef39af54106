"""An external signer: it has the keys, signs what we ask for and sends it, over JSON-RPC.

We ask it for transactions and never for a key, and tell what surely was not sent from silence.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from prometheus_client import Counter

from payintent.domain.errors import ChainDown
from payintent.domain.evm import Reverted
from payintent.domain.gateway import NotContacted, Unknown
from payintent.domain.onchain_refund import AlreadyRefunded, RefundCall
from payintent.evm import abi
from payintent.evm.reverts import read_revert
from payintent.evm.rpc import Answer, Call, Endpoint, Limits, RpcError, open_session, result
from payintent.evm.rpc_answers import (
    read_addresses,
    read_amount,
    read_bytes,
    read_number,
    read_tx_hash,
)
from payintent.log import get

if TYPE_CHECKING:
    import aiohttp

#: Of an ordinary refund's need; a destination that runs more code than that is not paid.
GAS_MAX = 1_000_000
_MARGIN = 4  # a quarter more than estimated: balances change until it is mined
_ASK_S = 7.0  # for all questions before a sending
_SEND_S = 8.0  # whoever signs may be slow, and both together end within 15 s
_ANSWER_BYTES_MAX = 1024 * 1024
#: What the contract says of a refund that it has done for this sender.
DONE = "already refunded"
_NO_FUNDS = re.compile(r"insufficient funds|exceeds (allowance|balance)", re.IGNORECASE)

WAITING = Counter(
    "payintent_chain_refunds_waiting_total",
    "Times that a refund could not be sent, by why",
    ["chain", "why"],
)
_log = get("signer")


class Why(StrEnum):
    """What keeps a refund from being sent."""

    AWAY = "away"
    ANOTHER_CHAIN = "another_chain"
    NO_KEY = "no_key"
    FUNDS = "funds"
    REVERTED = "reverted"
    NO_CONTRACT = "no_contract"
    GAS = "gas"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Signs:
    """What a signer says of itself: its chain, and whose keys it has."""

    network_id: int
    senders: Sequence[bytes]


class Signer:
    """One chain's external signer; its connections open with the first question."""

    def __init__(self, chain: str, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._chain = chain
        self._session: aiohttp.ClientSession | None = None
        self._endpoint = Endpoint(
            chain,
            f"{chain}-signer",
            url,
            limits=Limits(timeout_s=_ASK_S, answer_bytes_max=_ANSWER_BYTES_MAX, batch_max=1),
            session=self._open,
            clock=clock,
        )

    async def close(self) -> None:
        """Close the connections; a later question opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def signs(self) -> Signs:
        """Ask who it is (ChainDown)."""
        return await self._endpoint.ask(_WHO, _read_who)

    async def coins(self, sender: bytes) -> int:
        """Ask how many coins a sender has (ChainDown)."""
        asked = Call("eth_getBalance", [_hex(sender), "latest"])
        return await self._endpoint.ask([asked], lambda told: read_amount(result(told[0])))

    async def estimate(
        self, sender: bytes, call: RefundCall
    ) -> int | AlreadyRefunded | NotContacted:
        """Give the gas that a refund needs, a quarter more; nothing is signed or sent by asking."""
        asked = (
            *_WHO,
            Call("eth_getCode", [_hex(call.contract), "latest"]),
            Call("eth_estimateGas", [_transaction(sender, call)]),
        )
        try:
            async with asyncio.timeout(_ASK_S):
                signs, code, told = await self._endpoint.ask(asked, _read_estimate)
        except (ChainDown, TimeoutError) as error:
            return self._waits(Why.AWAY, str(error) or "the signer does not answer in time")
        if signs.network_id != call.network_id:
            return self._waits(Why.ANOTHER_CHAIN, f"the signer is on chain {signs.network_id}")
        if sender not in signs.senders:
            return self._waits(Why.NO_KEY, f"the signer has no key of {_hex(sender)}")
        if not code:  # it would take coins and do nothing
            return self._waits(Why.NO_CONTRACT, f"no contract is at {_hex(call.contract)}")
        if isinstance(told, int):
            return self._with_margin(told)
        return self._refused(told)

    async def send(self, sender: bytes, call: RefundCall, gas: int) -> bytes | Unknown:
        """Have a refund signed and sent; gives its transaction's hash."""
        asked = Call("eth_sendTransaction", [_transaction(sender, call) | {"gas": hex(gas)}])
        try:
            told = await self._endpoint.ask([asked], _read_sent, _SEND_S)
        except ChainDown as error:
            return Unknown(detail=str(error))
        if isinstance(told, RpcError):
            # A signer may refuse what its node has taken all the same: its word proves nothing.
            return Unknown(detail=f"the signer refuses, code {told.code}")
        return told

    def _with_margin(self, gas: int) -> int | NotContacted:
        if gas > GAS_MAX:
            return self._waits(Why.GAS, f"the destination wants {gas} gas")
        return gas + gas // _MARGIN

    def _refused(self, told: Reverted | RpcError) -> AlreadyRefunded | NotContacted:
        if isinstance(told, RpcError) and _NO_FUNDS.search(told.message):
            return self._waits(Why.FUNDS, "the refunder has too few coins")
        if isinstance(told, RpcError):
            return self._waits(Why.REFUSED, f"the signer refuses, code {told.code}")
        if told.reason == DONE:
            return AlreadyRefunded()
        return self._waits(Why.REVERTED, f"the refunder cannot pay: {told}")

    def _waits(self, why: Why, detail: str) -> NotContacted:
        WAITING.labels(self._chain, why.value).inc()
        return NotContacted(detail=detail)

    def _open(self) -> "aiohttp.ClientSession":
        if self._session is None:
            self._session = open_session()
        return self._session


def open_signers(
    urls: Mapping[str, str], clock: Callable[[], float] = time.monotonic
) -> dict[str, Signer]:
    """Make the signers of the chains that have one; an address that is none is told and left."""
    signers: dict[str, Signer] = {}
    for chain, url in urls.items():
        try:
            if url:
                signers[chain] = Signer(chain, url, clock)
        except ValueError as error:
            _log.error("chain_signer_unusable", chain=chain, why=str(error))
    return signers


_WHO = (Call("eth_chainId", []), Call("eth_accounts", []))


def _read_who(answers: list[Answer]) -> Signs:
    return Signs(read_number(result(answers[0])), read_addresses(result(answers[1])))


def _read_estimate(answers: list[Answer]) -> tuple[Signs, bytes, int | Reverted | RpcError]:
    signs, code, told = _read_who(answers), read_bytes(result(answers[2])), answers[3]
    if isinstance(told, RpcError):
        return signs, code, read_revert(told) or told
    return signs, code, read_number(told)


def _read_sent(answers: list[Answer]) -> bytes | RpcError:
    [told] = answers
    return told if isinstance(told, RpcError) else read_tx_hash(told)


def _transaction(sender: bytes, call: RefundCall) -> dict[str, str]:
    return {
        "from": _hex(sender),
        "to": _hex(call.contract),
        "value": hex(call.value),
        "data": _hex(encoded(call)),
    }


def encoded(call: RefundCall) -> bytes:
    """Encode a refund as the contract takes it."""
    return abi.refund(call.uuid, call.refund_id, call.token, call.to, call.amount)


def _hex(data: bytes) -> str:
    return f"0x{data.hex()}"
