"""What is read from an EVM chain, and the port through which it is read; nothing of payments."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

from payintent.domain.errors import ChainUnavailableError


class EndpointBehindError(ChainUnavailableError):
    """An endpoint does not have a block that was asked for; another one may, or this one later."""


class BlockRangeTooLargeError(ChainUnavailableError):
    """An endpoint refuses to search so many blocks at once; its span is smaller now: ask again."""


class CallRevertedError(Exception):
    """A call was reverted; `reason` is the contract's own words, "" where it gave none."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason or "reverted without a reason")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Block:
    """A block's head; hashes have 32 bytes."""

    number: int
    hash: bytes
    at: datetime
    parent_hash: bytes


@dataclass(frozen=True, slots=True)
class ChainHeads:
    """The newest block of one endpoint, and the newest that it will not take back."""

    endpoint: str  # a name such as "ethereum-1", never its URL
    latest: Block
    final: Block


@dataclass(frozen=True, slots=True)
class PaidLog:
    """A payment that a gateway contract wrote down; (tx_hash, log_index) is its identity.

    Addresses have 20 bytes, the uuid 16; the native coin is the token of twenty zeros, and the
    amount is in the token's smallest unit.
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


@dataclass(frozen=True, slots=True)
class RefundedLog:
    """A refund that a gateway contract wrote down; identity and units as of `PaidLog`."""

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


ContractLog = PaidLog | RefundedLog


def log_position(log: ContractLog) -> tuple[int, int]:
    """Say where on its chain a log stands: its block, then its number there."""
    return log.block_number, log.log_index


@dataclass(frozen=True, slots=True)
class LogBatch:
    """What one endpoint says of the blocks from `start` to `end`; logs in the chain's order.

    `before` is the earlier block that was asked for along with it.
    """

    start: int
    end: Block
    before: Block | None
    logs: tuple[PaidLog, ...]
    refunds: tuple[RefundedLog, ...]
    endpoint: str

    @property
    def all_logs(self) -> list[ContractLog]:
        """Give payments and refunds together, in the chain's order."""
        return sorted((*self.logs, *self.refunds), key=log_position)


@dataclass(frozen=True, slots=True)
class TransactionReceipt:
    """What became of a mined transaction: status 1 is done, 0 is reverted.

    The logs are those of any contract that look like ours: whoever uses them compares `contract`.
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
    """A transaction, mined or waiting; `to` is None where it makes a contract."""

    tx_hash: bytes
    to: bytes | None
    input: bytes
    block_number: int | None
    block_hash: bytes | None
    sender: bytes
    value: int


@dataclass(frozen=True, slots=True)
class BlockId:
    """One block of one chain of blocks."""

    number: int
    hash: bytes


class Unanswered(Enum):
    """What an endpoint does not say of one thing while it answers other questions."""

    BEHIND = "behind"  # it lacks the block
    REFUSED = "refused"  # or its answer is larger than we read


@dataclass(frozen=True, slots=True)
class PayCall:
    """The arguments of a call of `pay`; the deadline in Unix seconds."""

    uuid: bytes
    token: bytes
    amount: int
    deadline: int


class ChainReader(Protocol):
    """Reads one chain through several endpoints; each method but `heads` asks the one named.

    All raise `ChainUnavailableError` where that endpoint gives no usable answer. An endpoint that
    failed is left alone for a while: until then it is `ChainUnavailableError` without being asked.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """Give the endpoints' names, those that work first."""
        ...

    def span(self, endpoint: str) -> int:
        """Give how many blocks this endpoint is to be asked for at once, at least 1."""
        ...

    async def heads(self) -> list[ChainHeads]:
        """Ask all endpoints at once, leave out those that fail (all: `ChainUnavailableError`)."""
        ...

    async def chunk(
        self, endpoint: str, start: int, end: int, contracts: Sequence[bytes], before: int | None
    ) -> LogBatch:
        """Search the blocks from `start` to `end` for logs of these contracts.

        `EndpointBehindError` where the endpoint lacks `end` or `before`; `BlockRangeTooLargeError`
        where it refuses the search: its span is smaller then, so that asking again comes to an end.
        """
        ...

    async def receipts(
        self, endpoint: str, tx_hashes: Sequence[bytes]
    ) -> list[TransactionReceipt | None]:
        """Read receipts, in the order asked for; None where there is no such mined transaction."""
        ...

    async def block_logs(
        self, endpoint: str, blocks: Sequence[BlockId], contracts: Sequence[bytes]
    ) -> list[list[ContractLog] | Unanswered]:
        """Read all logs of these contracts in each block, in the order asked for.

        A block that is not the endpoint's own at its number has none.
        """
        ...

    async def transactions(
        self, endpoint: str, tx_hashes: Sequence[bytes]
    ) -> list[ChainTransaction | Unanswered | None]:
        """Read transactions, in the order asked for; None where the endpoint knows none."""
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
        """Call a contract without a transaction, and give what it returns (Reverted)."""
        ...

    async def block(self, endpoint: str, number: int) -> Block | None:
        """Read a block's head; None where the endpoint has none of this number."""
        ...
