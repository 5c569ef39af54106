"""Records and errors for chain access, independent of the transport."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum

from payintent.core.errors import ChainUnavailableError


class EndpointBehindError(ChainUnavailableError):
    """An endpoint does not have the requested block yet."""


class BlockRangeTooLargeError(ChainUnavailableError):
    """An endpoint refuses to search this many blocks; retry with the reduced `span`."""


class TooManyRecipientsError(ChainUnavailableError):
    """An endpoint refuses to search for this many recipients; retry with the reduced maximum."""


class CallRevertedError(Exception):
    """A call reverted; `reason` is the contract's message, or "" if there is none."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason or "reverted without a reason")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Block:
    """A block header; hashes are 32 bytes long."""

    number: int
    hash: bytes
    at: datetime
    parent_hash: bytes


@dataclass(frozen=True, slots=True)
class ChainHeads:
    endpoint: str  # a name such as "ethereum-1", never its URL
    latest: Block
    final: Block


@dataclass(frozen=True, slots=True)
class PaidLog:
    """A `Paid` log of a gateway contract, identified by (tx_hash, log_index).

    Addresses are 20 bytes long, and `uuid` is 16 bytes long. A token of 20 zero bytes is the native
    coin. The amount is in the token's smallest unit.
    """

    contract: bytes
    uuid: bytes
    payer: bytes
    token: bytes
    amount: int
    receiver: bytes
    block_number: int
    block_hash: bytes
    tx_hash: bytes
    log_index: int

    def __hash__(self) -> int:
        return hash((self.tx_hash, self.log_index))


@dataclass(frozen=True, slots=True)
class RefundedLog:
    """A `Refunded` log of a gateway contract; identity and units are as in `PaidLog`."""

    contract: bytes
    uuid: bytes
    refund_id: bytes
    token: bytes
    amount: int
    to: bytes
    sender: bytes
    block_number: int
    block_hash: bytes
    tx_hash: bytes
    log_index: int

    def __hash__(self) -> int:
        return hash((self.tx_hash, self.log_index))


ContractLog = PaidLog | RefundedLog


@dataclass(frozen=True, slots=True)
class TransferLog:
    """An ERC-20 Transfer log; identity and units are as in `PaidLog`."""

    token: bytes
    sender: bytes
    recipient: bytes
    amount: int
    block_number: int
    block_hash: bytes
    tx_hash: bytes
    log_index: int

    def __hash__(self) -> int:
        return hash((self.tx_hash, self.log_index))


@dataclass(frozen=True, slots=True)
class SweepLog:
    """A `Swept` or `SweepFailed` log of a deposit factory; identity and units are as in `PaidLog`.

    `amount` is the amount that left the deposit address, or 0 if the sweep failed.
    """

    factory: bytes
    uuid: bytes
    token: bytes
    deposit_address: bytes
    amount: int
    succeeded: bool
    block_number: int
    block_hash: bytes
    tx_hash: bytes
    log_index: int

    def __hash__(self) -> int:
        return hash((self.tx_hash, self.log_index))


ChainLog = ContractLog | TransferLog | SweepLog


def log_position(log: ChainLog) -> tuple[int, int]:
    return log.block_number, log.log_index


@dataclass(frozen=True, slots=True)
class LogBatch:
    """An endpoint's logs in the blocks `start` to `end`, in chain order.

    `before` is the earlier block that was requested together with the logs.
    """

    start: int
    end: Block
    before: Block | None
    logs: tuple[PaidLog, ...]
    refunds: tuple[RefundedLog, ...]
    endpoint: str

    @property
    def all_logs(self) -> list[ContractLog]:
        return sorted((*self.logs, *self.refunds), key=log_position)


@dataclass(frozen=True, slots=True)
class TransactionReceipt:
    """The receipt of a mined transaction; status 1 means success, and 0 means a revert.

    Any contract may have emitted the logs, so callers must check `contract`.
    """

    tx_hash: bytes
    block_number: int
    block_hash: bytes
    status: int
    to: bytes | None
    logs: tuple[PaidLog, ...]
    refunds: tuple[RefundedLog, ...]
    gas_cost: int = 0  # in the smallest unit of the coin; 0 if the endpoint does not report it


@dataclass(frozen=True, slots=True)
class ChainTransaction:
    """A transaction, mined or pending; `to` is None if it creates a contract."""

    tx_hash: bytes
    to: bytes | None
    input: bytes
    block_number: int | None
    block_hash: bytes | None
    sender: bytes
    value: int


@dataclass(frozen=True, slots=True)
class BlockId:
    number: int
    hash: bytes


class MissingReason(Enum):
    """The reason why an item is missing from a batch response."""

    BEHIND = "behind"  # the endpoint does not have the block yet
    REFUSED = "refused"  # the endpoint refuses the request, or its response is too large


@dataclass(frozen=True, slots=True)
class PayCall:
    """The arguments of a `pay` call; `deadline` is in Unix seconds."""

    uuid: bytes
    token: bytes
    amount: int
    deadline: int


NATIVE = bytes(20)
#: Several times the gas of an ordinary refund. Receivers that need more gas are not refunded.
GAS_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractRefundCall:
    """A refund call to the gateway contract; addresses are 20 bytes long, and uuids are 16."""

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
class SweepCall:
    """A `sweep_many` call to a deposit factory; addresses are 20 bytes long, and uuids are 16."""

    network_id: int
    contract: bytes  # the factory
    uuids: Sequence[bytes]
    token: bytes
    value: int = 0


@dataclass(frozen=True, slots=True)
class AlreadyRefunded:
    """The contract has already executed this refund for this sender."""


@dataclass(frozen=True, slots=True)
class GasExceeded:
    gas: int


class RefundTransactionState(StrEnum):
    PENDING = "pending"
    REVERTED = "reverted"  # in a final block
    UNKNOWN = "unknown"  # unknown to all endpoints, and the contract has not executed the refund
