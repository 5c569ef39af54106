"""Build log requests, and decode and validate the responses of endpoints.

Invalid responses raise ValueError. Contradictory logs raise `RpcFaultError`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from payintent.evm.abi import (
    encode_balance_of,
    read_hash,
    read_hex,
    read_index,
    read_sized,
    read_uint,
    to_hex,
)
from payintent.evm.event_logs import (
    PAID,
    REFUNDED,
    ContractLogs,
    RpcLog,
    read_logs,
    read_matching_logs,
)
from payintent.evm.port import (
    NATIVE,
    Block,
    BlockId,
    ChainTransaction,
    ContractLog,
    MissingReason,
    TransactionReceipt,
)
from payintent.evm.rpc import (
    RpcCall,
    RpcErrorResponse,
    RpcFault,
    RpcFaultError,
    RpcResponse,
    require_result,
)

_ADDRESS = 20
_CALLS_PER_BLOCK = 2
_WORD_CHARS_MAX = 66  # `0x` and 32 bytes
_YEAR_9999_S = 253_370_764_800  # 9999-01-01 in Unix seconds


class _RpcBlock(msgspec.Struct, frozen=True, rename="camel"):
    number: str
    hash: str
    timestamp: str
    parent_hash: str


class _RpcReceipt(msgspec.Struct, frozen=True, rename="camel"):
    transaction_hash: str
    block_number: str
    block_hash: str
    status: str
    to: str | None
    logs: list[RpcLog]
    gas_used: str = "0x0"
    effective_gas_price: str = "0x0"


class _RpcTransaction(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    hash: str
    to: str | None
    input: str
    block_number: str | None
    block_hash: str | None = None
    from_: str = msgspec.field(name="from")
    value: str


_BLOCK = msgspec.json.Decoder(_RpcBlock | None)
_RECEIPT = msgspec.json.Decoder(_RpcReceipt | None)
_TX = msgspec.json.Decoder(_RpcTransaction | None)
_TEXT = msgspec.json.Decoder(str)
_TEXTS = msgspec.json.Decoder(list[str])


def read_rpc_number(raw: msgspec.Raw) -> int:
    return read_index(_TEXT.decode(raw))


def read_uint256(raw: msgspec.Raw) -> int:
    return read_uint(_TEXT.decode(raw))


def read_tx_hash(raw: msgspec.Raw) -> bytes:
    return read_hash(_TEXT.decode(raw))


def read_addresses(raw: msgspec.Raw) -> list[bytes]:
    return [read_sized(text, _ADDRESS) for text in _TEXTS.decode(raw)]


def read_bytes(raw: msgspec.Raw) -> bytes:
    return read_hex(_TEXT.decode(raw))


def read_block(raw: msgspec.Raw, number: int | None = None) -> Block | None:
    """Decode a block header. The block must have the given `number`, if any."""
    header = _BLOCK.decode(raw)
    if header is None:
        return None
    block = Block(
        number=read_index(header.number),
        hash=read_hash(header.hash),
        at=_to_datetime(read_index(header.timestamp)),
        parent_hash=read_hash(header.parent_hash),
    )
    if number is not None and block.number != number:
        raise ValueError("the response contains a different block")
    return block


def read_receipt(raw: msgspec.Raw, tx_hash: bytes) -> TransactionReceipt | None:
    """Decode the receipt of this transaction; None if the node does not have it."""
    receipt = _RECEIPT.decode(raw)
    if receipt is None:
        return None
    block_number, block_hash = read_index(receipt.block_number), read_hash(receipt.block_hash)
    status = read_index(receipt.status)
    if read_hash(receipt.transaction_hash) != tx_hash or status > 1:
        raise ValueError("the response does not contain the receipt of this transaction")
    logs, refunds = read_matching_logs(receipt.logs)
    for log in (*logs, *refunds):
        if (log.tx_hash, log.block_number, log.block_hash) != (tx_hash, block_number, block_hash):
            raise ValueError("the receipt has a log of a different transaction or block")
    return TransactionReceipt(
        tx_hash=tx_hash,
        block_number=block_number,
        block_hash=block_hash,
        status=status,
        to=_parse_optional_address(receipt.to),
        logs=logs,
        refunds=refunds,
        gas_cost=read_index(receipt.gas_used) * read_index(receipt.effective_gas_price),
    )


def read_tx(raw: msgspec.Raw, tx_hash: bytes) -> ChainTransaction | None:
    """Decode the transaction with this hash; None if the node does not have it."""
    transaction = _TX.decode(raw)
    if transaction is None:
        return None
    if read_hash(transaction.hash) != tx_hash:
        raise ValueError("the response contains a different transaction")
    return ChainTransaction(
        tx_hash=tx_hash,
        to=_parse_optional_address(transaction.to),
        input=read_hex(transaction.input),
        block_number=None
        if transaction.block_number is None
        else read_index(transaction.block_number),
        block_hash=None if transaction.block_hash is None else read_hash(transaction.block_hash),
        sender=read_sized(transaction.from_, _ADDRESS),
        value=read_uint(transaction.value),
    )


def _parse_optional_address(text: str | None) -> bytes | None:
    return None if text is None else read_sized(text, _ADDRESS)


def _to_datetime(seconds: int) -> datetime:
    if seconds > _YEAR_9999_S:
        raise ValueError("the time is after the year 9998")
    return datetime.fromtimestamp(seconds, UTC)


@dataclass(frozen=True, slots=True)
class LogSearch:
    start: int
    end: int
    contracts: frozenset[bytes]
    before: int | None

    def make_calls(self) -> list[RpcCall]:
        numbers = [self.end] if self.before is None else [self.end, self.before]
        block_range = {"fromBlock": hex(self.start), "toBlock": hex(self.end)}
        return [*map(make_block_call, numbers), _log_call(block_range, self.contracts)]

    def read(self, responses: list[RpcResponse]) -> "LogSearchResult":
        """Decode the responses. Reject logs that contradict the last block's hash."""
        end = read_block(require_result(responses[0]), self.end)
        before = (
            None if self.before is None else read_block(require_result(responses[1]), self.before)
        )
        if end is None:
            return LogSearchResult(None, before, None)
        response = responses[-1]
        if isinstance(response, RpcErrorResponse) and self.start < self.end:
            return LogSearchResult(end, before, None)
        raw = require_result(response)  # a smaller span would not help with a single block
        return LogSearchResult(
            end, before, _read_logs(raw, self.contracts, self.start, self.end, end.hash)
        )


@dataclass(frozen=True, slots=True)
class LogSearchResult:
    """`logs` is None if the endpoint refused the search."""

    end: Block | None
    before: Block | None
    logs: ContractLogs | None


def make_balance_call(token: bytes, owner: bytes, block: int) -> RpcCall:
    """Build the request for an account's balance of a token, or of the native coin."""
    if token == NATIVE:
        return RpcCall("eth_getBalance", [to_hex(owner), hex(block)])
    call = {"to": to_hex(token), "data": to_hex(encode_balance_of(owner))}
    return RpcCall("eth_call", [call, hex(block)])


def read_balances(responses: list[RpcResponse]) -> list[int | None]:
    """Decode balances. Errors do not count as failures, because an endpoint may prune old state."""
    return [_read_balance(response) for response in responses]


def _read_balance(response: RpcResponse) -> int | None:
    if isinstance(response, RpcErrorResponse):
        return None
    text = _TEXT.decode(response)  # a contract may return anything
    return read_uint(text) if 2 < len(text) <= _WORD_CHARS_MAX else None  # noqa: PLR2004


def make_block_call(block: int | str) -> RpcCall:
    """Build the request for a block by number, or by a tag such as `latest`."""
    tag = hex(block) if isinstance(block, int) else block
    return RpcCall("eth_getBlockByNumber", [tag, False])


def make_block_log_calls(blocks: Sequence[BlockId], contracts: Sequence[bytes]) -> list[RpcCall]:
    """Build two calls per block: its header by number, and its logs by hash.

    The header is needed because a node may know blocks that are not on its chain.
    """
    calls: list[RpcCall] = []
    for block in blocks:
        calls += [
            make_block_call(block.number),
            _log_call({"blockHash": to_hex(block.hash)}, contracts),
        ]
    return calls


def _log_call(blocks: Mapping[str, str], contracts: Collection[bytes]) -> RpcCall:
    log_filter: dict[str, Any] = {
        **blocks,
        "address": sorted(map(to_hex, contracts)),
        "topics": [[to_hex(PAID), to_hex(REFUNDED)]],
    }
    return RpcCall("eth_getLogs", [log_filter])


def read_block_logs(
    blocks: Sequence[BlockId], contracts: Collection[bytes], responses: list[RpcResponse]
) -> list[list[ContractLog] | MissingReason]:
    """Decode the responses to `make_block_log_calls`; an error affects only its own block."""
    return [
        _decode_block_logs(block, contracts, responses[index], responses[index + 1])
        for block, index in zip(blocks, range(0, len(responses), _CALLS_PER_BLOCK), strict=True)
    ]


def _decode_block_logs(
    block: BlockId,
    contracts: Collection[bytes],
    head_response: RpcResponse,
    logs_response: RpcResponse,
) -> list[ContractLog] | MissingReason:
    if isinstance(head_response, RpcErrorResponse):
        return MissingReason.REFUSED
    header = read_block(head_response, block.number)
    if header is None:
        return MissingReason.BEHIND
    if header.hash != block.hash:
        return []
    if isinstance(logs_response, RpcErrorResponse):
        return MissingReason.REFUSED
    paid_logs, refund_logs = _read_logs(
        logs_response, contracts, block.number, block.number, block.hash
    )
    return [*paid_logs, *refund_logs]


def _read_logs(
    raw: msgspec.Raw, contracts: Collection[bytes], start: int, end: int, end_hash: bytes
) -> ContractLogs:
    """Decode logs. Logs of the last block must have its hash."""
    try:
        paid_logs, refund_logs = read_logs(raw, contracts, start, end)
    except msgspec.MsgspecError:
        raise  # not a list of logs
    except ValueError:
        raise RpcFaultError(RpcFault.LOGS) from None
    if any(
        log.block_hash != end_hash for log in (*paid_logs, *refund_logs) if log.block_number == end
    ):
        raise RpcFaultError(RpcFault.LOGS)
    return paid_logs, refund_logs


def read_receipts(
    tx_hashes: Sequence[bytes], responses: list[RpcResponse]
) -> list[TransactionReceipt | None]:
    return [
        read_receipt(require_result(response), tx_hash)
        for response, tx_hash in zip(responses, tx_hashes, strict=True)
    ]


def read_transactions(
    tx_hashes: Sequence[bytes], responses: list[RpcResponse]
) -> list[ChainTransaction | MissingReason | None]:
    return [
        MissingReason.REFUSED
        if isinstance(response, RpcErrorResponse)
        else read_tx(response, tx_hash)
        for response, tx_hash in zip(responses, tx_hashes, strict=True)
    ]
