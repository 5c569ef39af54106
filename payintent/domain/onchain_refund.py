"""On-chain refunds: calls to sign, their states, and dispositions of their logs."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from payintent.domain.gateway import NotContacted, OutcomeUnknown

NATIVE = bytes(20)
#: Several times the gas of an ordinary refund; receivers whose code needs more are not paid.
GAS_MAX = 1_000_000
#: Limits our costs if a payer sends dust and has expensive receiving code.
AUTOMATIC_GAS_MAX = 150_000
#: Transfers of a session that may be refunded automatically.
AUTOMATIC_TRANSFERS_MAX = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractRefundCall:
    """A refund call of the gateway contract; addresses have 20 bytes, uuids 16."""

    network_id: int
    contract: bytes
    uuid: bytes  # of the session
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
    contract: bytes  # that received the payment
    uuid: bytes
    token: bytes
    payer: bytes | None  # None once its retention period has ended
    refunder: bytes | None  # the configured sender
    sender: bytes | None  # the first sender; every attempt must use it
    tx_hash: bytes | None  # of the last attempt
    asked_s: float  # since the signer was last called
    read_up_to: int  # the last final block that was read
    halted: bool  # payments on the chain may have been reverted
    done_by: bytes | None  # the refund's transaction in a final block
    automatic: bool  # requested by a merchant's setting and not approved by an operator


@dataclass(frozen=True, slots=True)
class AlreadyRefunded:
    """The contract has already executed this refund for this sender."""


@dataclass(frozen=True, slots=True)
class GasExceeded:
    gas: int


class RefundTransactionState(StrEnum):
    UNDER_WAY = "under_way"
    REVERTED = "reverted"  # in a final block
    UNSEEN = "unseen"  # no endpoint has the transaction, and the contract has not executed it


class RefundLogDisposition(StrEnum):
    SETTLES = "settles"
    UNKNOWN = "unknown"  # does not reference a refund of ours
    FOREIGN = "foreign"  # references a refund of ours, but from a foreign sender
    MISMATCHED = "mismatched"  # sent by us, but with other values than the refund's
    TWICE = "twice"  # an earlier log has already settled this refund


class OnchainRefundSender(Protocol):
    """Sends refunds on a chain, signed by an external signer that has the keys."""

    async def estimate(
        self, sender: bytes, call: ContractRefundCall, gas_max: int
    ) -> int | AlreadyRefunded | GasExceeded | NotContacted:
        """Return the gas limit of a refund's transaction without sending it."""
        ...

    async def send(
        self, sender: bytes, call: ContractRefundCall, gas: int
    ) -> bytes | OutcomeUnknown:
        """Have a refund signed and sent; return its transaction hash."""
        ...

    async def trace(
        self, sender: bytes, call: ContractRefundCall, tx_hash: bytes | None, read_up_to: int
    ) -> RefundTransactionState | OutcomeUnknown:
        """Query the chain for the state of a refund; blocks after `read_up_to` are not final."""
        ...
