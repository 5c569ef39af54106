"""Refunds on chains: what a signer is asked for, what is known of it, and what a log of one is."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from payintent.domain.gateway import NotContacted, OutcomeUnknown

NATIVE = bytes(20)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractRefundCall:
    """A call of our contract that gives money back; addresses have 20 bytes, uuids 16."""

    network_id: int
    contract: bytes
    uuid: bytes  # of the bill
    refund_id: bytes
    token: bytes
    to: bytes
    amount: int

    @property
    def value(self) -> int:
        """Give the coins that are sent along."""
        return self.amount if self.token == NATIVE else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OnchainRefundFacts:
    """What is known of one refund on its chain."""

    chain: str
    network_id: int
    contract: bytes  # that took the payment
    uuid: bytes
    token: bytes
    payer: bytes
    refunder: bytes | None  # who sends refunds now
    sender: bytes | None  # who was asked to send this one, and sends it always
    tx_hash: bytes | None  # of the last transaction that the signer told
    asked_s: float  # since the signer was last asked
    read_up_to: int  # the last final block that was read
    done_by: bytes | None  # the transaction that did it, in a final block


@dataclass(frozen=True, slots=True)
class AlreadyRefunded:
    """The contract has done this refund for this sender before."""


class RefundTransactionState(StrEnum):
    """What became of a refund that a signer was asked for."""

    UNDER_WAY = "under_way"
    REVERTED = "reverted"  # in a final block
    UNSEEN = "unseen"  # nobody has its transaction, and the contract has not done it


class RefundLogDisposition(StrEnum):
    """What a finalized `Refunded` log is to us."""

    SETTLES = "settles"
    UNKNOWN = "unknown"  # names no refund of ours
    FOREIGN = "foreign"  # names one, by a sender that is none of ours
    MISMATCHED = "mismatched"  # by ours, and not what was promised
    TWICE = "twice"  # another log has done it before


class OnchainRefundSender(Protocol):
    """Has refunds signed and sent on one chain, with keys that we never see."""

    async def estimate(
        self, sender: bytes, call: ContractRefundCall
    ) -> int | AlreadyRefunded | NotContacted:
        """Give the gas that a refund needs; nothing is signed or sent by asking."""
        ...

    async def send(
        self, sender: bytes, call: ContractRefundCall, gas: int
    ) -> bytes | OutcomeUnknown:
        """Have a refund signed and sent; gives its transaction's hash."""
        ...

    async def trace(
        self, sender: bytes, call: ContractRefundCall, tx_hash: bytes | None, read_up_to: int
    ) -> RefundTransactionState | OutcomeUnknown:
        """Ask the chain what became of a refund; no block after `read_up_to` is final yet."""
        ...
