"""What is read from an EVM chain, and the port through which it is read; nothing of payments."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

from payintent.domain.errors import ChainUnavailableError


class EndpointBehindError(ChainUnavailableError):
    """An endpoint lacks a block that was requested; another may have it, or this one later."""


class BlockRangeTooLargeError(ChainUnavailableError):
    """An endpoint refuses to search so many blocks at once; `span` is smaller now, so retry."""


class CallRevertedError(Exception):
    """A call was reverted; `reason` is the contract's own text, "" where it gave none."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason or "reverted without a reason")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Block:
    """A block's header; hashes have 32 bytes."""

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

    Addresses have 20 bytes, the uuid 16; the native coin is the token of twenty zero bytes, and
    the amount is in the token's smallest unit.
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
    """A `Refunded` log of a gateway contract; identity and units as of `PaidLog`."""

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


def log_position(log: ContractLog) -> tuple[int, int]:
    """Return a log's position on its chain: the block number, then the log index."""
    return log.block_number, log.log_index


@dataclass(frozen=True, slots=True)
class LogBatch:
    """One endpoint's logs of the blocks from `start` to `end`, in the chain's order.

    `before` is the earlier block that was requested along with them.
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
    """The transaction receipt of a mined transaction: status 1 is success, 0 is reverted.

    The logs are those of any contract that look like ours: callers must compare `contract`.
    """

    tx_hash: bytes
    block_number: int
    block_hash: bytes
    status: int
    to: bytes | None
    logs: tuple[PaidLog, ...]
    refunds: tuple[RefundedLog, ...]


@dataclass(frozen=True, slots=True)
class ChainTransaction:
    """A transaction, mined or pending; `to` is None where it creates a contract."""

    tx_hash: bytes
    to: bytes | None
    input: bytes
    block_number: int | None
    block_hash: bytes | None
    sender: bytes
    value: int


@dataclass(frozen=True, slots=True)
class BlockId:
    """A block of one chain, by number and hash."""

    number: int
    hash: bytes


class Unanswered(Enum):
    """Why an endpoint leaves out one part of its answer while it answers the others."""

    BEHIND = "behind"  # it lacks the block
    REFUSED = "refused"  # it refuses, or its answer is larger than we read


@dataclass(frozen=True, slots=True)
class PayCall:
    """The arguments of a call of `pay`; the deadline in Unix seconds."""

    uuid: bytes
    token: bytes
    amount: int
    deadline: int


class ChainReader(Protocol):
    """Reads one chain through several endpoints; each method except `heads` asks the named one.

    All raise `ChainUnavailableError` where that endpoint gives no usable answer. An endpoint that
    failed is not contacted for a while: until then they raise `ChainUnavailableError` at once.
    """

    @property
    def names(self) -> tuple[str, ...]: ...

    def span(self, endpoint: str) -> int:
        """Return how many blocks this endpoint can be asked for at once, at least 1."""
        ...

    async def heads(self) -> list[ChainHeads]:
        """Ask all endpoints at once, omit those that fail (all: `ChainUnavailableError`)."""
        ...

    async def chunk(
        self, endpoint: str, start: int, end: int, contracts: Sequence[bytes], before: int | None
    ) -> LogBatch:
        """Search the blocks from `start` to `end` for logs of these contracts.

        Raises `EndpointBehindError` where the endpoint lacks `end` or `before`, and
        `BlockRangeTooLargeError` where it refuses the search: `span` is smaller then, so that
        retrying comes to an end.
        """
        ...

    async def receipts(
        self, endpoint: str, tx_hashes: Sequence[bytes]
    ) -> list[TransactionReceipt | None]:
        """Read transaction receipts, in the order of the hashes; None where none is mined."""
        ...

    async def block_logs(
        self, endpoint: str, blocks: Sequence[BlockId], contracts: Sequence[bytes]
    ) -> list[list[ContractLog] | Unanswered]:
        """Read all logs of these contracts in each block, in the order of the blocks.

        A block whose hash is not the endpoint's own at that number has no logs.
        """
        ...

    async def transactions(
        self, endpoint: str, tx_hashes: Sequence[bytes]
    ) -> list[ChainTransaction | Unanswered | None]:
        """Read transactions, in the order of the hashes; None where the endpoint has none."""
        ...

    async def call(
        self,
        endpoint: str,
        to: bytes,
        data: bytes,
        block: int | str = "latest",
        *,
        sender: bytes | None = None,
        value: int = 0,
    ) -> bytes:
        """Call a contract without a transaction and return its result (`CallRevertedError`)."""
        ...

    async def coins(self, endpoint: str, address: bytes, block: int) -> int: ...

    async def block(self, endpoint: str, number: int) -> Block | None:
        """Read a block's header; None where the endpoint has no block of this number."""
        ...
