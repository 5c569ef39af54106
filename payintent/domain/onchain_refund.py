"""Refunds on chains: the call to sign, its state, and the classification of its logs."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from payintent.domain.gateway import NotContacted, OutcomeUnknown

NATIVE = bytes(20)
#: Several times what an ordinary refund needs; a receiver whose code needs more is not paid.
GAS_MAX = 1_000_000
#: What one automatic refund may burn: whoever sends us dust must not make us pay for their code.
AUTOMATIC_GAS_MAX = 150_000
#: Of one session's transfers, those that may be refunded without a person.
AUTOMATIC_TRANSFERS_MAX = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractRefundCall:
    """A refund call of the gateway contract; addresses have 20 bytes, uuids 16."""

    network_id: int
    contract: bytes
    uuid: bytes  # of the expected transfer
    refund_id: bytes
    token: bytes
    to: bytes
    amount: int

    @property
    def value(self) -> int:
        return self.amount if self.token == NATIVE else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OnchainRefundFacts:
    chain: str
    network_id: int
    contract: bytes  # the one that took the payment
    uuid: bytes
    token: bytes
    payer: bytes | None  # None: it was forgotten after its time
    refunder: bytes | None  # the address that sends refunds now
    sender: bytes | None  # the address that was asked first; only this one sends it
    tx_hash: bytes | None  # of the last transaction that the signer returned
    asked_s: float  # seconds since the signer was last asked
    read_up_to: int  # the last final block that was read
    halted: bool  # what was paid there may be undone
    done_by: bytes | None  # the transaction that did it, in a final block
    automatic: bool  # requested by a merchant's own rule, and approved by nobody


@dataclass(frozen=True, slots=True)
class AlreadyRefunded:
    """The contract has already done this refund for this sender."""


@dataclass(frozen=True, slots=True)
class GasExceeded:
    gas: int


class RefundTransactionState(StrEnum):
    UNDER_WAY = "under_way"
    REVERTED = "reverted"  # in a final block
    UNSEEN = "unseen"  # no endpoint has its transaction, and the contract has not done it


class RefundLogDisposition(StrEnum):
    SETTLES = "settles"
    UNKNOWN = "unknown"  # names no refund of ours
    FOREIGN = "foreign"  # names a refund of ours, but its sender is none of ours
    MISMATCHED = "mismatched"  # sent by us, but not with the promised values
    TWICE = "twice"  # another log has done this refund before


class OnchainRefundSender(Protocol):
    """Has refunds signed and sent on one chain; the keys stay in the external signer."""

    async def estimate(
        self, sender: bytes, call: ContractRefundCall, gas_max: int
    ) -> int | AlreadyRefunded | GasExceeded | NotContacted:
        """Return the gas limit of a refund's transaction; nothing is signed or sent."""
        ...

    async def send(
        self, sender: bytes, call: ContractRefundCall, gas: int
    ) -> bytes | OutcomeUnknown:
        """Have a refund signed and sent; returns its transaction's hash."""
        ...

    async def trace(
        self, sender: bytes, call: ContractRefundCall, tx_hash: bytes | None, read_up_to: int
    ) -> RefundTransactionState | OutcomeUnknown:
        """Ask the chain for the state of a refund; no block after `read_up_to` is final yet."""
        ...
